"""What a terminal says of the looks at held-out rows: while a run goes on, and at its end."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rich.text import Text

if TYPE_CHECKING:
    from tacit_client import Judged, Noisy


def rows(summary: dict[str, Any]) -> list[tuple[str, str]]:
    """Return the figures of the last look, each with its interval, as rows of a table."""
    look = _last(summary)
    if look is None:
        return []
    best = summary.get("models", {}).get("best", {})
    of = f"look {look['look']} of {look['looks']}, {look['edges']} of {look['of']} edges"
    if look["suppressed"]:
        return [("judged at edges", f"{of}: the noise hides all figures")]
    lines = [
        (name, f"{value['value']:.4g} ({value['low']:.4g} to {value['high']:.4g})")
        for name, value in look["metrics"].items()
    ]
    if best.get("look") is not None:
        lines.append(("model best", f"of look {best['look']}: {best['file']}"))
    cost = f"ε {look['epsilon']:g} of the units held out, for all looks"
    return [("judged at edges", f"{of}; 95 % intervals of the noise; {cost}"), *lines]


def first_figure(judged: Judged) -> str:
    """Return the latest look's first figure with its interval; where noise hides it, that."""
    name, figure = next(iter(judged.metrics.items()), ("", None))
    look = f"look {judged.look} of {judged.looks}"
    if figure is None:
        return f"judged: hidden by noise ({look})"
    return f"judged {name} {_interval(figure)} ({look})"


def in_full(judged: Judged) -> str:
    """Return what a status has of the latest look."""
    of = (
        f"look {judged.look} of {judged.looks}, at version {judged.version}, by {judged.edges} of "
        f"{judged.of} edges"
    )
    if judged.suppressed:
        return f"{of}: the noise hides all figures"
    figures = ", ".join(f"{name} {_interval(each)}" for name, each in judged.metrics.items())
    best = "" if judged.best is None else f"; the best so far is that of look {judged.best}"
    return f"{figures}; 95 % intervals of the noise; {of}{best}"


def warning(summary: dict[str, Any]) -> list[Text]:
    """Return a line where the looks do not show that the model beats always the same answer."""
    look = _last(summary)
    if look is None or look["suppressed"]:
        return []
    beyond = look.get("beyond_constant")
    if beyond is not None and beyond["low"] > 0:
        return []
    verb = "is" if beyond is not None and beyond["high"] <= 0 else "is not seen to be"
    worse = "no better" if verb == "is" else "better"
    return [
        Text(
            f"judged on held-out rows, the model {verb} {worse} than always the same answer: more "
            "updates, more rows, a larger evaluation.epsilon or fewer looks tell more",
            style="bold",
        )
    ]


def _interval(figure: Noisy) -> str:
    return f"{figure.value:.4g} ({figure.low:.4g} to {figure.high:.4g})"


def _last(summary: dict[str, Any]) -> dict[str, Any] | None:
    looks = summary.get("looks")
    return looks[-1] if looks else None
