"""What people and members do with runs: submit, answer, begin, stop, look.

Each is checked against who asks, entered in the audit log, and durable before it is answered.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

from tacit_services.federation.audit_log import AuditLog
from tacit_services.federation.file_pool import FilePool
from tacit_services.federation.members import MemberRoll
from tacit_services.federation.people import Person, Right
from tacit_services.federation.run_records import REASONS, MemberAnswer, RunRecord, RunRecords
from tacit_services.federation.run_standing import standing
from tacit_services.federation.submissions import Refused, Submissions
from tacit_services.federation.supervisor import Supervisor

_NO_AGGREGATOR = "run {run!r}: does not train now; `tacit results` has what it has trained"


class RunDesk:
    """The desk at which runs are submitted, answered, begun and stopped."""

    def __init__(
        self,
        records: RunRecords,
        supervisor: Supervisor,
        submissions: Submissions,
        pool: FilePool,
        audit: AuditLog,
        roll: Callable[[], MemberRoll],
        clock: Callable[[], float] = time.time,
    ) -> None:
        """roll: reads who is a member now."""
        self._records = records
        self._supervisor = supervisor
        self._submissions = submissions
        self._pool = pool
        self._audit = audit
        self._roll = roll
        self._clock = clock

    # -- people --

    def submit(
        self, content: dict[str, Any], by: Person, signed_by: Literal["host"] | None = None
    ) -> dict[str, Any]:
        """Take a run; returns how it stands. signed_by: as of `Submissions`. Raises Refused."""
        if not by.may(Right.RESEARCHER):
            raise Refused(403, "a reader's token submits no runs; ask for a researcher's")
        record = self._submissions.taken(content, by, signed_by)
        signer = {} if signed_by is None else {"signed_by": signed_by}
        what = {"run": record.name, "fingerprint": record.fingerprint, **signer}
        self._audit.add(by.name, "submitted", **what)
        return self._shown(record)

    def runs(self, by: Person) -> list[dict[str, Any]]:
        """Return how the runs stand that `by` may see, the oldest first."""
        roll = self._roll()
        return [_shown(record, roll) for record in self._records.all() if _sees(by, record)]

    def run(self, run: str, by: Person) -> RunRecord:
        """Return a run that `by` may see. Raises Refused, the same as where there is none."""
        record = self._records.get(run)
        if record is None or not _sees(by, record):
            raise Refused(404, f"run {run[:64]!r}: there is none of this name")
        return record

    def training(self, run: str, by: Person) -> None:
        """Check that a run which `by` may see has an aggregator to ask. Raises Refused."""
        if self.run(run, by).state != "training":
            raise Refused(404, _NO_AGGREGATOR.format(run=run))

    def stop(self, run: str, by: Person, reason: str) -> dict[str, Any]:
        """End a run; with its results where it trains. Raises Refused."""
        record = self._changed_by(run, by)
        self._audit.add(by.name, "stopped", run=run, reason=reason)
        self._supervisor.halt(record.name, reason)
        return self._shown(self._records.get(run) or record)

    def begin(self, run: str, by: Person) -> dict[str, Any]:
        """Let a run begin with the members that have consented. Raises Refused."""
        record = self._changed_by(run, by)
        if record.over:
            raise Refused(409, f"run {run}: has {record.state}")
        if not record.consenting:
            raise Refused(409, f"run {run}: no member has consented yet")
        self._audit.add(by.name, "began", run=run)
        return self._shown(self._records.change(run, begin=True))

    def passed_on(self, run: str, by: Person, path: str) -> None:
        """Enter that `by` changes a run by its own interface. Raises Refused."""
        record = self._changed_by(run, by)
        self.training(run, by)
        self._audit.add(by.name, "asked", run=record.name, path=path[:200])

    # -- members --

    def offered(self) -> list[dict[str, str]]:
        """Return the runs that members may answer or are at work in."""
        return [
            {"run": record.name, "fingerprint": record.fingerprint, "state": record.state}
            for record in self._records.all()
        ]

    def offer(self, run: str) -> bytes:
        """Return the offer of a run. Raises Refused."""
        self._known(run)
        return self._submissions.public(run)

    def file(self, run: str, digest: str) -> str:
        """Return the path of a file of an offer. Raises Refused."""
        self._known(run)
        path = self._pool.path(digest) if digest in self._submissions.files(run) else None
        if path is None:
            raise Refused(404, f"run {run}: its offer has no file {digest[:64]!r}")
        return str(path)

    def model(self, run: str, member: str) -> Path:
        """Return the file of the model that a run has ended with, for who took part in it.

        Raises Refused.
        """
        record = self._known(run)
        if member not in record.consenting:
            raise Refused(403, f"run {run}: its model is for members that take part")
        path = self._records.results(run) / "model.safetensors"
        if not self._records.has_results(run) or not path.is_file():
            raise Refused(404, f"run {run}: has no model yet; it is there when the run has ended")
        return path

    def answer(self, run: str, member: str, content: dict[str, str]) -> None:
        """Enter a member's answer to an offer. Raises Refused."""
        record = self._known(run)
        answer = content["answer"]
        if record.over:
            raise Refused(409, f"run {run}: has {record.state}")
        if answer == "accepted" and content["fingerprint"] != record.fingerprint:
            raise Refused(409, f"run {run}: its offer is another one; consent is to one offer")
        reason = content.get("reason", "")
        if answer == "withdrawn" and reason in ("", "declined"):
            reason = "withdrawn"  # it took part: another word than of who never did
        entered = MemberAnswer(
            answer,  # type: ignore[arg-type]  # the route has checked it
            content["fingerprint"],
            reason if reason in REASONS else "unavailable",  # type: ignore[arg-type]
            self._clock(),
        )
        before = record.answers.get(member)
        if before is not None and (before.answer, before.reason, before.fingerprint) == (
            entered.answer, entered.reason, entered.fingerprint
        ):  # fmt: skip
            self._follow(run, member, answer)  # the broker may not have answered the last time
            return
        self._records.answer(run, member, entered)
        self._audit.add(member, answer, run=run, reason=reason)
        self._follow(run, member, answer)

    def gone(self, member: str, reason: Literal["", "unavailable"]) -> None:
        """Take back every consent of a member that is none any more: no run counts on it.

        reason: "" where the member itself has taken them back.
        """
        for record in self._records.all():
            if member in record.consenting and not record.over:
                gone = MemberAnswer("withdrawn", record.fingerprint, reason, self._clock())
                self._records.answer(record.name, member, gone)

    def _follow(self, run: str, member: str, answer: str) -> None:
        if answer == "accepted":
            self._supervisor.consented(run, member)
        else:
            self._supervisor.withdrawn(run, member)

    def _known(self, run: str) -> RunRecord:
        record = self._records.get(run)
        if record is None:
            raise Refused(404, f"run {run[:64]!r}: there is none of this name")
        return record

    def _changed_by(self, run: str, by: Person) -> RunRecord:
        record = self.run(run, by)
        if not by.may(Right.RESEARCHER):
            raise Refused(403, "a reader's token changes nothing")
        return record

    def _shown(self, record: RunRecord) -> dict[str, Any]:
        return _shown(record, self._roll())


def _shown(record: RunRecord, roll: MemberRoll) -> dict[str, Any]:
    stands = standing(record, roll)
    return {
        "name": record.name,
        "state": stands.state,
        "why": stands.why,
        "applied": record.applied,
        "updates": record.updates,
        "members": [roll.name(member) for member in record.consenting],
        "refused": [
            {"member": roll.name(member), "reason": reason} for member, reason in record.refusing
        ],
        "researcher": record.researcher,
        "fingerprint": record.fingerprint,
        "needed": record.needed,
        "submitted": record.submitted,
    }


def _sees(by: Person, record: RunRecord) -> bool:
    """Return whether a person may see a run: a researcher their own, the others all."""
    return by.right is not Right.RESEARCHER or record.researcher == by.name
