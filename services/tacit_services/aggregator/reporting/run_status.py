"""The status of a run, for REST, page and command line.

Every reading is consistent, made on demand, and never by the driver's thread.
"""

from __future__ import annotations

import json
import math
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Set
from importlib.metadata import version
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar

from tacit.algorithms.base.records import EdgeRecord
from tacit.algorithms.base.server import ServerRole
from tacit.config.definition import Definition
from tacit.errors import ServiceError
from tacit.privacy.report import EdgePrivacy, RunPrivacy
from tacit_services.aggregator.reporting.accounts import Account, Accounts, Total
from tacit_services.aggregator.reporting.moment import Moment, read

_VERSION = version("tacit")
SUMMARY_FORMAT = 1  # raised when a key of summary.json goes or changes its meaning
_NONE: Mapping[str, float] = {}
_ONLINE = ("online", "refusing", "retired")
_ABSENT = ("left", "offline", "refusing")  # no push will come from there, as things stand


class Driver(Protocol):
    """The part of a role's driver that a status reads: `ServerDriver`'s, or a simulation's."""

    run_id: str
    role: ServerRole
    fingerprint: str
    size: int
    lock: threading.Lock
    presence: dict[str, str]
    counts: Counter[str]

    @property
    def state(self) -> str:
        """The state of the run."""

    @property
    def quarantined(self) -> Set[str]:
        """Edges that are heard no more."""

    def why_quarantined(self, edge: str) -> str:
        """Why `edge` is heard no more; "" where it is."""


_D = TypeVar("_D", bound=Driver)


class Link(Protocol):
    """The part of the link to the broker that a status shows."""

    @property
    def up(self) -> bool:
        """Connected now."""

    @property
    def refused(self) -> frozenset[str]:
        """The subscriptions that the broker has refused."""

    @property
    def reconnects(self) -> int:
        """How often the connection has come up again."""


