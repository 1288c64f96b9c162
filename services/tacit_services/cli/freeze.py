"""`tacit freeze`: writes a network as a graph, which is data."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Annotated, Any

import typer

from tacit.errors import ConfigError
from tacit_services.cli.say import say
from tacit_services.extras import need

_Entry = Annotated[
    str,
    typer.Argument(
        metavar="MODULE:NAME", help="of the current folder, or installed; or cnn, resnet, …"
    ),
]
_Shape = Annotated[str, typer.Option(help="of one example, without a batch: 64, or 3,32,32")]
_Out = Annotated[Path, typer.Option(help="NAME.graph.json; NAME.safetensors beside it")]
_Integers = Annotated[
    int | None, typer.Option(help="an example is whole numbers below this", show_default="floats")
]
_Arguments = Annotated[
    str,
    typer.Option(
        help="what the module is called with: 'width = 64, depth = 2'; of cnn, … its sizes"
    ),
]
_Weights = Annotated[
    str | None,
    typer.Option(
        help="public first values, a safetensors file of the current folder; it may have some",
        show_default="the module's own",
    ),
]
_Front = Annotated[
    bool, typer.Option("--front", help="a front of features: in eval mode, and nothing is trained")
]
_Trainable = Annotated[
    list[str] | None, typer.Option(help="weights that are trained", show_default="all")
]
_Loss = Annotated[
    str | None,
    typer.Option(metavar="MODULE:NAME", help="own loss of one example: (output, y) -> number"),
]
_Classes = Annotated[
    int, typer.Option(help="of y: with --loss, and of cnn, resnet, …; 0: it is a number", min=0)
]
_Tokens = Annotated[
    int,
    typer.Option(
        help="with --loss: y is one of so many tokens at each place of the example, or -100",
        show_default="no tokens",
        min=0,
    ),
]
_Seed = Annotated[int, typer.Option(help="of the first values")]


def freeze(
    entry: _Entry,
    shape: _Shape,
    out: _Out,
    integers: _Integers = None,
    arguments: _Arguments = "",
    front: _Front = False,
    trainable: _Trainable = None,
    loss: _Loss = None,
    classes: _Classes = 0,
    tokens: _Tokens = 0,
    weights: _Weights = None,
    seed: _Seed = 0,
) -> None:
    """Write a network as a graph of operations, for [model] name = "graph", or for features.

    A module's code is run here, once. A reader of the graph runs none of it.
    """
    need("edge")
    from tacit.config.frozen_sections import frozen_front, frozen_model
    from tacit.graphs.graph_values import values_beside
    from tacit.models.graph.frozen_entry import FreezeRequest
    from tacit_services.disk.files import write

    values = out.with_name(values_beside(out.name, "--out"))
    request = FreezeRequest(
        entry, Path(), _shape(shape), integers, _arguments(arguments), seed, loss, classes,
        tokens, tuple(trainable or ("*",)), weights,
    )  # fmt: skip
    network = frozen_front(request) if front else frozen_model(request)
    write(values, network.file, 0o644)
    write(out, network.graph.text().encode(), 0o644)
    trained = sum(weight.trained for weight in network.graph.weights)
    say(
        f"{out}: {len(network.graph.nodes)} operations, {trained} of "
        f"{len(network.graph.weights)} weights are trained; SHA-256 {network.graph.digest()}"
    )
    say(f"{values}: their first values")
    if front:
        say(f'next: [data] features = [{{ front = "{out.name}" }}]; tacit show {out}')
    else:
        say(f'next: [model] name = "graph", file = "{out.name}"; tacit show {out}')


def _shape(text: str) -> tuple[int, ...]:
    try:
        shape = tuple(int(size) for size in text.replace("x", ",").split(","))
    except ValueError as error:
        raise ConfigError(f"--shape {text!r}: expected numbers, as 64 or 3,32,32") from error
    if min(shape) < 1:
        raise ConfigError(f"--shape {text!r}: a size is below 1")
    return shape


def _arguments(text: str) -> dict[str, Any]:
    inside = text.strip().removeprefix("{").removesuffix("}")
    try:
        arguments: dict[str, Any] = tomllib.loads(f"arguments = {{{inside}}}")["arguments"]
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(
            f"--arguments {text!r}: expected name = value, with commas between ({error})"
        ) from error
    return arguments
