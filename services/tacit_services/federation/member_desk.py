"""`POST /v1/enroll` and `/v1/renew` of a federation: a machine becomes a member, and stays one.

A machine shows a join token and a signing request. It gets a number, a name and a certificate; its
key stays with it. Before its certificate ends, it gets another by showing that one.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Annotated

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from fastapi import APIRouter, Depends, HTTPException, Request, Response
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer
from pydantic import BaseModel, ConfigDict, Field

from tacit.errors import ConfigError
from tacit.shown import printable
from tacit_services.enrollment import certificates, client_certificate
from tacit_services.enrollment.authority import DAYS, RENEW_DAYS, CertificateAuthority, NameTaken
from tacit_services.enrollment.join_tokens import JoinTokens, TokenRefusedError, TooManyError
from tacit_services.federation.members import Member, Members, NotAdmittedError
from tacit_services.transport.bearer import guarded
from tacit_services.transport.problems import document, documented
from tacit_services.versions import VERSION_HEADER, own_version, who_must_move

log = logging.getLogger("tacit.federation")
_VERSION = 40  # characters
_BEARER = HTTPBearer(auto_error=False, description="a join token")


class Joining(BaseModel):
    """What a machine says that asks to become a member."""

    model_config = ConfigDict(extra="forbid")
    csr: str = Field(
        min_length=1, max_length=3000, description="PEM (PKCS #10), P-256; its name is ignored"
    )
    name: str | None = Field(None, max_length=100, description="what people are to call it")
    machine: str = Field(
        "", max_length=100, description="of which a name is made where there is none"
    )
    version: str = Field("", max_length=_VERSION, description="of its tacit")


class Renewing(BaseModel):
    """What a member says that asks for another certificate of its key."""

    model_config = ConfigDict(extra="forbid")
    csr: str = Field(min_length=1, max_length=3000, description="PEM (PKCS #10), of the same key")


class Joined(BaseModel):
    """A member's id and name, its certificate, and the federation's authority."""

    edge: str = Field(description="its id; the certificate's common name")
    name: str
    certificate: str = Field(description="PEM")
    ca: str = Field(description="PEM")


class Authority(BaseModel):
    """The federation's certificate authority."""

    ca: str = Field(description="PEM; a machine that joins compares its SHA-256")


class AboutHost(BaseModel):
    """What a member may know of the host."""

    version: str = Field(description="of its tacit")


