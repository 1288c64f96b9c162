"""Predictions of a vertical run that has ended, from embeddings that its parties release.

The parties pay for them. A request is a journal entry, and so are the parties' answers. So no party
is asked twice for the same request after a crash, ledgers stay anchored, and a replay passes over
the same messages. Embeddings that were released once for good (mode `cached`) are in the table:
nobody is asked. One prediction is under way at a time.
"""

from __future__ import annotations

import queue
import threading
import time
from dataclasses import dataclass, field

import torch
from torch import Tensor

from tacit.algorithms.vafl.label_server import LabelServer
from tacit.datasets.alignment import names
from tacit.errors import BudgetSpent, ConfigError, DataError, ServiceError, TacitError
from tacit.protocol.vertical import Request
from tacit_services.aggregator.driver import ServerDriver
from tacit_services.aggregator.run import Run

ASK_AGAIN = 2.0  # seconds after which a party that has not answered is asked again
_SHOWN = 3  # unknown ids named in a message


@dataclass(slots=True)
class Job:
    """One question to a vertical run, and its answer.

    rows: (m,), the records asked for, until `deadline`. Then there are scores (m, classes), or an
    error with the reason.
    """

    rows: Tensor
    deadline: float
    requested: bool = False
    asked_at: float = 0.0
    answered: threading.Event = field(default_factory=threading.Event)
    scores: Tensor | None = None
    error: TacitError | None = None

    def end(self, scores: Tensor | None, error: TacitError | None = None) -> None:
        """Wake who waits for it."""
        self.scores = scores
        self.error = error
        self.answered.set()


class Inference:
    """The desk of predictions: HTTP threads ask, the driver thread asks the parties and answers."""

    def __init__(self, run: Run, driver: ServerDriver, role: LabelServer, salt: str) -> None:
        """role: the run's. salt: what the run's records are named with."""
        self._run = run
        self._driver = driver
        self._role = role
        self._salt = salt.encode()
        self._row = {int(name): row for row, name in enumerate(role.labelled.names)}
        self._waiting: queue.SimpleQueue[Job] = queue.SimpleQueue()
        self._now: Job | None = None

    def predict(self, ids: list[str], seconds: float) -> dict[str, list[float]]:
        """Return class probabilities of every id, by id. Waits up to `seconds` for the parties.

        Raises DataError (an id that is not in the run), ConfigError (not over yet, or without a
        model), BudgetSpent (a party's), ServiceError (a party is not there).
        """
        if not self._role.halted or len(self._role.complete) < self._role.protocol.parties:
            if self._role.halted:
                why = "ended before every party's table was there"
            else:
                why = "has not ended"
            raise ConfigError(
                f"run {self._run.run_id}: {why}; predictions need the model that it ends with"
            )
        rows = self._rows(ids)
        job = Job(torch.tensor(sorted(set(rows.values()))), time.monotonic() + seconds)
        self._waiting.put(job)
        job.answered.wait(
            seconds + ASK_AGAIN
        )  # the driver thread says why, unless it waits for the store itself
        if job.error is not None:
            raise job.error
        if job.scores is None:
            raise ServiceError(
                f"no prediction within {seconds:g} s: the aggregator waits for its store"
            )
        scores = dict(zip(job.rows.tolist(), job.scores.softmax(1).tolist(), strict=True))
        return {record: scores[row] for record, row in rows.items()}

    def _rows(self, ids: list[str]) -> dict[str, int]:
        unique = list(dict.fromkeys(ids))
        pairs = zip(unique, names(unique, self._salt, "predict").tolist(), strict=True)
        rows = {record: self._row.get(name) for record, name in pairs}
        if unknown := [record for record, row in rows.items() if row is None]:
            first = ", ".join(repr(record[:64]) for record in unknown[:_SHOWN])
            raise DataError(
                f"{len(unknown)} of {len(unique)} ids are not among the run's {len(self._row)}: "
                f"{first}"
            )
        return {record: row for record, row in rows.items() if row is not None}

    # -- the driver thread -------------------------------------------------------------------------

    def turn(self) -> None:
        """Do what is due; called between messages.

        Raises ServiceError when the store is lost.
        """
        if self._now is None and not self._waiting.empty():
            self._now = self._waiting.get_nowait()
        job = self._now
        if job is None:
            return
        if (
            not job.requested and time.monotonic() < job.deadline
        ):  # later nobody waits for what parties would pay for
            job.requested = self._driver.ask(Request(0, job.rows))
            job.asked_at = time.monotonic()
        elif job.requested and not self._role.pending():
            self._end(job, self._role.scores(job.rows))
            return
        elif job.requested and (error := self._hopeless()):
            self._end(job, None, error)
            return
        if time.monotonic() > job.deadline:
            missing = ", ".join(sorted(self._role.pending())) or "the store"
            self._end(
                job,
                None,
                ServiceError(f"no answer from {missing}; a party answers while TACIT_SERVE is set"),
            )
        elif job.requested and time.monotonic() - job.asked_at > ASK_AGAIN:
            job.asked_at = time.monotonic()
            self._driver.ask_again(self._role.pending())

    def _hopeless(self) -> BudgetSpent | None:
        """Return a party that has reported that it cannot pay, and has not come back since."""
        for edge in sorted(self._role.pending()):
            why = self._role.edges[edge].retired
            presence = self._run.presence
            if why and presence.get(edge) != "online":
                return BudgetSpent(f"{edge}: {why}")
        return None

    def _end(self, job: Job, scores: Tensor | None, error: TacitError | None = None) -> None:
        self._now = None
        job.end(scores, error)
