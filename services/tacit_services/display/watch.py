"""The picture that `tacit watch` draws in a terminal: the first view of a run's page.

The measure on the test set as a line that grows, every edge's ε as a bar of its budget, who is
there, and who is not and why.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from tacit_services.display import text_tables

if TYPE_CHECKING:
    from tacit_client import Edge, Point, Status

HEIGHT = 6  # lines of the picture
_BESIDE = 28  # lines of the screen that are not edges
_MARGIN = 12  # columns left of the picture, and two more
_BAR = 20  # columns of a budget
_LEVELS = " ▁▂▃▄▅▆▇█"
_THERE = ("online", "unknown")


def view(
    to: Console, run: Status, points: Sequence[Point], edges: Sequence[Edge]
) -> RenderableType:
    """Return the whole picture, as high as the terminal at most."""
    parts: list[RenderableType] = [text_tables.status(to, run)]
    name, values = measured(points)
    if values:
        parts.append(Text(f"{name}, version {points[0].version} to {points[-1].version}"))
        parts += [Text(line) for line in chart(values, max(to.width - _MARGIN, 10))]
    parts.append(_edges(to, edges, max(to.height - _BESIDE, 3)))
    return Group(*parts)


def measured(points: Sequence[Point]) -> tuple[str, list[float]]:
    """Return what to draw, accuracy or else the loss, and its values."""
    accuracy = [point.accuracy for point in points if point.accuracy is not None]
    if accuracy:
        return "accuracy", accuracy
    return "loss", [point.loss for point in points if point.loss is not None]


def chart(values: Sequence[float], width: int) -> list[str]:
    """Return HEIGHT lines of blocks, from the least to the largest value, with both beside.

    Of more values than columns, every column shows the last of its part.
    """
    count = min(width, len(values))
    sampled = [values[(place + 1) * len(values) // count - 1] for place in range(count)]
    low = min(sampled)
    high = max(sampled)
    eighths = [
        1 + round((value - low) / ((high - low) or 1) * (8 * HEIGHT - 1)) for value in sampled
    ]
    lines = []
    for row in range(HEIGHT - 1, -1, -1):
        label = {HEIGHT - 1: f"{high:.4g}", 0: f"{low:.4g}"}.get(row, "")
        blocks = "".join(_LEVELS[min(max(level - 8 * row, 0), 8)] for level in eighths)
        lines.append(f"{label:>9} │{blocks}")
    return lines


def _edges(to: Console, edges: Sequence[Edge], most: int) -> Table:
    """List the edges: first those that need attention, then by spending."""
    ordered = sorted(edges, key=lambda edge: (edge.state in _THERE, -_share(edge), edge.id))
    table = Table(box=text_tables.outline(to), header_style="bold", caption_justify="left")
    for name in ("edge", "state", "releases", "ε of its budget", "why"):
        table.add_column(name, justify="right" if name == "releases" else "left")
    for edge in ordered[:most]:
        why = text_tables.cell(edge.retired or edge.refusal)
        table.add_row(
            text_tables.cell(edge.id),
            text_tables.cell(edge.state),
            str(edge.pushes),
            _budget(edge),
            why,
        )
    if not any(edge.retired or edge.refusal for edge in ordered[:most]):
        table.columns.pop()
    if len(ordered) > most:
        table.caption = Text(f"and {len(ordered) - most} more: tacit ledger")
    return table


def _share(edge: Edge) -> float:
    if edge.epsilon_pld is None or not edge.budget:
        return 0.0
    return min(edge.epsilon_pld / edge.budget, 1.0)


def _budget(edge: Edge) -> Text:
    """Return a bar, and the two numbers."""
    if edge.budget is None:
        return Text(text_tables.epsilon(edge.epsilon_pld))
    if edge.budget_of != "data":
        spent = text_tables.epsilon(edge.epsilon_pld)
        return Text(f"{spent} in all runs; limit of this one {edge.budget:g}")
    full = round(_share(edge) * _BAR)
    spent = text_tables.epsilon(edge.epsilon_pld)
    return Text(f"{'█' * full}{'░' * (_BAR - full)} {spent} of {edge.budget:g}")
