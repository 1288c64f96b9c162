"""What the outside sees of a run: one consistent view, made on demand, never by the driver thread."""

from __future__ import annotations

import json
import math
import threading
import time
from collections import Counter
from collections.abc import Callable, Set
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar

from tacit.algorithms.base.records import EdgeRecord
from tacit.algorithms.base.server import ServerRole
from tacit.algorithms.vafl import vertical_settings
from tacit.config import RunFile
from tacit.config.algorithms import Vafl
from tacit.errors import ServiceError
from tacit.privacy import gdp
from tacit.privacy.accounting import History, epsilon_pld, epsilon_rdp

_VERSION = version("tacit")
SUMMARY_FORMAT = 1  # raised when a key of summary.json goes or changes its meaning; 0.1 wrote none
_ONLINE = ("online", "refusing", "retired")
_ABSENT = ("left", "offline", "refusing")  # no push will come from there, as things stand
_GUARANTEE: dict[str, dict[str, Any]] = {
    "edge": {
        "guarantee": "(epsilon, delta)-DP per record, at each edge, against everyone else", "unit": "record",
        "adjacency": "add-or-remove-one", "noise_at": "edge", "trusted": "nobody but the edge itself",
    },
    "server": {
        "guarantee": "(epsilon, delta)-DP per edge, against everyone who sees models, not against the aggregator",
        "unit": "edge", "adjacency": "replace-an-edges-updates-by-zero", "noise_at": "server",
        "trusted": "the aggregator, and whoever can read what it receives (the broker)",
    },
    "vertical": {
        "guarantee": "(epsilon, delta)-DP of a record's features at one party, mu-GDP, against server and other "
        "parties; epsilon and mu of the run: of a person at all parties together", "unit": "record's features",
        "adjacency": "replace-one", "noise_at": "edge", "trusted": "nobody but each party itself, with its features",
    },
}  # fmt: skip
_NONE = {"guarantee": "none", "trusted": "everybody who sees an update or a model"}
_SIMULATED = {
    "simulated": True, "trusted": "everybody: the noise of a simulation comes from a seed",
    "guarantee": "none here; epsilon is what the same releases would cost with secret noise",
}  # fmt: skip


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


_D = TypeVar("_D", bound=Driver)


