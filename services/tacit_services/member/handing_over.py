"""A member's statements, handed to its host: of each run, once it has stated something new."""

from __future__ import annotations

import logging
from pathlib import Path

from tacit import regular_file
from tacit.errors import ConfigError
from tacit_services.member.consent import Consent
from tacit_services.member.host_client import HostClient
from tacit_services.member.member_state import MemberState
from tacit_services.statements.statement import MOST, SignedStatement, StatedConsent, statement_file

log = logging.getLogger("tacit.member")


class HandingOver:
    """What of a member's statements the host has."""

    def __init__(self, host: HostClient, state: MemberState) -> None:
        self._host = host
        self._state = state
        self._told: dict[str, bytes] = {}  # by run: the file that the host was shown

    def hand_over(self, run: str) -> None:
        """Hand the statement on a run to the host, unless it has it.

        A statement that the host refuses is not shown again. Raises ServiceError where the host
        does not answer.
        """
        path = statement_on(self._state, run)
        if path is None:
            return
        try:
            content = regular_file.content(path, MOST)
            if self._told.get(run) == content:
                return  # it is asked for at every turn, and read once
            signed = SignedStatement(content)
        except (OSError, ValueError) as error:
            log.warning("%s: %s", path, error)
            return
        self._told[run] = signed.file
        try:
            self._host.state(run, signed.file)
        except ConfigError as error:
            log.warning("run %s: the host takes no statement: %s", run, error)
            return
        log.info("run %s: the host has this member's statement", run)


def statement_on(state: MemberState, run: str) -> Path | None:
    """Return the file of a member's statement on a run; None: there is none."""
    membership = state.membership()
    if membership is None:
        return None
    root = Path(membership.published or state.folder / "runs" / run / "identities")
    path = statement_file(root / str(membership.number), run)
    return path if path.is_file() else None


def stated(consents: tuple[Consent, ...], run: str) -> list[StatedConsent]:
    """Return an owner's answers to the offers of a run, as a statement has them."""
    return [
        StatedConsent(
            offer=each.fingerprint,
            answer=each.answer,
            at=each.at.date(),
            by_policy=each.by_policy,
            withdrawn=None if each.withdrawn is None else each.withdrawn.date(),
        )
        for each in consents
        if each.run == run
    ]
