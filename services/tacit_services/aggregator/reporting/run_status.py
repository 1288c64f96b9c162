"""The status of a run, for everybody outside.

Every reading is consistent, made on demand, and never by the driver's thread.
"""

from __future__ import annotations

import json
import math
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Set
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar

from tacit.algorithms.base.records import EdgeRecord
from tacit.algorithms.base.server import ServerRole
from tacit.config.definition import Definition
from tacit.errors import ServiceError
from tacit.privacy.accounting import History
from tacit.privacy.report import EdgePrivacy
from tacit_services.aggregator.reporting.bounds import ROUGHER, ahead

_VERSION = version("tacit")
SUMMARY_FORMAT = 1  # raised when a key of summary.json goes or changes its meaning; 0.1 wrote none
_NONE: Mapping[str, float] = {}
_ONLINE = ("online", "refusing", "retired")
_ABSENT = ("left", "offline", "refusing")  # no push will come from there, as things stand


class Driver(Protocol):
    """What is asked of whoever drives the role: `ServerDriver`, or a simulation."""

    run_id: str
    role: ServerRole
    fingerprint: str
    size: int
    lock: threading.Lock
    presence: dict[str, str]
    counts: Counter[str]

    @property
    def state(self) -> str:
        """How the run stands."""

    @property
    def quarantined(self) -> Set[str]:
        """Edges that are heard no more."""

    def why_quarantined(self, edge: str) -> str:
        """Why `edge` is heard no more; "" where it is."""


_D = TypeVar("_D", bound=Driver)


class Link(Protocol):
    """What is shown of the way to the broker."""

    @property
    def up(self) -> bool:
        """Connected now."""

    @property
    def reconnects(self) -> int:
        """How often a connection came up again."""


