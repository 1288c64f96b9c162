"""The loop of a member: it looks at offers, tells the host its owner's answers, and works.

One process works for one membership, and each run that trains has a process of its own, which
charges the same ledger. What the owner answered is read from the disk at every turn, so another
process (`tacit offers`) may answer while this one works.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from typing import Protocol

from tacit.errors import ConfigError, ServiceError
from tacit_services.member.consents import Consent, Consents
from tacit_services.member.host_client import HostClient, Offered

log = logging.getLogger("tacit.member")
PERIOD = 1.0  # seconds between two looks at the host's list
LONGEST = 30.0  # seconds, where the host does not answer
_OVER = ("ended", "stopped", "failed")
_TELLING = {"accepted", "declined", "withdrawn", "refused"}


class Worker(Protocol):
    """The process that works in one run."""

    def start(self) -> None:
        """Start it."""

    def code(self) -> int | None:
        """Return its exit code; None while it runs."""

    def stop(self) -> None:
        """End it: after this nothing leaves."""

    def complaint(self) -> str:
        """Return the last line of its log."""


class Judge(Protocol):
    """What looks at an offer that has come."""

    def look(self, host: HostClient, offered: Offered) -> Consent:
        """Fetch an offer and its files, judge it by policy and rows, and enter what comes of it.

        Raises ServiceError where the host does not answer, ConfigError for what is no offer.
        """


class MemberLoop:
    """The loop of one membership."""

    def __init__(
        self,
        host: HostClient,
        consents: Consents,
        judge: Judge,
        make: Callable[[str], Worker],
        *,
        may_work: Callable[[], bool] = lambda: True,
    ) -> None:
        """make: makes the process of a run, not started. may_work: whether it may work now."""
        self._host = host
        self._consents = consents
        self._judge = judge
        self._make = make
        self._may_work = may_work
        self._workers: dict[str, Worker] = {}
        self._done: set[str] = set()  # runs whose process has ended for good
        self._bad: set[tuple[str, str]] = set()  # offers that were found to be none

    def run(self, stop: threading.Event) -> None:
        """Work until `stop`; then end the processes of all runs, in order."""
        pause = 0.0
        try:
            while not stop.wait(pause):
                try:
                    self.turn()
                    pause = PERIOD
                except ServiceError as error:
                    if pause <= PERIOD:
                        log.warning("%s; trying again", error)
                    pause = min(LONGEST, max(2 * pause, PERIOD))
                    self._end_withdrawn()
        finally:
            for worker in self._workers.values():
                worker.stop()

    def turn(self) -> None:
        """Look once at the host's list, and do what is due. Raises ServiceError."""
        self._end_withdrawn()
        offered = self._host.offers()
        for offer in offered:
            self._turn_of(offer)
        self._end_others(offered)

    def _turn_of(self, offer: Offered) -> None:
        consent = self._consents.get(offer.run)
        if offer.state in _OVER:
            self._end_over(offer.run)
            return
        if consent is None or consent.fingerprint != offer.fingerprint:
            self._stop(offer.run)  # consent was to another offer
            if (offer.run, offer.fingerprint) in self._bad:
                return
            try:
                consent = self._judge.look(self._host, offer)
            except ConfigError as error:
                log.warning("run %s: %s", offer.run, error)
                self._bad.add((offer.run, offer.fingerprint))
                return
        self._tell(consent)
        if consent.answer == "accepted" and offer.state == "training":
            self._work_on(offer.run)

    def _tell(self, consent: Consent) -> None:
        if consent.told or consent.answer not in _TELLING:
            return
        self._host.answer(consent.run, consent.fingerprint, consent.answer, consent.reason)
        self._consents.told(consent)
        log.info("run %s: %s", consent.run, consent.answer)

    def _work_on(self, run: str) -> None:
        if run in self._done:
            return
        if not self._may_work():
            self._stop(run)
            return
        worker = self._workers.get(run)
        if worker is None:
            self._workers[run] = worker = self._make(run)
            worker.start()
            return
        code = worker.code()
        if code is None:
            return
        if code == 0 or 0 < code < 128:
            del self._workers[run]
            self._done.add(run)
            if code:
                log.warning("run %s: %s", run, worker.complaint())
            return
        log.warning("run %s: its process died (%d); starting it again", run, code)
        worker.start()

    def _end_withdrawn(self) -> None:
        """End the processes of runs that the owner accepts no more, before anything else."""
        for run in list(self._workers):
            consent = self._consents.get(run)
            if consent is None or consent.answer != "accepted":
                self._stop(run)

    def _end_over(self, run: str) -> None:
        worker = self._workers.get(run)
        if worker is not None and worker.code() is not None:
            del self._workers[run]

    def _end_others(self, offered: Sequence[Offered]) -> None:
        for run in set(self._workers) - {offer.run for offer in offered}:
            self._stop(run)

    def _stop(self, run: str) -> None:
        worker = self._workers.pop(run, None)
        if worker is not None:
            worker.stop()
