"""A frozen network as a table of its layers."""

from __future__ import annotations

from rich.console import Console
from rich.table import Table

from tacit.graphs.graph_facts import GraphFacts, layer_cells
from tacit_services.display.text_tables import cell, outline

_LEFT = ("layer", "operations", "gives")


def layer_table(to: Console, facts: GraphFacts) -> Table:
    """Return a network's layers, in order; a row reads the rows whose numbers it has."""
    heading, *rows = layer_cells(facts)
    table = Table(box=outline(to), header_style="bold", pad_edge=False)
    for name in heading:
        table.add_column(
            name, justify="left" if name in _LEFT else "right", no_wrap=name != "operations"
        )
    for row in rows:
        table.add_row(*map(cell, row))
    return table
