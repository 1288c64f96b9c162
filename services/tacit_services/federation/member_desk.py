"""`POST /v1/enroll` and `/v1/renew` of a federation: a machine becomes a member, and stays one.

A machine shows a join token and a signing request; it gets a number, a name and a certificate. Its
key stays with it. Before its certificate ends, it gets another by showing that one.
"""

from __future__ import annotations

from fastapi import APIRouter

from tacit_services.enrollment.authority import CertificateAuthority
from tacit_services.enrollment.join_tokens import JoinTokens
from tacit_services.federation.members import Member, Members


class MemberDesk:
    """The desk that decides who becomes a member; the certificate authority signs."""

    def __init__(
        self, authority: CertificateAuthority, tokens: JoinTokens, members: Members
    ) -> None:
        """authority: of FOLDER/ca, whose name for member N is edge-N."""
        raise NotImplementedError

    def router(self) -> APIRouter:
        """Return the routes `POST /v1/enroll`, `POST /v1/renew` and `GET /v1/ca`."""
        raise NotImplementedError


def member_of_request(members: Members) -> object:
    """Return FastAPI's dependency that gives a request's `Member`, by its client certificate.

    401 without a certificate, 403 for one of nobody, or of a member that was revoked.
    """
    raise NotImplementedError


_ = Member