class RunStatus(Generic[_D]):
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
        self._accounts = Accounts(definition.promise)
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

    def broker_refuses(self) -> bool:
        """Whether the broker has refused a subscription, so that edges are not heard."""
        return self._broker is not None and bool(self._broker.refused)

    def reconnects(self) -> int:
        """Connections to the broker after the first."""
        return 0 if self._broker is None else self._broker.reconnects

    def end(self) -> None:
        """Training is over: the duration stands still, and every ε is that of what was released."""
        self._ended, self._accounts.final = time.monotonic(), True

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
        now = self.moment()
        total = self._accounts.total(now.records, steady=True)
        point = {
            "version": version,
            "seconds": round(self.duration, 3),
            "accuracy": _json_number(round(accuracy, 6)),
            "loss": round(loss, 6),
            "samples": samples,
            "metrics": {name: _json_number(round(value, 6)) for name, value in metrics.items()},
            **now.schedule,
            "staleness": round(now.mean_staleness, 3),
            "epsilon": _json_number(total.epsilon),
            **({"bound": True} if total.bound else {}),
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

    def moment(self) -> Moment:
        """The fold now."""
        with self.driver.lock:
            return read(self.driver)

    def total(self) -> Total:
        """Return ε of the run: the largest of any edge, or of vertical parties the composed one.

        Parties hold the same people.
        """
        return self._accounts.total(self.moment().records)

    def epsilon(self) -> float:
        """ε of the run, as `total` has it."""
        return self.total().epsilon

    def summary(self) -> dict[str, Any]:
        """summary.json's keys (see docs/rest.md)."""
        now = self.moment()
        found = self.status(now) | {"privacy": self.privacy(now.records)}
        del found["slowest"]
        return found

    def status(self, now: Moment | None = None) -> dict[str, Any]:
        """summary.json's keys, plus `state`, `edges_online` and `slowest`.

        Of privacy it has the run's total, with `bound` where ε is an upper bound.
        """
        now = now or self.moment()
        seconds, run, driver = self.duration, self.definition, self.driver
        last = self.series[-1] if self.series else {}
        needed = 0 if now.reason else self._needed()
        total = self._accounts.total(now.records)
        return {
            "format": SUMMARY_FORMAT,
            "state": now.state,
            "reason": now.reason,
            "run": driver.run_id,
            "algorithm": run.name,
            "dataset": run.source.name,
            "model": run.model,
            "parameters": driver.size,
            "seed": run.seed,
            "tacit_version": _VERSION,
            "run_file_sha256": driver.fingerprint,
            "edges": len(now.records),
            "edges_online": self.online(),
            **self._refusals(now.records),
            **({"edges_needed": needed} if needed else {}),
            "target": driver.role.horizon,
            "applied": now.version,
            "duplicates": now.counts.get("duplicate", 0),
            "stale": now.stale,
            "rejected": now.rejected,
            "duration_s": round(seconds, 3),
            "updates_per_s": round(now.version / seconds, 2) if seconds else 0.0,
            "test_accuracy": last.get("accuracy"),
            "test_loss": last.get("loss"),
            "metrics": last.get("metrics", {}),
            "model_version": now.version,
            "staleness": now.ages(),
            "stages": int(now.schedule.get("stage", 1)),
            "schedule": now.schedule,
            "slowest": total.slowest and {"id": total.slowest, "releases": total.releases},
            "privacy": self._guarantee(now.records, total),
            **(self.virtual() if self.virtual else {}),
        }

    def online(self) -> int:
        """Edges connected now."""
        states = Counter(list(self.driver.presence.values()))
        return sum(states[state] for state in _ONLINE)

    def refusals(self) -> dict[str, int]:
        """Return how many edges refuse the model now, and how many models edges have refused.

        As far as the edges have said so.
        """
        return self._refusals(self.moment().records)

    def _refusals(self, records: Mapping[str, EdgeRecord]) -> dict[str, int]:
        refusing = list(self.driver.presence.values()).count("refusing")
        refused = sum(record.hello.refusals for record in records.values())
        return {"edges_refusing": refusing, "refusals": refused}

    def edges(self, after: str = "", limit: int | None = None) -> list[dict[str, Any]]:
        """Return one row for each edge that ever sent Hello, with the updates that its ε counts.

        In the order of their names, at most `limit`, from the first one behind `after`.
        """
        records = self.moment().records
        names = sorted(name for name in records if name > after)[:limit]
        accounts = self._accounts.of({name: records[name] for name in names})
        return [self._row(name, account) for name, account in accounts.items()]

    def edge(self, name: str) -> dict[str, Any] | None:
        """Its row; None where it never said Hello."""
        records = self.moment().records
        if name not in records:
            return None
        return self._row(name, self._accounts.of({name: records[name]})[name])

    def _row(self, name: str, account: Account) -> dict[str, Any]:
        record, presence = account.record, self.driver.presence.get(name, "unknown")
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
            "bound": account.bound,
            **account.spent.document(),
        }

    def privacy(self, records: Mapping[str, EdgeRecord] | None = None) -> dict[str, Any]:
        """The run's guarantee, with what each edge has spent; `bound` where an ε is a bound."""
        records = self.moment().records if records is None else records
        accounts = self._accounts.of(dict(sorted(records.items())))
        document = self._of_all({n: account.spent for n, account in accounts.items()}).document()
        bounds = [name for name, account in accounts.items() if account.bound]
        for name in bounds:
            document["edges"][name]["bound"] = True
        return document | ({"bound": True} if bounds else {})

    def _guarantee(self, records: Mapping[str, EdgeRecord], total: Total) -> dict[str, Any]:
        """The run's, without its edges; of vertical parties, who are few, µ needs them all."""
        few = records if self.definition.promise.composition == "sum" else {}
        accounts = self._accounts.of(few)
        document = self._of_all({n: account.spent for n, account in accounts.items()}).document()
        del document["edges"]
        return document | {"epsilon": total.epsilon, "bound": total.bound}

    def _of_all(self, edges: Mapping[str, EdgePrivacy]) -> RunPrivacy:
        return self.definition.promise.total(edges, simulated=self.virtual is not None)


def _json_number(value: float) -> float | None:
    return (
        value if math.isfinite(value) else None
    )  # JSON has no infinity: null means "no guarantee"


def _point(line: str) -> dict[str, Any] | None:
    """A line of metrics.jsonl; None for one that was cut, or is not ours."""
    try:
        point: dict[str, Any] = json.loads(line)
        whole = point["version"] >= 0 and point["seconds"] >= 0
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
    return point if whole else None
