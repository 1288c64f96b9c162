"""The loop of a member: it looks at offers, tells the host its owner's answers, and works.

One process works for one membership, and each run that trains has a process of its own, which
charges the same ledger. What the owner answered is read from the disk at every turn, so another
process (`tacit offers`) may answer while this one works.
"""

from __future__ import annotations

import logging
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Protocol

from tacit.errors import ConfigError, ServiceError, TacitError
from tacit_services.member.answering import confirming
from tacit_services.member.consent import Consent
from tacit_services.member.consent_watch import PAUSED
from tacit_services.member.host_client import HostClient, Offered, VersionsApartError
from tacit_services.member.look_record import LookRecord, record_in
from tacit_services.member.member_state import MemberState

log = logging.getLogger("tacit.member")
PERIOD = 1.0  # seconds between two looks at the host's list
LONGEST = 30.0  # seconds, where the host does not answer
OVER = ("ended", "stopped", "failed")
_FAREWELL = 10  # looks at the list, within which the process of a run that is over ends by itself


class RunProcess(Protocol):
    """The process that works in one run."""

    def start(self) -> None:
        """Start it."""

    def code(self) -> int | None:
        """Return its exit code; None while it runs."""

    def stop(self) -> None:
        """End it: after this nothing leaves."""

    def complaint(self) -> str:
        """Return the last line of its log."""


class Diary(Protocol):
    """What is written down of every run."""

    def begins(self, offered: Offered) -> None:
        """Note that the member works in a run from now on."""

    def ends(self, offered: Offered) -> None:
        """Note that a run is over, and let go of what it has on this disk."""

    def swept(self, offered: Offered) -> bool:
        """Return whether the files of a run are no longer on this disk."""


