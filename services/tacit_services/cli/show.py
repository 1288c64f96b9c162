"""`tacit show`: what a graph is, for who reviews it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tacit_services.cli.options import AsJson
from tacit_services.cli.say import say
from tacit_services.extras import need

if TYPE_CHECKING:
    from tacit.graphs.graph_file import GraphFile

_KINDS = 12  # of operations that are named in a line


def show(
    file: Annotated[Path, typer.Argument(metavar="NAME.graph.json", help="a frozen network")],
    nodes: Annotated[
        bool, typer.Option(help="every weight, and every operation with its line")
    ] = False,
    svg: Annotated[
        Path | None, typer.Option(metavar="NAME.svg", help="file to draw its layers to")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Show a frozen network: its layers, its weights, and what a row costs.

    Nothing of it is run, and its values need not be there.
    """
    need("edge")
    from tacit.graphs.graph_facts import document_of, facts_of, node_lines, shape_words
    from tacit.graphs.graph_file import read_graph
    from tacit.graphs.graph_picture import picture
    from tacit.shown import as_json as text_of_json
    from tacit_services.disk.files import write
    from tacit_services.display.graph_table import layer_table
    from tacit_services.display.text_tables import console

    graph = read_graph(file)
    facts = facts_of(graph)
    if svg is not None:
        write(svg, picture(facts).encode(), 0o644)
    if as_json:
        typer.echo(text_of_json(document_of(facts)))
        return
    say(f"{file}: SHA-256 {facts.digest}")
    say(f"takes        {facts.example}")
    say(f"gives        {shape_words(facts.output)} numbers")
    say(f"trained      {facts.trained:,} numbers in {_weights(graph)}")
    say(f"fixed        {facts.fixed:,} numbers")
    say(f"a row costs  {facts.multiply_adds:,} multiply-adds, forward")
    counts = [f"{name} {count}" for name, count in facts.operations.items()]
    if len(counts) > _KINDS:
        counts[_KINDS:] = [f"{len(counts) - _KINDS} more kinds"]
    say(f"operations   {len(graph.nodes)}: {', '.join(counts)}")
    if facts.loss is not None:
        say(f"loss         its own, of {facts.loss} operations")
    to = console()
    to.print(layer_table(to, facts))
    if svg is not None:
        say(f"{svg}: these layers as a picture")
    if not nodes:
        return
    for weight in graph.weights:
        kind = "trained" if weight.trained else "fixed"
        say(f"  {weight.name}  {shape_words(weight.shape)}  {weight.dtype}, {kind}")
    for line in node_lines(graph):
        say(f"  {line}")


def _weights(graph: GraphFile) -> str:
    trained = sum(weight.trained for weight in graph.weights)
    return f"{trained} of {len(graph.weights)} weights"
