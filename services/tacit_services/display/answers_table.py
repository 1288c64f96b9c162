"""Answers to questions, as a table for people."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from rich.table import Table

from tacit.rounding import epsilon
from tacit_services.display.text_tables import cell

_HIDDEN = "suppressed"


def answers_table(documents: Sequence[dict[str, Any]]) -> Table:
    """Return the table of `answers.json`."""
    first = documents[0]
    title = (
        f"answers of {first['edges']} of {first['of']} edges, "
        f"ε = {epsilon(first['epsilon'])}, δ = {first['delta']:g}, per {first['unit']}"
    )
    table = Table(title=title, title_justify="left")
    table.add_column("question")
    table.add_column("of")
    for name in ("answer", "95 % from", "to", "± sampling"):
        table.add_column(name, justify="right")
    for document in documents:
        for row in _rows(document):
            table.add_row(*map(cell, row))
    return table


def _rows(document: dict[str, Any]) -> Iterator[tuple[str, ...]]:
    question = document["question"]
    for answer in document.get("values", [document]):
        value = _HIDDEN if answer["suppressed"] else _number(answer["value"])
        ends = (_number(answer["low"]), _number(answer["high"]))
        yield question, answer.get("label", ""), value, *ends, _number(answer["sampling"] or None)
        question = ""


def _number(value: float | None) -> str:
    if value is None:
        return ""
    return f"{value:,.0f}" if value % 1 == 0 else f"{value:,}"