class Observer(Generic[_D]):
    """Reads the fold under the driver's lock; keeps the series of evaluations."""

    def __init__(self, run: RunFile, driver: _D, metrics: Path) -> None:
        """`metrics`: the JSON-lines file of the series; what it holds already (a resumed run) is kept."""
        self.run, self.driver = run, driver
        self._vertical = isinstance(run.algorithm, Vafl)
        self._labels_epsilon = run.algorithm.label_epsilon if isinstance(run.algorithm, Vafl) else None
        self._clip, self._mechanism = _stated(run)
        self._place = "vertical" if self._vertical else run.privacy.noise_at
        self.broker_up: Callable[[], bool] = lambda: False
        self.reconnects: Callable[[], int] = lambda: 0
        self.needed: Callable[[], int] = lambda: 0  # edges that the run waits for before it begins
        self.virtual: Callable[[], dict[str, float]] | None = None  # of a simulation: its clock, as keys to be shown
        self._metrics = metrics
        self.series: list[dict[str, Any]] = []
        self._accounting = threading.Lock()  # one PLD composition at a time
        self._rows: dict[str, tuple[EdgeRecord, dict[str, Any]]] = {}
        self._before = self._version_at_start = 0.0
        self._started = self._ended = 0.0

    def resumed(self) -> None:
        """The driver has recovered: read the series of the earlier process, and count on from there."""
        self._version_at_start = self.driver.role.version
        if self._version_at_start and self._metrics.exists():
            lines = self._metrics.read_text(encoding="utf-8", errors="replace").splitlines()
            points = (point for line in lines if (point := _point(line)) is not None)
            self.series = [point for point in points if point["version"] <= self._version_at_start]
            self._before = self.series[-1]["seconds"] if self.series else 0.0
        # Written anew: a line that was cut by a full disk or a kill must not have the next one glued to it.
        try:
            self._metrics.write_text("".join(json.dumps(point) + "\n" for point in self.series), encoding="utf-8")
        except OSError as error:
            raise ServiceError(f"results in {self._metrics}: {error.strerror or error}") from error

    def end(self) -> None:
        """Training is over: the duration stands still."""
        self._ended = time.monotonic()

    def tick(self) -> None:
        """Called by the driver thread between batches: the clock starts with the first update."""
        if not self._started and self.driver.role.version > self._version_at_start:
            self._started = time.monotonic()

    @property
    def duration(self) -> float:
        """Seconds from the first update that this run accepted, over restarts (those between points are lost)."""
        if not self._started:
            return self._before
        return self._before + (self._ended or time.monotonic()) - self._started

    def point(self, version: int, accuracy: float, loss: float, samples: int) -> None:
        """Add one evaluation to the series and to metrics.jsonl."""
        role = self.driver.role
        with self.driver.lock:
            staleness, schedule = list(role.recent), role.schedule()
        point = {
            "version": version, "seconds": round(self.duration, 3), "accuracy": round(accuracy, 6),
            "loss": round(loss, 6), "samples": samples, **schedule,
            "staleness": round(sum(staleness) / len(staleness), 3) if staleness else 0.0,
            "epsilon": _json_number(self.epsilon()), "edges_online": self.online(),
            **(self.virtual() if self.virtual else {}),
        }  # fmt: skip
        self.series.append(point)
        with self._metrics.open("a", encoding="utf-8") as file:
            file.write(json.dumps(point) + "\n")

    def only_retired(self) -> bool:
        """Nobody is left who could push: every edge ever heard has spent its budget or is gone, and one has spent."""
        presence = dict(self.driver.presence)
        with self.driver.lock:
            records = dict(self.driver.role.edges)
        spent = [name for name, record in records.items() if record.retired]
        newcomers = [name for name, state in presence.items() if state == "online" and name not in records]
        able = [name for name in records if name not in spent and presence.get(name, "offline") not in _ABSENT]
        return bool(spent) and not able and not newcomers

    def epsilon(self) -> float:
        """The largest ε (PLD) of any edge; of vertical parties, which hold the same people, theirs together."""
        return self._largest(self._privacy_edges())

    def _largest(self, edges: dict[str, dict[str, Any]]) -> float:
        if self._vertical:
            return gdp.epsilon(gdp.compose(edge["mu"] for edge in edges.values()), self.run.privacy.delta)
        return max((edge["epsilon_pld"] for edge in edges.values()), default=0.0)

    def status(self) -> dict[str, Any]:
        """summary.json's keys, plus `state` and `edges_online` (see docs/rest.md)."""
        role, driver, last = self.driver.role, self.driver, self.series[-1] if self.series else {}
        with driver.lock:
            staleness, version, schedule = dict(role.staleness), role.version, role.schedule()
            stale, tau_max, state, reason = role.stale, role.tau_max, driver.state, role.halted
        seconds, needed = self.duration, 0 if reason else self.needed()
        return {
            "format": SUMMARY_FORMAT, "state": state, "reason": reason, "run": driver.run_id,
            "algorithm": self.run.algorithm.name, "dataset": self.run.data.dataset, "model": self.run.model.name,
            "parameters": driver.size, "seed": self.run.run.seed,
            "tacit_version": _VERSION, "run_file_sha256": driver.fingerprint,
            "edges": len(role.edges), "edges_online": self.online(), **self.refusals(),
            **({"edges_needed": needed} if needed else {}),
            "target": role.horizon, "applied": version,
            "duplicates": driver.counts["duplicate"], "stale": stale,
            "rejected": sum(n for reason, n in dict(driver.counts).items() if reason.startswith("rejected:")),
            "duration_s": round(seconds, 3), "updates_per_s": round(version / seconds, 2) if seconds else 0.0,
            "test_accuracy": last.get("accuracy"), "test_loss": last.get("loss"), "model_version": version,
            "staleness": {**_staleness(staleness), "tau_max": tau_max}, "stages": int(schedule.get("stage", 1)),
            "schedule": schedule, "privacy": self.privacy(), **(self.virtual() if self.virtual else {}),
        }  # fmt: skip

    def online(self) -> int:
        """Edges connected now."""
        return sum(state in _ONLINE for state in list(self.driver.presence.values()))

    def refusals(self) -> dict[str, int]:
        """Edges whose policy refuses the model now, and how many models edges have refused, as far as they said."""
        with self.driver.lock:
            records = list(self.driver.role.edges.values())
        refusing = sum(state == "refusing" for state in list(self.driver.presence.values()))
        return {"edges_refusing": refusing, "refusals": sum(record.hello.refusals for record in records)}

    def edges(self) -> list[dict[str, Any]]:
        """One row per edge that ever said Hello; its updates are those that its ε counts."""
        return [self._edge(name, record, spent) for name, (record, spent) in self._accounted().items()]

    def _edge(self, name: str, record: EdgeRecord, spent: dict[str, Any]) -> dict[str, Any]:
        presence = self.driver.presence.get(name, "unknown")
        quarantined = name in self.driver.quarantined
        state = "retired" if record.retired else "quarantined" if quarantined else presence
        return {
            "id": name, "state": state, "updates": record.updates, "retired": record.retired,
            "refusals": record.hello.refusals, "refusal": record.hello.refusal, **spent,
        }  # fmt: skip

    def _spent(self, name: str, record: EdgeRecord) -> dict[str, Any]:
        # The edge's ledger as it says; δ and all else as the run file has it: another δ would make its ε look small.
        spent, delta = record.spent, self.run.privacy.delta
        accounted = spent if self._ended else _ahead(spent)
        pld, rdp = epsilon_pld(accounted, delta), epsilon_rdp(accounted, delta)
        last = spent[-1] if spent else None
        return {
            "epsilon_pld": pld, "epsilon_rdp": rdp, "delta": delta,
            "pushes": sum(row.count for row in spent),
            "noise_multiplier": last.noise_multiplier if last else None,
            "sampling_rate": last.sampling_rate if last else None,
            "clip": self._clip, "mechanism": self._mechanism,
            "adjacency": _GUARANTEE[self._place]["adjacency"], "budget": self.run.epsilon(self.run.index(name)),
            "batch": self.run.privacy.batch,
            "charged": {"count": record.charged.count, "head": record.charged.head.hex()},
            "history": [[row.sampling_rate, row.noise_multiplier, row.count] for row in spent],
            **({"mu": gdp.mu(spent)} if self._vertical else {}),
        }  # fmt: skip

    def _privacy_edges(self) -> dict[str, dict[str, Any]]:
        return {name: spent for name, (_, spent) in self._accounted().items()}

    def _accounted(self) -> dict[str, tuple[EdgeRecord, dict[str, Any]]]:
        """Every edge's record, and ε of what it has spent: exact once training is over, before that an upper bound
        (`_ahead`).
        """
        # While another thread is at it, what was last found will do: requests must not queue up behind one.
        if self._rows and not self._ended and self._accounting.locked():
            return self._rows
        with self._accounting:
            with self.driver.lock:
                records = [(name, replace(record)) for name, record in sorted(self.driver.role.edges.items())]
            self._rows = {name: (record, self._spent(name, record)) for name, record in records}
            return self._rows

    def privacy(self) -> dict[str, Any]:
        """The run's guarantee: per edge, and the largest (the edges hold different people's records).

        Vertical parties hold the same people's: the whole is then their composition; `labels_epsilon`, of the labels'
        randomised response (None: the labels are used in clear).
        """
        edges = self._privacy_edges()
        epsilon = self._largest(edges)
        stated: dict[str, Any] = _GUARANTEE[self._place] | ({} if self.run.privacy.private else _NONE)
        stated |= _SIMULATED if self.virtual and self.run.privacy.private else {}
        if self._vertical:
            together = gdp.compose(edge["mu"] for edge in edges.values())
            stated |= {"mu": together, "labels_epsilon": self._labels_epsilon}
        return {**stated, "delta": self.run.privacy.delta, "epsilon": epsilon, "edges": edges}


def _stated(run: RunFile) -> tuple[list[float], str]:
    """The bounds of C, and the mechanism's name, of every edge."""
    if isinstance(run.algorithm, Vafl):
        plan = vertical_settings.privacy_plan(run, 0)
        return [plan.bound, plan.bound], plan.declared
    return [run.privacy.clip_min, run.privacy.clip_max], run.terms().mechanism


def _ahead(history: History) -> History:
    """The same with every count rounded up to three significant bits and one: at most an eighth more pushes.

    Composing takes up to 50 ms, time that training would miss; so it is done for eight counts an octave, and each
    result serves every edge until its count passes it. What is shown is never below what was spent.
    """
    return tuple(replace(row, count=_rounded_up(row.count)) for row in history)


def _rounded_up(count: int) -> int:
    step = 1 << max(0, count.bit_length() - 4)
    return -(-count // step) * step


def _json_number(value: float) -> float | None:
    return value if math.isfinite(value) else None  # JSON has no infinity: null means "no guarantee"


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
