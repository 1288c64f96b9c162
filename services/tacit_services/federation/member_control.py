"""What is done with members and people: look, invite, cancel, revoke, and leave."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any, Literal

from tacit.errors import ConfigError
from tacit_services.enrollment.authority import CertificateAuthority
from tacit_services.enrollment.join_tokens import JoinTokens
from tacit_services.federation.access import token_to_give
from tacit_services.federation.audit_log import AuditLog
from tacit_services.federation.members import Member, Members
from tacit_services.federation.people import People, Person, Right
from tacit_services.federation.submissions import Refused
from tacit_services.federation.supervisor import Rules
from tacit_services.transport.pinned_authority import FederationAuthority


class MemberControl:
    """The operator's requests about members, tokens and people."""

    def __init__(
        self,
        members: Members,
        people: People,
        tokens: JoinTokens,
        certificates: CertificateAuthority,
        rules: Rules,
        authority: FederationAuthority,
        url: str,
        audit: AuditLog,
        withdraw: Callable[[str, Literal["", "unavailable"]], None],
        clock: Callable[[], float] = time.time,
    ) -> None:
        """url: of this host, for the lines to give away.

        withdraw: takes a member's consents back, for a reason that runs show.
        """
        self._members = members
        self._people = people
        self._tokens = tokens
        self._certificates = certificates
        self._rules = rules
        self._authority = authority
        self._url = url
        self._audit = audit
        self._withdraw = withdraw
        self._clock = clock
        self._inviting = threading.Lock()  # two files hold the names

    def listed(self, by: Person) -> dict[str, Any]:
        """Return members, people and open tokens; an operator's alone are the last two."""
        content: dict[str, Any] = {"members": [self._shown(m) for m in self._members.all()]}
        if by.may(Right.OPERATOR):
            content["people"] = [
                {"name": person.name, "right": person.right.name.lower(), "until": person.until}
                for person in self._people.all()
            ]
            content["tokens"] = [
                {"name": token.name, "left": token.left, "until": token.until}
                for token in self._tokens.all()
            ]
        return content

    def invite(
        self, by: Person, name: str, role: str, uses: int | None, until: float | None
    ) -> dict[str, Any]:
        """Return what to give away: a line to join with, or a person's token.

        No join token has a person's name: one word cancels either. Raises Refused.
        """
        _operator(by)
        try:
            with self._inviting:
                token, line = self._invited(name, role, uses, until)
        except ConfigError as error:
            raise Refused(422, str(error)) from error
        self._audit.add(by.name, "invited", name=name, role=role)
        return {"name": name, "role": role, "token": token, "line": line}

    def _invited(
        self, name: str, role: str, uses: int | None, until: float | None
    ) -> tuple[str, str]:
        """Return a new token, and the line to give away. Raises ConfigError."""
        if role == "member":
            if self._people.has(name):
                raise ConfigError(f"name={name!r}: a person has it; choose another")
            secret = self._tokens.add(name, uses=uses, until=until)
            return secret, f"tacit join {self._url} --token {secret} --ca {self._authority.pin()}"
        if self._tokens.has(name):
            raise ConfigError(
                f"name={name!r}: a join token has it, even one that has ended; cancel it first, or "
                "choose another"
            )
        secret = self._people.add(name, Right.named(role), until)
        token = token_to_give(secret, self._authority)
        return token, token

    def cancel(self, by: Person, name: str) -> None:
        """Let every token of this name be worth nothing from now on. Raises Refused."""
        _operator(by)
        # Before tacit looked at both, a join token and a person could have one name.
        was_there = [self._tokens.cancel(name), self._people.remove(name)]
        if not any(was_there):
            raise Refused(404, f"token {name[:100]!r}: there is none (tacit members list)")
        self._audit.add(by.name, "cancelled", name=name)

    def revoke(self, by: Person, name: str) -> dict[str, Any]:
        """End a membership: its certificate, its connections, its part in runs. Raises Refused."""
        _operator(by)
        try:
            member = self._members.revoke(name)
        except ConfigError as error:
            raise Refused(404, str(error)) from error
        with self._certificates.locked():
            # It has none where its host ended between its entry and its certificate.
            if self._certificates.issued(member.id):
                self._certificates.revoke(member.id)
        self._withdraw(member.id, "unavailable")
        self._rules.disconnect(member.id)
        self._audit.add(by.name, "revoked", name=member.name, member=member.id)
        tokens = [token.name for token in self._tokens.all() if token.left != 0]
        return self._shown(member) | {"open_tokens": tokens}

    def leave(self, member: Member) -> None:
        """End a membership by the member's own word, as `revoke` does; its key may come back."""
        self._members.leave(member.id)
        self._withdraw(member.id, "")
        self._rules.disconnect(member.id)
        self._audit.add(member.id, "left", name=member.name)

    def _shown(self, member: Member) -> dict[str, Any]:
        heard = self._members.last_heard(member.id)
        return {
            "id": member.id,
            "name": member.name,
            "since": member.since,
            "last_heard": None if heard is None else heard.at,
            "version": member.version if heard is None else heard.version or member.version,
            "certificate_until": None if member.revoked else self._certificates.ends(member.id),
            "revoked": member.revoked,
            "left": member.left,
        }


def _operator(by: Person) -> None:
    if not by.may(Right.OPERATOR):
        raise Refused(403, "the operator's token is needed for that")
