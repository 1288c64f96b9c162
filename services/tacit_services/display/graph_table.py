"""A frozen network as a table of its layers."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import Console
from rich.table import Table

from tacit.models.graph.graph_facts import GraphFacts, name_words, operation_words, shape_words
from tacit.models.graph.graph_folds import FoldedLayers
from tacit_services.display.text_tables import cell, outline

_COLUMNS = ("", "layer", "operations", "reads", "gives", "trained", "fixed", "multiply-adds")
_LEFT = ("layer", "operations", "gives")
_NAME = 44  # characters


def layer_table(to: Console, facts: GraphFacts) -> Table:
    """Return a network's layers, in order; a row reads the rows whose numbers it has.

    A column of nothing is left out.
    """
    table = Table(box=outline(to), header_style="bold", pad_edge=False)
    rows = list(layer_rows(facts))
    shown = [place for place, name in enumerate(_COLUMNS) if any(row[place] for row in rows)]
    for name in (_COLUMNS[place] for place in shown):
        table.add_column(
            name, justify="left" if name in _LEFT else "right", no_wrap=name != "operations"
        )
    for row in rows:
        table.add_row(*(cell(row[place]) for place in shown))
    return table


def layer_rows(facts: GraphFacts) -> Iterator[tuple[str, ...]]:
    """Yield the cells of each row, the example's first."""
    yield ("0", "the example", "", "", shape_words(facts.input), "", "", "")
    view = facts.rows()
    for number, row in enumerate(view.rows, 1):
        layer = row.layer
        yield (
            str(number),
            name_words(row, _NAME) + _times(view, number),
            operation_words(layer),
            ", ".join(map(str, layer.sources[:8])) + (", …" if layer.sources[8:] else ""),
            shape_words(layer.shape),
            _number(layer.trained),
            _number(layer.fixed),
            _number(layer.multiply_adds),
        )


def _times(view: FoldedLayers, number: int) -> str:
    """Return what the first row of a part that repeats says about it."""
    for repeat in view.repeats:
        if repeat.first == number:
            if repeat.last == number:
                return f"  ({repeat.times} times)"
            return f"  ({number} to {repeat.last}: {repeat.times} times)"
    return ""


def _number(value: int) -> str:
    return f"{value:,}" if value else ""
