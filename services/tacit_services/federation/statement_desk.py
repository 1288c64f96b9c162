"""Statements of members on runs: taken, checked, and kept beside the run.

    runs/RUN/statements/edge-N.json   the newest of each member

A host cannot make one: each is signed with the key of its member's certificate.
"""

from __future__ import annotations

from pathlib import Path

from tacit_services.disk import files
from tacit_services.federation.audit_log import AuditLog
from tacit_services.federation.members import Member
from tacit_services.federation.run_records import RunRecords
from tacit_services.federation.submissions import Refused
from tacit_services.statements.statement import SignedStatement

FOLDER = "statements"


class StatementDesk:
    """The desk at which members hand in what they state."""

    def __init__(self, records: RunRecords, audit: AuditLog) -> None:
        self._records = records
        self._audit = audit

    def take(self, run: str, member: Member, text: str) -> None:
        """Keep a member's statement on a run, durably.

        Raises Refused. 404: there is no such run. 422: it is no statement, or not this member's on
        this run. 409: it says less than one that was taken before.
        """
        if self._records.get(run) is None:
            raise Refused(404, f"run {run[:64]!r}: there is none of this name")
        try:
            signed = SignedStatement(text.encode())
        except ValueError as error:
            raise Refused(422, f"statement: {error}") from error
        stated = signed.statement
        if (stated.run, stated.edge, signed.key) != (run, member.id, member.key):
            raise Refused(422, "statement: is not this member's on this run")
        if not signed.is_by(stated.public_key):
            raise Refused(422, "statement: its signature is wrong")
        path = self._records.folder(run) / FOLDER / f"{member.id}.json"
        if path.is_file() and path.read_bytes() == signed.file:
            return
        if _says_less(signed, path):
            raise Refused(409, "statement: says less than the one before")
        path.parent.mkdir(exist_ok=True, mode=0o700)
        files.write(path, signed.file, files.SECRET)
        self._audit.add(member.id, "stated", run=run)


def _says_less(signed: SignedStatement, path: Path) -> bool:
    if not path.is_file():
        return False
    before = SignedStatement(path.read_bytes()).statement
    stated = signed.statement
    return (stated.messages.count, stated.chain.get("count", 0)) < (
        before.messages.count, before.chain.get("count", 0),
    )  # fmt: skip
