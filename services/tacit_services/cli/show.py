"""`tacit show`: what a graph is, for who reviews it."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Annotated

import typer

from tacit_services.cli.say import say
from tacit_services.extras import need


def show(
    file: Annotated[Path, typer.Argument(metavar="NAME.graph.json", help="a frozen network")],
    nodes: Annotated[bool, typer.Option(help="every operation, with its line")] = False,
) -> None:
    """Show a frozen network: its weights, its operations, and what a row costs.

    Nothing of it is run, and its values need not be there.
    """
    need("edge")
    from tacit.models.graph.graph_facts import facts_of, node_lines
    from tacit.models.graph.graph_file import read_graph

    graph = read_graph(file)
    facts = facts_of(graph)
    say(f"{file}: SHA-256 {graph.digest()}")
    say(f"an example   {facts.example}")
    say(f"an output    {list(facts.output)}")
    say(f"trained      {facts.trained:,} numbers in {facts.trained_weights} weights")
    say(f"fixed        {facts.fixed:,} numbers")
    say(f"a row costs  {facts.multiply_adds:,} multiply-adds, forward")
    counts = Counter(node.op.partition(".")[0] for node in graph.nodes)
    words = ", ".join(f"{name} {count}" for name, count in counts.most_common())
    say(f"operations   {len(graph.nodes)}: {words}")
    if graph.loss is not None:
        say(f"loss         its own, of {len(graph.loss.nodes)} operations")
    for weight in graph.weights:
        kind = "trained" if weight.trained else "fixed"
        say(f"  {weight.name}  {list(weight.shape)}  {weight.dtype}, {kind}")
    if nodes:
        for line in node_lines(graph):
            say(f"  {line}")