class Observer(Generic[_D]):
    """Reads the fold under the driver's lock; keeps the series of evaluations."""

    def __init__(
        self,
        definition: Definition[Any],
        driver: _D,
        metrics: Path,
        *,
        broker: Link | None = None,
        needed: Callable[[], int] = lambda: 0,
        virtual: Callable[[], dict[str, float]] | None = None,
    ) -> None:
        """`metrics`: the JSON-lines file of the series; what it holds already (a resumed run) is
        kept.

        `needed`: edges that the run waits for before it begins. `virtual`: of a simulation, its
        clock, as keys to be shown; it has no `broker`.
        """
        self.definition, self.driver, self.virtual = definition, driver, virtual
        self._broker, self._needed = broker, needed
        self._metrics = metrics
        self.series: list[dict[str, Any]] = []
        self._accounting = threading.Lock()  # one PLD composition at a time
        self._rows: dict[str, tuple[EdgeRecord, EdgePrivacy]] = {}
        self._before = self._version_at_start = 0.0
        self._started = self._ended = 0.0

    def resumed(self) -> None:
        """Go on with the series of evaluations of the process before this one.

        To be called when the driver has recovered. Raises ServiceError where it cannot be written.
        """
        self._version_at_start = self.driver.role.version
        if self._version_at_start and self._metrics.exists():
            lines = self._metrics.read_text(encoding="utf-8", errors="replace").splitlines()
            points = (point for line in lines if (point := _point(line)) is not None)
            self.series = [point for point in points if point["version"] <= self._version_at_start]
            self._before = self.series[-1]["seconds"] if self.series else 0.0
        # Written anew: a line that was cut by a full disk or a kill must not have the next one
        # glued to it.
        try:
            self._metrics.write_text(
                "".join(json.dumps(point) + "\n" for point in self.series), encoding="utf-8"
            )
        except OSError as error:
            raise ServiceError(f"results in {self._metrics}: {error.strerror or error}") from error

    def broker_up(self) -> bool:
        """Whether the broker can be reached now."""
        return self._broker is not None and self._broker.up

    def reconnects(self) -> int:
        """Connections to the broker after the first."""
        return 0 if self._broker is None else self._broker.reconnects

    def end(self) -> None:
        """Training is over: the duration stands still."""
        self._ended = time.monotonic()

    def tick(self) -> None:
        """Called by the driver thread between batches: the clock starts with the first update."""
        if not self._started and self.driver.role.version > self._version_at_start:
            self._started = time.monotonic()

    @property
    def duration(self) -> float:
        """Seconds from the first update that this run accepted, over restarts.

        What lies between the last point and a restart is lost.
        """
        if not self._started:
            return self._before
        return self._before + (self._ended or time.monotonic()) - self._started

    def point(
        self,
        version: int,
        accuracy: float,
        loss: float,
        samples: int,
        metrics: Mapping[str, float] = _NONE,
    ) -> None:
        """Add one evaluation to the series and to metrics.jsonl."""
        role = self.driver.role
        with self.driver.lock:
            staleness, schedule = list(role.recent), role.schedule()
        point = {
            "version": version,
            "seconds": round(self.duration, 3),
            "accuracy": _json_number(round(accuracy, 6)),
            "loss": round(loss, 6),
            "samples": samples,
            "metrics": {name: _json_number(round(value, 6)) for name, value in metrics.items()},
            **schedule,
            "staleness": round(sum(staleness) / len(staleness), 3) if staleness else 0.0,
            "epsilon": _json_number(self.epsilon()),
            "edges_online": self.online(),
            **(self.virtual() if self.virtual else {}),
        }
        self.series.append(point)
        with self._metrics.open("a", encoding="utf-8") as file:
            file.write(json.dumps(point) + "\n")

    def only_retired(self) -> bool:
        """Whether nobody is left who could push.

        That is so when every edge ever heard has spent its budget or is gone, and one has spent it.
        """
        presence = dict(self.driver.presence)
        with self.driver.lock:
            records = dict(self.driver.role.edges)
        spent = [name for name, record in records.items() if record.retired]
        newcomers = [
            name for name, state in presence.items() if state == "online" and name not in records
        ]
        able = [
            name
            for name in records
            if name not in spent and presence.get(name, "offline") not in _ABSENT
        ]
        return bool(spent) and not able and not newcomers

    def epsilon(self) -> float:
        """The largest ε (PLD) of any edge.

        Of vertical parties, which hold the same people, theirs composed.
        """
        return self.definition.promise.epsilon(spent for _, spent in self._accounted().values())

    def status(self) -> dict[str, Any]:
        """summary.json's keys, plus `state` and `edges_online` (see docs/rest.md)."""
        role, driver, last = self.driver.role, self.driver, self.series[-1] if self.series else {}
        with driver.lock:
            staleness, version, schedule = dict(role.staleness), role.version, role.schedule()
            stale, tau_max, state, reason = role.stale, role.tau_max, driver.state, role.halted
        seconds, run, needed = self.duration, self.definition, 0 if reason else self._needed()
        return {
            "format": SUMMARY_FORMAT,
            "state": state,
            "reason": reason,
            "run": driver.run_id,
            "algorithm": run.name,
            "dataset": run.source.name,
            "model": run.model,
            "parameters": driver.size,
            "seed": run.seed,
            "tacit_version": _VERSION,
            "run_file_sha256": driver.fingerprint,
            "edges": len(role.edges),
            "edges_online": self.online(),
            **self.refusals(),
            **({"edges_needed": needed} if needed else {}),
            "target": role.horizon,
            "applied": version,
            "duplicates": driver.counts["duplicate"],
            "stale": stale,
            "rejected": sum(
                n for reason, n in dict(driver.counts).items() if reason.startswith("rejected:")
            ),
            "duration_s": round(seconds, 3),
            "updates_per_s": round(version / seconds, 2) if seconds else 0.0,
            "test_accuracy": last.get("accuracy"),
            "test_loss": last.get("loss"),
            "metrics": last.get("metrics", {}),
            "model_version": version,
            "staleness": {**_staleness(staleness), "tau_max": tau_max},
            "stages": int(schedule.get("stage", 1)),
            "schedule": schedule,
            "privacy": self.privacy(),
            **(self.virtual() if self.virtual else {}),
        }

    def online(self) -> int:
        """Edges connected now."""
        return sum(state in _ONLINE for state in list(self.driver.presence.values()))

    def refusals(self) -> dict[str, int]:
        """How many edges refuse the model now, and how many models edges have refused.

        As far as the edges have said so.
        """
        with self.driver.lock:
            records = list(self.driver.role.edges.values())
        refusing = sum(state == "refusing" for state in list(self.driver.presence.values()))
        return {
            "edges_refusing": refusing,
            "refusals": sum(record.hello.refusals for record in records),
        }

    def edges(self) -> list[dict[str, Any]]:
        """One row per edge that ever said Hello; its updates are those that its ε counts."""
        return [
            self._edge(name, record, spent) for name, (record, spent) in self._accounted().items()
        ]

    def _edge(self, name: str, record: EdgeRecord, spent: EdgePrivacy) -> dict[str, Any]:
        presence = self.driver.presence.get(name, "unknown")
        quarantined = name in self.driver.quarantined
        state = "retired" if record.retired else "quarantined" if quarantined else presence
        return {
            "id": name,
            "state": state,
            "updates": record.updates,
            "retired": record.retired,
            "refusals": record.hello.refusals,
            "refusal": record.hello.refusal,
            "quarantine": self.driver.why_quarantined(name),
            "bound": not self._ended,
            **spent.document(),
        }

    def _spent(self, name: str, record: EdgeRecord) -> EdgePrivacy:
        """What `name` has spent; exact at the end, or where a rougher bound is above the budget."""
        for bits in () if self._ended else ROUGHER:
            spent = self._bounded(name, record, ahead(record.spent, bits))
            if spent.within_budget:
                return spent
        return self._bounded(name, record, record.spent)

    def _bounded(self, name: str, record: EdgeRecord, at_most: History) -> EdgePrivacy:
        return self.definition.promise.spent(name, record.spent, record.charged, at_most)

    def _accounted(self) -> dict[str, tuple[EdgeRecord, EdgePrivacy]]:
        """Every edge's record, and ε of what it has spent.

        Exact once training is over; before that an upper bound (`ahead`), above an edge's budget
        only where the edge has itself spent more.
        """
        # While another thread is at it, what was last found will do: requests must not queue up
        # behind one.
        if self._rows and not self._ended and self._accounting.locked():
            return self._rows
        with self._accounting:
            with self.driver.lock:
                records = [
                    (name, replace(record))
                    for name, record in sorted(self.driver.role.edges.items())
                ]
            self._rows = {name: (record, self._spent(name, record)) for name, record in records}
            return self._rows

    def privacy(self) -> dict[str, Any]:
        """The run's guarantee, with what each edge has spent."""
        edges = {name: spent for name, (_, spent) in self._accounted().items()}
        return self.definition.promise.total(edges, simulated=self.virtual is not None).document()


def _json_number(value: float) -> float | None:
    return (
        value if math.isfinite(value) else None
    )  # JSON has no infinity: null means "no guarantee"


def _staleness(histogram: dict[int, int]) -> dict[str, float | int]:
    total = sum(histogram.values())
    if not total:
        return {"mean": 0.0, "p95": 0, "max": 0}
    seen, p95 = 0, 0
    for tau in sorted(histogram):
        seen += histogram[tau]
        p95 = tau
        if seen >= 0.95 * total:
            break
    mean = sum(tau * count for tau, count in histogram.items()) / total
    return {"mean": round(mean, 3), "p95": p95, "max": max(histogram)}


def _point(line: str) -> dict[str, Any] | None:
    """A line of metrics.jsonl; None for one that was cut, or is not ours."""
    try:
        point: dict[str, Any] = json.loads(line)
        whole = point["version"] >= 0 and point["seconds"] >= 0
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
    return point if whole else None
