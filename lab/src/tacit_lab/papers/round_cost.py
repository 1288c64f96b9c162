"""Measures what a round of DP-PASGD costs, with runs that are watched at their broker."""

from __future__ import annotations

import io
import itertools
import json
import statistics
import tempfile
import threading
import time
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tacit_services.launch import INTERRUPTED
from tacit_services.testbed import local_run
from tacit_services.transport.mqtt import Connection, Inbound

from tacit.errors import ServiceError
from tacit.protocol import topics


@dataclass(frozen=True, slots=True)
class RoundCost:
    """The cost to one device of a round with period `tau`: median seconds, and mean bytes.

    Both are over `rounds` rounds of every device.
    """

    tau: int
    rounds: int
    seconds: float
    bytes: float


@dataclass(frozen=True, slots=True)
class CostCoefficients:
    """c1 and c2 of the cost model, equation (8) of arXiv:2003.12705, in `unit`."""

    unit: str
    c1: float
    c2: float


class BrokerTap:
    """A subscriber of everything at a broker that notes time and size of edges' messages."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._heard: dict[str, list[tuple[float, bool, int]]] = {}

    @contextmanager
    def listening(self, broker: str) -> Iterator[None]:
        """Be subscribed to everything at `broker` (HOST:PORT) until the end of the block."""

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

    def round(self, tau: int) -> RoundCost:
        """Return the cost of a round, from the first to the last model that each edge was sent.

        Raises ServiceError when there was no whole round.
        """
        with self._lock:
            heard = [list(messages) for messages in self._heard.values()]
        seconds = []
        sizes = []
        for messages in heard:
            begun = [i for i, (_, begins, _) in enumerate(messages) if begins]
            for first, last in itertools.pairwise(begun):
                seconds.append(messages[last][0] - messages[first][0])
                sizes.append(sum(size for _, _, size in messages[first:last]))
        if not seconds:
            raise ServiceError("measure: the run ended without a whole round")
        return RoundCost(
            tau, len(seconds) // len(heard), statistics.median(seconds), statistics.fmean(sizes)
        )


def solve(measured: list[RoundCost], watts: float | None) -> list[CostCoefficients]:
    """Return c1 and c2 from C/R = c1 + c2·τ, measured at two τ; with `watts` in joules, too.

    A negative coefficient is noise around 0, and becomes 0.
    """
    short, long = measured

    def of(unit: str, at_short: float, at_long: float) -> CostCoefficients:
        c2 = max(0.0, (at_long - at_short) / (long.tau - short.tau))
        return CostCoefficients(unit, max(0.0, at_short - c2 * short.tau), c2)

    costs = [of("seconds", short.seconds, long.seconds), of("bytes", short.bytes, long.bytes)]
    if watts is None:
        return costs
    return [*costs, of("joules", watts * short.seconds, watts * long.seconds)]


def one_run(file: Path, tau: int, rounds: int, edges: int, data: Path | None) -> RoundCost:
    """Measure one run of `rounds` rounds with period `tau`, with nothing evaluated meanwhile."""
    content = tomllib.loads(file.read_text(encoding="utf-8"))
    content["run"]["updates"] = rounds
    content["algorithm"]["tau"] = tau
    content.setdefault("evaluation", {}).update(every=rounds + 1, samples=1)
    tap = BrokerTap()
    with (
        tempfile.TemporaryDirectory(prefix="tacit-measure-") as folder,
        redirect_stdout(io.StringIO()),
    ):
        changed = Path(folder) / file.name
        changed.write_text(as_toml(content), encoding="utf-8")
        code = local_run.run(
            changed,
            edges=edges,
            out=Path(folder) / "out",
            serve=None,
            seed=None,
            data=data,
            as_json=False,
            listening=tap.listening,
        )
    if code == INTERRUPTED:
        raise KeyboardInterrupt
    if code:
        raise ServiceError(f"measure: the run at tau={tau} ended with {code}")
    return tap.round(tau)


def as_toml(content: dict[str, Any], name: str = "") -> str:
    """Return a run file of tables, with values of JSON and lists of them."""
    plain = [
        f"{key} = {_value(value)}" for key, value in content.items() if not isinstance(value, dict)
    ]
    inner = (
        (f"{name}.{key}" if name else key, value)
        for key, value in content.items()
        if isinstance(value, dict)
    )
    return "\n".join(
        [
            *([f"[{name}]"] if name else []),
            *plain,
            "",
            *(as_toml(value, key) for key, value in inner),
        ]
    )


def _value(value: Any) -> str:
    """Return a value as JSON, which is TOML, too; a table in a list is on one line."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key} = {_value(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_value, value)) + "]"
    return json.dumps(value)
