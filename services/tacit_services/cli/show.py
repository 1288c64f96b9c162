"""`tacit show`: what a graph is, for who reviews it."""

from __future__ import annotations

import json
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated

import typer

from tacit_services.cli.options import AsJson
from tacit_services.cli.reach import Reach, reaching
from tacit_services.cli.say import say
from tacit_services.extras import need

if TYPE_CHECKING:
    from tacit.graphs.graph_file import GraphFile

_KINDS = 12  # of operations that are named in a line


@reaching
def show(
    file: Annotated[
        Path,
        typer.Argument(
            metavar="NAME.graph.json", help="a frozen network; in a federation, the name of a run"
        ),
    ],
    nodes: Annotated[
        bool, typer.Option(help="every weight, and every operation with its line")
    ] = False,
    svg: Annotated[
        Path | None, typer.Option(metavar="NAME.svg", help="file to draw its layers to")
    ] = None,
    *,
    reach: Reach,
    as_json: AsJson = False,
) -> None:
    """Show a frozen network: its layers, its weights, and what a row costs.

    Nothing of it is run, and its values need not be there.
    """
    need("edge")
    if not reach.names_run(file):
        _show_graph(file, nodes, svg, as_json)
        return
    with TemporaryDirectory(prefix="tacit-") as folder:
        with reach.client() as client:
            offer = client.offer(str(file))
            client.offered_files(str(file), Path(folder))
        model = offer["file"]["model"]
        if model["name"] == "graph":
            _show_graph(Path(folder) / model["file"], nodes, svg, as_json)
        elif as_json:
            typer.echo(json.dumps(model, indent=2))
        else:
            settings = [f"{key} = {value}" for key, value in model.items() if key != "name"]
            say(f"{file}: the model is {model['name']}, one of tacit's own")
            for line in settings:
                say(f"  {line}")


def _show_graph(file: Path, nodes: bool, svg: Path | None, as_json: bool) -> None:
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
