"""The runs of a federation on disk: each one's state, and what its members have answered.

    runs/RUN/offer.json    the offer, and its files in runs/RUN/files
    runs/RUN/record.json   a `RunRecord`

One process, the host, writes them; each write replaces a file whole, so a crash leaves the state
before or after it.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, get_args

from tacit.errors import ConfigError
from tacit_services.disk import json_record

FORMAT = 1
RECORD = "record.json"
RunStage = Literal["offered", "waiting", "training", "ended", "stopped", "failed"]
OVER: tuple[RunStage, ...] = ("ended", "stopped", "failed")
Answered = Literal["accepted", "declined", "withdrawn", "refused"]
# What a host is told of a refusal. A reason that depends on rows is "unavailable".
Reason = Literal["", "policy", "code", "column names", "declined", "unavailable", "withdrawn"]
REASONS: tuple[str, ...] = get_args(Reason)


@dataclass(frozen=True, slots=True)
class MemberAnswer:
    """A member's answer to an offer. fingerprint: of the offer; at: seconds since 1970."""

    answer: Answered
    fingerprint: str
    reason: Reason
    at: float


@dataclass(frozen=True, slots=True)
class RunRecord:
    """One run as its host knows it.

    researcher: who submitted it. needed, least, wait, grace: `edges.count`, `edges.min`,
    `edges.wait` and `edges.grace` of its run file. updates: `run.updates`. begin: whether somebody
    has said *begin now*. why: of the state, in words. stopping: why somebody has said that it ends.
    applied: updates, and online: members connected, as last heard of its aggregator. Times are in
    seconds since 1970, for people.
    """

    name: str
    fingerprint: str
    researcher: str
    submitted: float
    needed: int
    least: int
    wait: float
    updates: int
    state: RunStage = "offered"
    why: str = ""
    begin: bool = False
    stopping: str = ""
    applied: int = 0
    online: int | None = None
    grace: float = 60.0
    answers: dict[str, MemberAnswer] = field(default_factory=dict)

    @property
    def over(self) -> bool:
        """Whether nothing more will happen to it."""
        return self.state in OVER

    @property
    def consenting(self) -> list[str]:
        """The members whose consent is to this very offer, in the order of their numbers."""
        ids = [
            member
            for member, answer in self.answers.items()
            if answer.answer == "accepted" and answer.fingerprint == self.fingerprint
        ]
        return sorted(ids, key=_number)

    @property
    def refusing(self) -> list[tuple[str, str]]:
        """The members that take no part, each with what the host was told of why."""
        return [
            (member, "withdrawn" if _is_withdrawn(answer) else answer.reason or answer.answer)
            for member, answer in sorted(self.answers.items(), key=lambda item: _number(item[0]))
            if answer.answer != "accepted"
        ]

    def unanswered(self, members: Iterable[str]) -> list[str]:
        """Return those of the members that have not answered this very offer, in their order."""
        answered = {m for m, a in self.answers.items() if a.fingerprint == self.fingerprint}
        return [member for member in members if member not in answered]

    def may_begin(self, waited: float) -> bool:
        """Return whether enough members have consented, or some and nobody waits for more.

        waited: seconds since the first has.
        """
        count = len(self.consenting)
        if count >= self.needed or (self.begin and count):
            return True
        return waited >= self.wait and count >= max(1, self.least)


class RunRecords:
    """The records of all runs in a folder, for any thread of one process."""

    def __init__(self, folder: Path) -> None:
        """Read what lies in `folder`, which is made if need be.

        Raises ConfigError for a damaged record.
        """
        self._folder = folder
        self._lock = threading.RLock()
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._records = {record.name: record for record in self._read()}

    def folder(self, run: str) -> Path:
        """Return the folder of a run."""
        return self._folder / run

    def results(self, run: str) -> Path:
        """Return the folder of a run's results."""
        return self._folder / run / "out"

    def has_results(self, run: str) -> bool:
        """Return whether the run's aggregator has written its results, as it does at the end."""
        return (self.results(run) / "summary.json").is_file()

    def result(self, run: str) -> dict[str, Any]:
        """Return the summary of a run that has ended; empty where there is none to be read."""
        try:
            content = json.loads((self.results(run) / "summary.json").read_bytes())
        except (OSError, ValueError, RecursionError):
            return {}
        return content if isinstance(content, dict) else {}

    def get(self, run: str) -> RunRecord | None:
        """Return the record of a run; None: there is no such run."""
        with self._lock:
            return self._records.get(run)

    def all(self) -> list[RunRecord]:
        """Return all records, the oldest first."""
        with self._lock:
            return sorted(self._records.values(), key=lambda record: record.submitted)

    def add(self, record: RunRecord) -> None:
        """Add a run, durably. Raises ConfigError where there is one of this name."""
        with self._lock:
            if record.name in self._records:
                raise ConfigError(f"run {record.name!r}: there is one of this name; choose another")
            self._write(record)

    def change(self, run: str, **values: Any) -> RunRecord:
        """Change fields of a run, durably; returns the record. Raises KeyError."""
        with self._lock:
            record = replace(self._records[run], **values)
            if record != self._records[run]:
                self._write(record)
            return record

    def heard(self, run: str, applied: int, online: int) -> None:
        """Note a run's applied updates, and how many members are connected.

        On disk with the next change. Raises KeyError.
        """
        with self._lock:
            self._records[run] = replace(self._records[run], applied=applied, online=online)

    def answer(self, run: str, member: str, answer: MemberAnswer) -> RunRecord:
        """Enter a member's answer, durably; the newest counts. Raises KeyError."""
        with self._lock:
            record = self._records[run]
            answers = record.answers | {member: answer}
            return self.change(run, answers=answers)

    def _write(self, record: RunRecord) -> None:
        folder = self._folder / record.name
        folder.mkdir(exist_ok=True, mode=0o700)
        json_record.write(folder / RECORD, FORMAT, asdict(record))
        self._records[record.name] = record

    def _read(self) -> Iterator[RunRecord]:
        for path in sorted(self._folder.glob(f"*/{RECORD}")):
            if (record := json_record.read(path, FORMAT, _record)) is not None:
                yield record


def _record(content: dict[str, Any]) -> RunRecord:
    answers = {member: MemberAnswer(**answer) for member, answer in content.pop("answers").items()}
    return RunRecord(answers=answers, **content)


def _is_withdrawn(answer: MemberAnswer) -> bool:
    return answer.answer == "withdrawn" and answer.reason in ("", "declined")


def _number(member: str) -> int:
    number = member.removeprefix("edge-")
    return int(number) if number.isdecimal() else 0
