"""The status of a run, for REST, page and command line.

Every reading is consistent, made on demand, and never by the driver's thread.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path
from typing import Any

from tacit.config.definition import Definition
from tacit.errors import ServiceError
from tacit.privacy.ledger import UNCHARGED
from tacit.privacy.report import EdgePrivacy, RunPrivacy
from tacit.protocol import veto
from tacit_services.aggregator.reading import Health, Readable, RunReading
from tacit_services.aggregator.reporting.accounts import Accounts, Spending, Total
from tacit_services.aggregator.reporting.run_answers import RunAnswers
from tacit_services.aggregator.reporting.run_events import FILE, RunEvents
from tacit_services.aggregator.reporting.run_functions import RunFunctions
from tacit_services.aggregator.reporting.run_looks import RunLooks, judged_now
from tacit_services.aggregator.reporting.server_time import server_time
from tacit_services.aggregator.reporting.shown_accounts import ShownAccounts

_VERSION = version("tacit")
SUMMARY_FORMAT = 1  # raised when a key of summary.json goes or changes its meaning
_VETOES = 5  # that a status names: its size does not depend on the number of edges
_NONE: Mapping[str, float] = {}


class RunStatus:
    """The documents of a run's readings, and the series of evaluations."""

    def __init__(
        self,
        definition: Definition[Any],
        run: Readable,
        metrics: Path,
        *,
        virtual: Callable[[], dict[str, float]] | None = None,
        by_test_set: bool = False,
        tell: Callable[[Mapping[str, Any]], None] = lambda point: None,
    ) -> None:
        """metrics: the JSON-lines file of the series; a resumed run appends to it.

        virtual: of a simulation, its clock, as keys to be shown. by_test_set: whether a public test
        set chooses the best model, in place of looks. tell: is called with each point when the file
        has it.
        """
        self._tell = tell
        self.definition = definition
        self._run = run
        self._virtual = virtual
        self._metrics = metrics
        self._events: RunEvents | None = None
        if virtual is None:
            name = run.reading().run_id
            self._events = RunEvents(metrics.with_name(FILE), name, run.reading, server_time)
        self.series: list[dict[str, Any]] = []
        self._answers = RunAnswers(definition)
        self._looks = RunLooks(definition, by_test_set=by_test_set)
        self.functions = RunFunctions(definition)
        self._accounts = Accounts(definition.promise)
        self._shown = ShownAccounts(self._accounts)
        self._before = self._version_at_start = 0.0
        self._started = self._ended = 0.0

    def answers(self, reading: RunReading | None = None) -> list[dict[str, Any]]:
        """Return the answers to the run's questions so far, for any thread."""
        return self._answers.of(reading or self.reading())

    def looks(self, reading: RunReading | None = None) -> list[dict[str, Any]]:
        """Return the looks at held-out rows so far, for any thread."""
        return self._looks.of(reading or self.reading())

    def looks_show_no_gain(self) -> bool:
        """Check whether the looks surely show no gain that is worth more training."""
        return self._looks.no_gain(self.reading())

    def reading(self) -> RunReading:
        """Return the run now, for any thread."""
        return self._run.reading()

    def health(self) -> Health:
        """Return whether the run can go on, without waiting for a lock."""
        return self._run.health()

    def resumed(self) -> None:
        """Go on with the series of evaluations of the process before this one.

        To be called when the driver has recovered. Raises ServiceError where it cannot be written.
        """
        reading = self.reading()
        self._version_at_start = reading.version
        self._shown.resumed(reading.records)
        if self._version_at_start and self._metrics.exists():
            lines = self._metrics.read_text(encoding="utf-8", errors="replace").splitlines()
            points = (point for line in lines if (point := _point(line)) is not None)
            self.series = [point for point in points if point["version"] <= self._version_at_start]
            if self.series:
                self._before = self.series[-1]["seconds"]
            else:
                self._before = 0.0
        if self._events is not None:
            self._events.resume()
        # Written anew: a line that was cut by a full disk or a kill must not have the next one
        # glued to it.
        try:
            self._metrics.write_text(
                "".join(json.dumps(point) + "\n" for point in self.series), encoding="utf-8"
            )
        except OSError as error:
            raise ServiceError(f"results in {self._metrics}: {error.strerror or error}") from error

    def look(self) -> None:
        """Take note of what has happened to edges and run; the driver's thread calls it often."""
        if self._events is not None:
            self._events.look()

    def stop(self) -> None:
        """Take note that this process ends in good order."""
        if self._events is not None:
            self._events.stop()

    def events(self, after: int, most: int) -> list[dict[str, Any]]:
        """Return the newest events behind number `after`, at most so many, oldest first."""
        if self._events is None:
            return []
        self._events.look()
        return [asdict(event) for event in self._events.after(after, most)]

    def end(self) -> None:
        """Stop the clock at the end of training: every ε is that of what was released."""
        self._ended, self._accounts.final = time.monotonic(), True

    def tick(self, version: int) -> None:
        """Start the clock at the first update; the driver thread calls it between batches."""
        if not self._started and version > self._version_at_start:
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
        reading = self.reading()
        total = self._accounts.total(reading.records, steady=True)
        point = {
            "version": version,
            "seconds": round(self.duration, 3),
            **({} if self._events is None else {"at": server_time()}),
            "accuracy": _json_number(round(accuracy, 6)),
            "loss": round(loss, 6),
            "samples": samples,
            "metrics": {name: _json_number(round(value, 6)) for name, value in metrics.items()},
            **reading.schedule,
            "staleness": round(reading.mean_staleness, 3),
            "epsilon": _json_number(total.epsilon),
            **({"bound": True} if total.bound else {}),
            "edges_online": reading.online,
            **(self._virtual() if self._virtual else {}),
        }
        self.series.append(point)
        with self._metrics.open("a", encoding="utf-8") as file:
            file.write(json.dumps(point) + "\n")
        self._tell(point)

    def points(self) -> list[dict[str, Any]]:
        """Return the series of evaluations so far, for any thread."""
        return list(self.series)

    def total(self, reading: RunReading | None = None) -> Total:
        """Return ε of the run: the largest of any edge, or of vertical parties the composed one.

        Parties hold the same people.
        """
        return self._shown.total((reading or self.reading()).records)

    def summary(self, reading: RunReading | None = None) -> dict[str, Any]:
        """Return summary.json's keys (see docs/rest.md)."""
        reading = reading or self.reading()
        document = self.status(reading) | {"privacy": self.privacy(reading)}
        del document["slowest"]
        if looks := self.looks(reading):
            document["judged"] = looks[-1]
        return document

    def status(self, reading: RunReading | None = None) -> dict[str, Any]:
        """Return summary.json's keys, plus `state`, `edges_online` and `slowest`.

        Of privacy it has the run's total, with `bound` where ε is an upper bound.
        """
        reading = reading or self.reading()
        seconds = self.duration
        definition = self.definition
        if self.series:
            last = self.series[-1]
        else:
            last = {}
        if reading.halted:
            needed = 0
        else:
            needed = reading.needed
        total = self.total(reading)
        return {
            "format": SUMMARY_FORMAT,
            "state": reading.state,
            "reason": reading.reason,
            "run": reading.run_id,
            "algorithm": definition.algorithm.name,
            "dataset": definition.source.name,
            "model": definition.model.name,
            "parameters": reading.parameters,
            "seed": definition.run.seed,
            "tacit_version": _VERSION,
            "run_file_sha256": reading.fingerprint,
            "edges": len(reading.records),
            "edges_online": reading.online,
            "edges_refusing": reading.refusing,
            "refusals": reading.refusals,
            **({"vetoes": _vetoes(reading)} if reading.vetoes else {}),
            **({"edges_needed": needed} if needed else {}),
            "target": reading.horizon,
            "applied": reading.version,
            "duplicates": reading.counts.get("duplicate", 0),
            "stale": reading.stale,
            "rejected": reading.rejected,
            "duration_s": round(seconds, 3),
            "updates_per_s": round(reading.version / seconds, 2) if seconds else 0.0,
            "test_accuracy": last.get("accuracy"),
            "test_loss": last.get("loss"),
            "metrics": last.get("metrics", {}),
            "model_version": reading.version,
            "staleness": reading.ages(),
            "stages": int(reading.schedule.get("stage", 1)),
            "schedule": reading.schedule,
            "slowest": total.slowest and {"id": total.slowest, "releases": total.releases},
            "privacy": self._guarantee(reading, total),
            **({"judged": judged_now(looks)} if (looks := self.looks(reading)) else {}),
            **self._times(),
            **(self._virtual() if self._virtual else {}),
        }

    def _times(self) -> dict[str, Any]:
        if self._events is None:
            return {}
        return {"at": server_time(), "events": self._events.look()}

    def edges(self, after: str = "", limit: int | None = None) -> list[dict[str, Any]]:
        """Return one row for each edge that ever sent Hello, with the updates that its ε counts.

        Edges whose policy forbids the run have a row, too. In the order of their names, at most
        `limit`, from the first one behind `after`.
        """
        reading = self.reading()
        known = {*reading.records, *reading.vetoes}
        names = sorted(name for name in known if name > after)[:limit]
        accounts = self._shown.of(
            {name: reading.records[name] for name in names if name in reading.records}
        )
        return [
            _row(name, accounts[name], reading) if name in accounts else self._absent(name, reading)
            for name in names
        ]

    def edge(self, name: str) -> dict[str, Any] | None:
        """Return the row of an edge; None where it never sent Hello, nor refused the run."""
        reading = self.reading()
        if name not in reading.records:
            if name in reading.vetoes:
                return self._absent(name, reading)
            return None
        return _row(name, self._shown.of({name: reading.records[name]})[name], reading)

    def _absent(self, name: str, reading: RunReading) -> dict[str, Any]:
        """Return the row of an edge that has never taken part, as its policy forbids it."""
        spent = self.definition.promise.spent(name, (), UNCHARGED, ())
        return {
            "id": name,
            "state": "refusing",
            "updates": 0,
            "retired": "",
            "refusals": 0,
            "refusal": veto.words(reading.vetoes[name]),
            "quarantine": "",
            "bound": False,
            **spent.document(),
        }

    def privacy(self, reading: RunReading | None = None) -> dict[str, Any]:
        """Return the run's guarantee, with what each edge has spent.

        `bound` marks an ε that is an upper bound.
        """
        reading = reading or self.reading()
        accounts = self._shown.of(dict(sorted(reading.records.items())))
        total = self.total(reading)
        document = self._of_all({n: account.spent for n, account in accounts.items()}).document()
        bounds = [name for name, account in accounts.items() if account.bound]
        for name in bounds:
            document["edges"][name]["bound"] = True
        document["epsilon"] = total.epsilon
        return document | ({"bound": True} if bounds or total.bound else {})

    def _guarantee(self, reading: RunReading, total: Total) -> dict[str, Any]:
        """Return the run's guarantee without its edges.

        µ of a vertical run needs all parties, which are few.
        """
        if self.definition.promise.composition == "sum":
            few = reading.records
        else:
            few = {}
        accounts = self._shown.of(few)
        document = self._of_all({n: account.spent for n, account in accounts.items()}).document()
        del document["edges"]
        return document | {"epsilon": total.epsilon, "bound": total.bound}

    def _of_all(self, edges: Mapping[str, EdgePrivacy]) -> RunPrivacy:
        return self.definition.promise.total(edges, simulated=self._virtual is not None)


def _row(name: str, account: Spending, reading: RunReading) -> dict[str, Any]:
    record = account.record
    state, _ = reading.state_of_edge(name)
    key = reading.vetoes.get(name)
    return {
        "id": name,
        "state": state,
        "updates": record.updates,
        "retired": record.retired,
        "refusals": record.hello.refusals,
        "refusal": record.hello.refusal if key is None else veto.words(key),
        "quarantine": reading.quarantined.get(name, ""),
        "bound": account.bound,
        **account.spent.document(),
    }


def _vetoes(reading: RunReading) -> list[dict[str, str]]:
    """Return the first few edges whose policy forbids the run, and its key."""
    first = sorted(reading.vetoes.items())[:_VETOES]
    return [{"id": name, "policy": key} for name, key in first]


def _json_number(value: float) -> float | None:
    return (
        value if math.isfinite(value) else None
    )  # JSON has no infinity: null means "no guarantee"


def _point(line: str) -> dict[str, Any] | None:
    """Return a line of metrics.jsonl; None for one that was cut, or is not ours."""
    try:
        point: dict[str, Any] = json.loads(line)
        valid = point["version"] >= 0 and point["seconds"] >= 0
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
    if valid:
        return point
    return None
