"""`tacit freeze`: writes a module of torch as a graph, which is data."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Annotated, Any

import typer

from tacit.errors import ConfigError
from tacit_services.cli.say import say
from tacit_services.extras import need


def freeze(
    entry: Annotated[
        str, typer.Argument(metavar="MODULE:NAME", help="of the current folder, or installed")
    ],
    shape: Annotated[str, typer.Option(help="of one example, without a batch: 64, or 3,32,32")],
    out: Annotated[Path, typer.Option(help="NAME.graph.json; NAME.safetensors beside it")],
    integers: Annotated[
        int | None,
        typer.Option(help="an example is whole numbers below this", show_default="floats"),
    ] = None,
    arguments: Annotated[
        str, typer.Option(help="what the module is called with: 'width = 64, depth = 2'")
    ] = "",
    trainable: Annotated[
        list[str] | None, typer.Option(help="weights that are trained", show_default="all")
    ] = None,
    loss: Annotated[
        str | None,
        typer.Option(metavar="MODULE:NAME", help="own loss of one example: (output, y) -> number"),
    ] = None,
    classes: Annotated[
        int, typer.Option(help="with --loss: classes of y; 0: it is a number", min=0)
    ] = 0,
    tokens: Annotated[
        int,
        typer.Option(
            help="with --loss: y is one of so many tokens at each place of the example, or -100",
            show_default="no tokens",
            min=0,
        ),
    ] = 0,
    weights: Annotated[
        str | None,
        typer.Option(
            help="public first values, a safetensors file of the current folder; it may have some",
            show_default="the module's own",
        ),
    ] = None,
    seed: Annotated[int, typer.Option(help="of the first values")] = 0,
) -> None:
    """Write a module of torch as a graph of operations, for [model] name = "graph".

    The module's code is run here, once. A reader of the graph runs none of it.
    """
    need("edge")
    from tacit.models.graph.frozen_entry import FreezeRequest, frozen_entry
    from tacit_services.disk.files import write

    if not out.name.endswith(".graph.json"):
        raise ConfigError(f"--out {out}: expected NAME.graph.json")
    request = FreezeRequest(
        entry, Path(), _shape(shape), integers, _arguments(arguments), seed, loss, classes,
        tokens, tuple(trainable or ("*",)), weights,
    )  # fmt: skip
    network = frozen_entry(request)
    values = out.with_name(out.name.removesuffix(".graph.json") + ".safetensors")
    write(values, network.file, 0o644)
    write(out, network.graph.text().encode(), 0o644)
    trained = sum(weight.trained for weight in network.graph.weights)
    say(
        f"{out}: {len(network.graph.nodes)} operations, {trained} of "
        f"{len(network.graph.weights)} weights are trained; SHA-256 {network.graph.digest()}"
    )
    say(f"{values}: their first values")
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
