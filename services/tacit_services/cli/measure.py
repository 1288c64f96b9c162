"""`tacit plan measure`: c1 and c2 of DP-PASGD's cost model (8), from two short runs that differ in τ.

Both are whole runs, as `tacit run` makes them: broker, store, aggregator, edges. One more subscriber at the broker
notes when each message of an edge passes, and how long it is. A round costs a device C/R = c1 + c2·τ; with rounds at
two τ that is two equations for two unknowns, for seconds and for bytes alike.
"""

from __future__ import annotations

import io
import itertools
import json
import os
import statistics
import tempfile
import threading
import time
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tacit.errors import ConfigError, ServiceError
from tacit.protocol import topics

if TYPE_CHECKING:
    from tacit.config import RunFile

SHORT, LONG = 1, 20  # τ of the two runs; LONG or the run file's, whichever is more


@dataclass(frozen=True, slots=True)
class Round:
    """What one round at `tau` took of one device: median seconds, mean bytes, over `rounds` rounds of every device."""

    tau: int
    rounds: int
    seconds: float
    bytes: float


@dataclass(frozen=True, slots=True)
class Costs:
    """c1 and c2 of (8) in `unit`."""

    unit: str
    c1: float
    c2: float


class Tap:
    """Listens to everything at a broker, and keeps when each message of an edge passed and how long it was."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._heard: dict[str, list[tuple[float, bool, int]]] = {}

    @contextmanager
    def listening(self, broker: str) -> Iterator[None]:
        """Subscribed to everything at `broker` (HOST:PORT)."""
        from tacit_services.transport.mqtt import Connection, Inbound

        def hear(message: Inbound) -> None:
            levels = message.topic.split("/")
            if len(levels) > 4 and levels[3] in ("up", "down"):
                begins = levels[3:4] + levels[5:7] == ["down", "model", "0"]
                with self._lock:
                    size = len(message.topic) + len(message.payload)
                    self._heard.setdefault(levels[4], []).append((time.monotonic(), begins, size))
            message.done()

        connection = Connection(broker, "tacit-measure", [topics.everything()], hear)
        connection.start(timeout=30.0)
        try:
            yield
        finally:
            connection.stop()

    def round(self, tau: int) -> Round:
        """From the first to the last model that each edge was sent. Raises ServiceError when there was no round."""
        with self._lock:
            heard = [list(messages) for messages in self._heard.values()]
        seconds, sizes = [], []
        for messages in heard:
            begun = [i for i, (_, begins, _) in enumerate(messages) if begins]
            for first, last in itertools.pairwise(begun):
                seconds.append(messages[last][0] - messages[first][0])
                sizes.append(sum(size for _, _, size in messages[first:last]))
        if not seconds:
            raise ServiceError("measure: the run ended without a whole round")
        return Round(tau, len(seconds) // len(heard), statistics.median(seconds), statistics.fmean(sizes))


def measure(
    file: Annotated[Path, typer.Argument(help="run file (TOML) of dp-pasgd", show_default=False)],
    edges: Annotated[int, typer.Option(min=1, help="devices that take part; no more than processors")] = 2,
    rounds: Annotated[int, typer.Option(min=3, max=10_000, help="of each of the two runs")] = 20,
    watts: Annotated[float | None, typer.Option(help="what a device draws at work: c1 and c2 in joules, too")] = None,
    data: Annotated[Path | None, typer.Option(envvar="TACIT_DATA", help="folder of the data")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="print JSON")] = False,
) -> None:
    """Measure c1 and c2, for tacit plan dp-pasgd, with two short runs on this machine."""
    if watts is not None and not 0 < watts < 1e9:
        raise ConfigError(f"--watts {watts}: expected a number above 0")
    if os.environ.get("TACIT_LEDGER"):
        raise ConfigError(f"TACIT_LEDGER={os.environ['TACIT_LEDGER']}: measuring would be paid from it; unset it")
    from tacit import config
    from tacit.config.algorithms import DpPasgd

    run = config.load(file, edges=edges)
    if not isinstance(run.algorithm, DpPasgd):
        raise ConfigError(f"{file}: algorithm.name={run.algorithm.name!r}: expected dp-pasgd")
    periods = (SHORT, max(LONG, run.algorithm.tau))
    _affordable(file, run, rounds * periods[1])
    measured = [one_run(file, tau, rounds, edges, data) for tau in periods]
    _show(measured, solve(measured, watts), as_json)


def solve(measured: list[Round], watts: float | None) -> list[Costs]:
    """C/R = c1 + c2·τ at two τ, solved for c1 and c2; a negative one is noise around 0. Joules: watts times seconds."""
    short, long = measured

    def of(unit: str, at_short: float, at_long: float) -> Costs:
        c2 = max(0.0, (at_long - at_short) / (long.tau - short.tau))
        return Costs(unit, max(0.0, at_short - c2 * short.tau), c2)

    found = [of("seconds", short.seconds, long.seconds), of("bytes", short.bytes, long.bytes)]
    return found if watts is None else [*found, of("joules", watts * short.seconds, watts * long.seconds)]


def _affordable(file: Path, run: RunFile, steps: int) -> None:
    left = run.plan(0).pushes_left(())
    if left is not None and left < steps:
        raise ConfigError(
            f"{file}: privacy.epsilon={run.privacy.epsilon}: pays for {left} steps of a device, measuring takes "
            f"{steps}; fewer --rounds, or more noise"
        )


def one_run(file: Path, tau: int, rounds: int, edges: int, data: Path | None) -> Round:
    """One run of `rounds` rounds at `tau`, with nothing evaluated meanwhile."""
    from tacit_services.testbed import local_run

    content = tomllib.loads(file.read_text(encoding="utf-8"))
    content["run"]["updates"] = rounds
    content["algorithm"]["tau"] = tau
    content.setdefault("evaluation", {}).update(every=rounds + 1, samples=1)
    tap = Tap()
    with tempfile.TemporaryDirectory(prefix="tacit-measure-") as folder, redirect_stdout(io.StringIO()):
        changed = Path(folder) / file.name
        changed.write_text(as_toml(content), encoding="utf-8")
        code = local_run.run(
            changed, edges=edges, out=Path(folder) / "out", serve=None, seed=None, data=data, as_json=False,
            listening=tap.listening,
        )  # fmt: skip
    if code:
        raise typer.Exit(code)
    return tap.round(tau)


def as_toml(content: dict[str, Any], name: str = "") -> str:
    """A run file of tables with plain values: JSON's numbers, strings, booleans and lists are TOML's."""
    plain = [f"{key} = {json.dumps(value)}" for key, value in content.items() if not isinstance(value, dict)]
    inner = ((f"{name}.{key}" if name else key, value) for key, value in content.items() if isinstance(value, dict))
    return "\n".join([*([f"[{name}]"] if name else []), *plain, "", *(as_toml(value, key) for key, value in inner)])


def _show(measured: list[Round], found: list[Costs], as_json: bool) -> None:
    if as_json:
        content: dict[str, Any] = {each.unit: {"c1": each.c1, "c2": each.c2} for each in found}
        typer.echo(json.dumps(content | {"runs": [asdict(each) for each in measured]}, indent=2))
        return
    for each in measured:
        typer.echo(
            f"tau = {each.tau}: a round took {each.seconds:.4g} s (median of {each.rounds}) and {each.bytes:.0f} bytes"
        )
    for cost in found:
        typer.echo(f"{cost.unit}: --c1 {cost.c1:.6g} --c2 {cost.c2:.6g}")