class MemberLoop:
    """The loop of one membership."""

    def __init__(
        self,
        host: HostClient,
        state: MemberState,
        look: Callable[[Offered], LookRecord],
        make: Callable[[str], RunProcess],
        diary: Diary,
        *,
        fetch: Callable[[Offered], None] = lambda _: None,
        before: Callable[[], None] = lambda: None,
        may_work: Callable[[], bool] = lambda: True,
        idle: Callable[[], None] = lambda: None,
        stands: Callable[[str], None] = lambda words: None,
        hand_over: Callable[[str], None] = lambda run: None,
    ) -> None:
        """look: fetches an offer, judges it, enters what a policy accepts, and writes the record.

        It raises ServiceError where the host does not answer, other TacitErrors for what is no
        offer. make: makes the process of a run, not started; it raises TacitErrors. fetch:
        fetches an offer that was swept, and raises as `look`. before: is
        called first at every turn, and raises ConfigError where the member cannot go on. may_work:
        whether it may work now. idle: is called where no process works.
        stands: is told in words what is under way. hand_over: gives the host what this member
        states on a run, if there is anything new. It raises ServiceError.
        """
        self._host = host
        self._state = state
        self._look = look
        self._make = make
        self._diary = diary
        self._fetch = fetch
        self._before = before
        self._may_work = may_work
        self._idle = idle
        self._stands = stands
        self._hand_over = hand_over
        self.hears_host = True  # whether the host has answered the last time
        self._workers: dict[str, RunProcess] = {}
        self._done: set[tuple[str, str]] = set()  # consents whose work is done
        # Looks since a run is over whose process has not ended.
        self._over: Counter[str] = Counter()
        self._unable: set[tuple[str, str]] = set()  # consents that nothing comes of here
        self._told: dict[str, tuple[str, str, str]] = {}  # what the host was told of a run
        # Offers that this process has looked at: the next one asks a policy that was changed.
        self._looked: set[str] = set()
        self._bad: set[str] = set()  # fingerprints of what is no offer
        self._closed: set[tuple[str, str]] = set()  # runs whose end is written down, and how

    def run(self, stop: threading.Event) -> None:
        """Work until `stop`; then end the processes of all runs, in order."""
        pause = 0.0
        try:
            while not stop.wait(pause):
                try:
                    self.turn()
                    self.hears_host = True
                    if pause > PERIOD:
                        log.info("the host answers again")
                    pause = PERIOD
                except ServiceError as error:
                    if stop.is_set():  # which is why it was not waited for
                        return
                    self.hears_host = False
                    if pause <= PERIOD:
                        log.warning("%s; trying again", error)
                    pause = min(LONGEST, max(2 * pause, PERIOD))
        finally:
            for worker in self._workers.values():
                worker.stop()

    def turn(self) -> None:
        """Look once at the owner's answers and the host's list, and do what is due.

        Raises ServiceError where the host does not answer: consents that were withdrawn are seen
        to before.
        """
        held = {consent.run for consent in self._state.consents().all() if consent.holds}
        for run in set(self._workers) - held:
            self._stop(run)
        self._before()
        offered = self._offers()
        for offer in offered:
            self._turn_of(offer)
            if offer.run not in self._workers:
                self._hand_over(offer.run)
        self._end_others(offered)
        if not self._workers:
            self._idle()
        runs = ", ".join(sorted(self._workers))
        self._stands(f"works in {runs}" if runs else "waits for offers")

    def _offers(self) -> list[Offered]:
        """Return the host's list. Nobody works for a host whose tacit is too far from ours."""
        try:
            return self._host.offers()
        except VersionsApartError:
            for run in list(self._workers):
                self._stop(run)
            raise

    def _turn_of(self, offer: Offered) -> None:
        if offer.state in OVER:
            self._forget(offer)
            return
        consent = self._answer_to(offer)
        if consent is None:
            # What was accepted was another offer. Nobody works while its files are replaced.
            self._stop(offer.run)
            if not self._looked_at(offer):
                return
            consent = self._answer_to(offer)
        if consent is None:
            self._tell_refusal(offer)
        elif consent.withdrawn is not None:
            self._tell(offer, "withdrawn", "")
        elif consent.answer == "declined":
            self._tell(offer, "declined", "declined")
        elif (offer.run, offer.fingerprint) not in self._unable:
            self._tell(offer, "accepted", "")
            if offer.state == "training":
                self._work_on(offer)

    def _answer_to(self, offer: Offered) -> Consent | None:
        """Return the owner's newest answer to this very offer."""
        answers = [
            consent
            for consent in self._state.consents().all()
            if consent.fingerprint == offer.fingerprint
        ]
        return answers[-1] if answers else None

    def _looked_at(self, offer: Offered) -> bool:
        """Look at an offer, once; returns whether it is one."""
        if offer.fingerprint in self._bad:
            return False
        if offer.fingerprint in self._looked and record_in(self._state.run(offer.run)) is not None:
            return True
        try:
            record = self._look(offer)
        except ServiceError:
            raise
        except TacitError as error:
            log.warning("run %s: %s", offer.run, error)
            self._bad.add(offer.fingerprint)
            return False
        self._looked.add(offer.fingerprint)
        if record.answer == "ask":
            log.info("run %s waits for its owner: tacit offers accept %s", offer.run, offer.run)
        elif record.answer == "refuse":
            command = f": {confirming(offer.run)}" if record.unconfirmed else ""
            log.info("run %s is refused: %s%s", offer.run, record.reason, command)
        return True

    def _tell_refusal(self, offer: Offered) -> None:
        record = record_in(self._state.run(offer.run))
        if record is not None and record.answer == "refuse":
            self._tell(offer, "refused", record.kind)

    def _tell(self, offer: Offered, answer: str, reason: str) -> None:
        telling = (offer.fingerprint, answer, reason)
        if self._told.get(offer.run) == telling:
            return
        self._told[offer.run] = telling
        try:
            self._host.answer(offer.run, offer.fingerprint, answer, reason)
        except ServiceError:
            del self._told[offer.run]
            raise
        except ConfigError as error:  # the run is over since, or another is offered: not our end
            log.warning("run %s: %s", offer.run, error)
            return
        log.info("run %s: %s", offer.run, answer)

    def _work_on(self, offer: Offered) -> None:
        run = offer.run
        if (run, offer.fingerprint) in self._done:
            return
        if not self._may_work():
            self._stop(run)
            return
        worker = self._workers.get(run)
        if worker is None:
            self._begin(offer)
            return
        code = worker.code()
        if code is None:
            return
        if code == PAUSED:  # it may not work: at the next turn it may be begun anew
            del self._workers[run]
            return
        unanswered = code == ServiceError.exit_code  # the host was away when it started
        if 0 <= code < 128 and not unanswered:
            # Its work is done, or it gave a reason: another start would not help.
            del self._workers[run]
            if code:
                log.warning("run %s: %s", run, worker.complaint())
                self._unable_to(offer)
            else:
                self._done.add((run, offer.fingerprint))
            return
        log.warning("run %s: its process died (%d); starting it again", run, code)
        worker.start()

    def _begin(self, offer: Offered) -> None:
        """Start the process of a run; what is wrong with rows or ledger is for the owner alone."""
        try:
            if self._diary.swept(offer):  # its host has gone back to a state before its end
                self._fetch(offer)
            worker = self._make(offer.run)
            self._diary.begins(offer)
        except ServiceError:
            raise
        except TacitError as error:
            log.warning("run %s: %s", offer.run, error)
            self._unable_to(offer)
            return
        worker.start()
        self._workers[offer.run] = worker

    def _unable_to(self, offer: Offered) -> None:
        """Let the run go on without this member; of the reason the host hears one word."""
        self._unable.add((offer.run, offer.fingerprint))
        self._tell(offer, "refused", "unavailable")

    def _forget(self, offer: Offered) -> None:
        """Let the process of a run that is over end by itself, as it does at the host's word.

        Where that does not come, as the run was over before the process could hear, end it. Then
        the run's end is written down.
        """
        run = offer.run
        worker = self._workers.get(run)
        if worker is not None:
            self._over[run] += 1
            if worker.code() is None and self._over[run] < _FAREWELL:
                return
            del self._over[run]
            self._stop(run)
        end = (offer.fingerprint, offer.state)
        if end in self._closed or self._state.works_on(run):
            return
        self._closed.add(end)
        try:
            self._diary.ends(offer)
        except TacitError as error:
            log.warning("run %s: %s", run, error)

    def _end_others(self, offered: Sequence[Offered]) -> None:
        for run in set(self._workers) - {offer.run for offer in offered}:
            self._stop(run)

    def _stop(self, run: str) -> None:
        worker = self._workers.pop(run, None)
        if worker is not None:
            worker.stop()