class MemberDesk:
    """The desk that decides who becomes a member; the certificate authority signs."""

    def __init__(
        self,
        authority: CertificateAuthority,
        tokens: JoinTokens,
        members: Members,
        days: float = DAYS,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """authority: FOLDER/ca. days: for which a certificate is valid.

        clock: seconds since 1970, by which certificates end.
        """
        self._authority = authority
        self._tokens = tokens
        self._members = members
        self._days = days
        self._clock = clock

    def check(self, credentials: HTTPAuthorizationCredentials | None) -> None:
        """Raise HTTPException (401) unless this is a join token whose time is not over."""
        try:
            self._tokens.check(_secret(credentials))
        except TokenRefusedError as error:
            raise HTTPException(401, str(error), {"WWW-Authenticate": "Bearer"}) from error

    def enroll(self, token: str, asked: Joining) -> Joined:
        """Make a machine a member, and sign its certificate.

        The same key may ask again, so an answer that was lost can be had again. Raises
        HTTPException. 403: the token is used up, expired or cancelled. 409: the name is taken, or
        the member was revoked. 422: a signing request, or a name, that cannot be one. 429: the
        token has admitted many within an hour. 412: its tacit is too far from ours; the token was
        not used.
        """
        version = printable(asked.version)
        _require_near(version)
        key = _requested(asked.csr)
        digest = certificates.key_digest(key)
        with self._authority.locked():
            try:
                served = self._tokens.serve(token, digest)
                member = self._members.admit(digest, asked.name, printable(asked.machine), version)
            except TooManyError as error:
                raise HTTPException(429, str(error), {"Retry-After": str(error.wait)}) from error
            except TokenRefusedError as error:
                raise HTTPException(403, str(error)) from error
            except NotAdmittedError as error:
                raise HTTPException(409, str(error)) from error
            except ConfigError as error:
                raise HTTPException(422, str(error)) from error
            answer = self._signed(member, key)
        log.info("%s is %r, by the token %r", member.id, member.name, served.name)
        return answer

    def renew(self, member: Member, csr: str) -> Joined:
        """Sign another certificate of a member's key. Raises HTTPException: 409, 422."""
        key = _requested(csr)
        if certificates.key_digest(key) != member.key:
            raise HTTPException(409, "csr: is of another key than the member's")
        with self._authority.locked():
            return self._signed(member, key)

    def router(self) -> APIRouter:
        """Return the routes `POST /v1/enroll`, `POST /v1/renew`, `GET /v1/host`, `GET /v1/ca`."""
        routes = APIRouter()
        # Not in an annotation: these are strings, which know no local name.
        known = Depends(member_of_request(self._members, self._clock))
        routes.include_router(self._enrolment())

        @routes.post(
            "/v1/renew",
            status_code=201,
            response_model=Joined,
            summary="Sign another certificate for a member, by the one that it shows",
            responses=documented(401, 403, 409, 411, 413, 422),
        )
        def renew(request: Renewing, member: Member = known) -> Response:
            return document(self.renew(member, request.csr).model_dump(), 201)

        @routes.get(
            "/v1/host",
            response_model=AboutHost,
            summary="What a member may know of the host",
            responses=documented(401, 403),
        )
        def host(_: Member = known) -> Response:
            return document(AboutHost(version=own_version()).model_dump())

        @routes.get("/v1/ca", response_model=Authority, summary="The federation's authority")
        def authority() -> Response:
            return document({"ca": self._ca()})

        return routes

    def _enrolment(self) -> APIRouter:
        routes = APIRouter(route_class=guarded(_BEARER, self.check))

        @routes.post(
            "/v1/enroll",
            status_code=201,
            response_model=Joined,
            summary="Make a machine a member",
            responses=documented(401, 403, 409, 411, 412, 413, 422, 429),
        )
        def enroll(
            credentials: Annotated[HTTPAuthorizationCredentials | None, Depends(_BEARER)],
            request: Joining,
        ) -> Response:
            return document(self.enroll(_secret(credentials), request).model_dump(), 201)

        return routes

    def _signed(self, member: Member, key: ec.EllipticCurvePublicKey) -> Joined:
        try:
            certificate = self._authority.standing(member.id, key)
        except NameTaken as error:
            raise HTTPException(409, str(error)) from error
        if certificate is None or self._wears_out(certificate):
            certificate = self._authority.sign(member.id, key, self._days)
        pem = certificates.pem(certificate).decode("ascii")
        return Joined(edge=member.id, name=member.name, certificate=pem, ca=self._ca())

    @staticmethod
    def _wears_out(certificate: x509.Certificate) -> bool:
        return certificates.due(certificate, RENEW_DAYS) or certificates.mostly_over(certificate)

    def _ca(self) -> str:
        return certificates.pem(self._authority.certificate).decode("ascii")


def member_of_request(
    members: Members, clock: Callable[[], float] = time.time
) -> Callable[[Request], Member]:
    """Return what FastAPI's `Depends` takes for a request's `Member`, by its client certificate.

    It notes that the member was heard of. clock: seconds since 1970. Raises HTTPException: 401
    without a certificate or with one that has ended, 403 for that of nobody, or of a member that
    was revoked or has left.
    """

    def member(request: Request) -> Member:
        certificate = client_certificate.shown(request.scope)
        if certificate is None:
            raise HTTPException(401, "a member's certificate is needed; tacit join gets one")
        if certificate.ends <= clock():
            raise HTTPException(
                401, f"the certificate of {certificate.name!r} has ended; join anew by a new line"
            )
        entered = members.get(certificate.name)
        if entered is None or entered.key != certificate.key:
            raise HTTPException(403, f"{certificate.name!r} is no member of this federation")
        if entered.revoked is not None:
            raise HTTPException(403, f"{entered.name!r} ({entered.id}) was revoked")
        if entered.left is not None:
            raise HTTPException(403, f"{entered.name!r} ({entered.id}) has left; it may join anew")
        members.heard(entered.id, _version_of(request))
        return entered

    return member


def near_member_of_request(
    members: Members, clock: Callable[[], float] = time.time
) -> Callable[[Request], Member]:
    """Return what `member_of_request` does, for requests about runs.

    It raises HTTPException (412) as well, where the member's tacit is too far from ours. It
    warns of each member once, as what a member says of itself may change with every request.
    """
    member = member_of_request(members, clock)
    warned: set[str] = set()

    def near(request: Request) -> Member:
        asker = member(request)
        version = _version_of(request)
        try:
            _require_near(version)
        except HTTPException as error:
            if asker.id not in warned:
                warned.add(asker.id)
                log.warning("%r (%s): %s", asker.name, asker.id, error.detail)
            raise
        return asker

    return near


def _version_of(request: Request) -> str:
    return printable(request.headers.get(VERSION_HEADER, ""), _VERSION)


def _require_near(version: str) -> None:
    """Raise HTTPException (412) where a member of this version cannot work with this host."""
    if words := who_must_move(own_version(), version):
        raise HTTPException(412, words)


def _secret(credentials: HTTPAuthorizationCredentials | None) -> str:
    return "" if credentials is None else credentials.credentials


def _requested(csr: str) -> ec.EllipticCurvePublicKey:
    try:
        return certificates.read_request(csr)[1]
    except ValueError as error:
        raise HTTPException(422, f"csr: {error}") from error
