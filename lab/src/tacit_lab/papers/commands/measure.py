"""`tacit plan measure`: c1 and c2 of DP-PASGD's cost model, from two short runs.

The cost model is equation (8) of arXiv:2003.12705: a round costs a device C/R = c1 + c2·τ. The runs
differ in τ, which makes two equations for the two unknowns, in seconds as well as in bytes. Both
are whole runs, as `tacit run` makes them. One more subscriber at the broker notes when each message
of an edge passes, and how long it is.
"""

from __future__ import annotations

import json
import os
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tacit.errors import ConfigError

if TYPE_CHECKING:
    from tacit.config import RunFile
    from tacit_lab.papers.round_cost import CostCoefficients, RoundCost

# τ of the two runs; LONG or the run file's, whichever is more
SHORT = 1
LONG = 20


def measure(
    file: Annotated[Path, typer.Argument(help="run file (TOML) of dp-pasgd", show_default=False)],
    edges: Annotated[
        int, typer.Option(min=1, help="devices that take part; no more than processors")
    ] = 2,
    rounds: Annotated[int, typer.Option(min=3, max=10_000, help="of each of the two runs")] = 20,
    watts: Annotated[
        float | None, typer.Option(help="what a device draws at work: c1 and c2 in joules, too")
    ] = None,
    data: Annotated[
        Path | None, typer.Option(envvar="TACIT_DATA", help="folder of the data")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="print JSON")] = False,
) -> None:
    """Measure c1 and c2, for tacit plan dp-pasgd, with two short runs on this machine."""
    if watts is not None and not 0 < watts < 1e9:
        raise ConfigError(f"--watts {watts}: expected a number above 0")
    if os.environ.get("TACIT_LEDGER"):
        raise ConfigError(
            f"TACIT_LEDGER={os.environ['TACIT_LEDGER']}: measuring would be paid from it; unset it"
        )
    from tacit import config
    from tacit_lab.papers.round_cost import one_run, solve

    run = config.load(file, edges=edges)
    if run.algorithm.name != "dp-pasgd":
        raise ConfigError(f"{file}: algorithm.name={run.algorithm.name!r}: expected dp-pasgd")
    periods = (SHORT, max(LONG, run.algorithm.traits(run.edges.count).steps))
    _affordable(file, run, rounds * periods[1])
    measured = [one_run(file, tau, rounds, edges, data) for tau in periods]
    _show(measured, solve(measured, watts), as_json)


def _affordable(file: Path, run: RunFile, steps: int) -> None:
    remaining = run.plan(0).pushes_left(())
    if remaining is not None and remaining < steps:
        raise ConfigError(
            f"{file}: privacy.epsilon={run.privacy.epsilon}: pays for {remaining} steps of a "
            f"device, measuring takes {steps}; fewer --rounds, or more noise"
        )


def _show(measured: list[RoundCost], costs: list[CostCoefficients], as_json: bool) -> None:
    if as_json:
        content: dict[str, Any] = {each.unit: {"c1": each.c1, "c2": each.c2} for each in costs}
        typer.echo(json.dumps(content | {"runs": [asdict(each) for each in measured]}, indent=2))
        return
    for each in measured:
        typer.echo(
            f"tau = {each.tau}: a round took {each.seconds:.4g} s (median of {each.rounds}) and "
            f"{each.bytes:.0f} bytes"
        )
    for cost in costs:
        typer.echo(f"{cost.unit}: --c1 {cost.c1:.6g} --c2 {cost.c2:.6g}")
