"""`POST /v1/enroll`: an edge shows a token and a signing request, and gets a certificate.

It is served over HTTPS only.

This is a process of its own, so that the aggregator, which reads what strangers send, never has the
authority's key.
"""

from __future__ import annotations

import logging
import ssl
from pathlib import Path
from typing import Annotated, Any

from cryptography.hazmat.primitives.asymmetric import ec
from fastapi import APIRouter, Depends, FastAPI, HTTPException, Response
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer
from pydantic import BaseModel, ConfigDict, Field

from tacit.errors import ConfigError
from tacit_services.enrollment import certificates
from tacit_services.enrollment.authority import (
    CA,
    CERTIFICATE,
    DAYS,
    KEY,
    RENEW_DAYS,
    CertificateAuthority,
    NameTaken,
)
from tacit_services.enrollment.tokens import NOBODY, EnrollmentToken, TokenRegister
from tacit_services.transport import http_server
from tacit_services.transport.address import bind
from tacit_services.transport.bearer import guarded
from tacit_services.transport.problems import document, documented, install

log = logging.getLogger("tacit.enrollment")
SERVER = "enrollment"  # the name of this server's own certificate
_BEARER = HTTPBearer(auto_error=False, description="an enrolment token")


class Asked(BaseModel):
    """A signing request for a P-256 key, whose common name is the edge's id."""

    model_config = ConfigDict(extra="forbid")
    csr: str = Field(min_length=1, max_length=3000, description="PEM (PKCS #10)")


class Enrolled(BaseModel):
    """The signed certificate, and the authority's."""

    edge: str
    certificate: str = Field(description="PEM; the broker takes its common name for the user")
    ca: str = Field(description="PEM")


class RegistrationAuthority:
    """The desk that decides who gets a certificate; the certificate authority signs it."""

    def __init__(self, authority: CertificateAuthority, days: int = DAYS) -> None:
        self._authority = authority
        self._days = days

    def enroll(self, token: str | None, csr: str) -> Enrolled:
        """Sign the certificate that is asked for.

        The same key may ask again, so a lost answer can be had again. Raises HTTPException: 401 for
        an unknown token, and 403 if the token is for other edges. It is 409 if the token was used,
        or the name is taken or revoked, and 422 if `csr` is no signing request.
        """
        tokens = TokenRegister(self._authority.folder)
        with self._authority.locked():
            registered = _registered(tokens, token)
            try:
                name, key = certificates.read_request(csr)
            except ValueError as error:
                raise HTTPException(422, f"csr: {error}") from error
            return self._served(tokens, registered, name, key)

    def check(self, credentials: HTTPAuthorizationCredentials | None) -> None:
        """Raise HTTPException (401) unless `credentials` is a token that is registered."""
        tokens = TokenRegister(self._authority.folder)
        _registered(tokens, None if credentials is None else credentials.credentials)

    def _served(
        self,
        tokens: TokenRegister,
        token: EnrollmentToken,
        name: str,
        key: ec.EllipticCurvePublicKey,
    ) -> Enrolled:
        if not token.allows(name):
            raise HTTPException(
                403,
                f"this token is for {token.edges}, not for {name!r}; TACIT_IDENTITY=N makes it "
                f"edge-N",
            )
        if token.once and token.served not in (NOBODY, name):
            raise HTTPException(409, "this one-time token has been used")
        try:
            # Only a fresh one-time token, made for this purpose, opens a name that was revoked.
            certificate = self._authority.standing(
                name, key, reopen=token.once and token.served == NOBODY
            )
        except NameTaken as error:
            raise HTTPException(409, str(error)) from error
        if token.once:
            # Before the signature: a crash must not leave a token that works twice.
            tokens.serve(token, name)
        if certificate is None or certificates.due(certificate, RENEW_DAYS):
            certificate = self._authority.sign(name, key, self._days)
            log.info("%s has a certificate until %s", name, certificate.not_valid_after_utc.date())
        pems = [
            certificates.pem(item).decode("ascii")
            for item in (certificate, self._authority.certificate)
        ]
        return Enrolled(edge=name, certificate=pems[0], ca=pems[1])


def _registered(tokens: TokenRegister, token: str | None) -> EnrollmentToken:
    if token is None:
        registered = None
    else:
        registered = tokens.find(token)
    if registered is None:
        raise HTTPException(
            401, "the enrolment token is missing or wrong", {"WWW-Authenticate": "Bearer"}
        )
    return registered


def create_app(registration: RegistrationAuthority) -> FastAPI:
    """Return the web application of a registration authority."""
    app = FastAPI(
        title="tacit enrolment",
        version="1",
        docs_url=None,
        redoc_url=None,
        responses=documented(400),
    )
    install(app)

    @app.get("/healthz", summary="The process answers")
    def healthz() -> dict[str, str]:
        return {"status": "alive"}

    router = APIRouter(route_class=guarded(_BEARER, registration.check))

    @router.post(
        "/v1/enroll",
        status_code=201,
        response_model=Enrolled,
        summary="Sign a certificate for an edge",
        responses=documented(401, 403, 409, 411, 413, 422),
    )
    def enroll(
        credentials: Annotated[HTTPAuthorizationCredentials | None, Depends(_BEARER)],
        request: Asked,
    ) -> Response:
        return document(
            registration.enroll(
                None if credentials is None else credentials.credentials, request.csr
            ).model_dump(),
            201,
        )

    app.include_router(router)
    return app


def web(
    app: FastAPI,
    server_folder: Path,
    clients: Path | None = None,
    origin: http_server.Origin = http_server.nobody_before,
) -> http_server.HttpServer:
    """Return an HTTPS server for `app`, with the certificate in the folder `server_folder`.

    clients: certificates of the authorities whose clients may show one (client_certificate.py). A
    client need not. None: no client is asked for one. origin: as HttpServer has it.
    """
    verified: dict[str, Any] = {}
    if clients is not None:
        verified = {"ssl_ca_certs": str(clients), "ssl_cert_reqs": ssl.CERT_OPTIONAL}
    return http_server.HttpServer(
        app,
        origin=origin,
        timeout_graceful_shutdown=1,
        ssl_certfile=server_folder / CERTIFICATE,
        ssl_keyfile=server_folder / KEY,
        **verified,
    )


def serve(folder: Path, address: str, days: int = DAYS) -> None:
    """Serve HTTPS at HOST:PORT until SIGTERM, with the certificate in FOLDER/enrollment.

    Raises TacitError.
    """
    app = create_app(RegistrationAuthority(CertificateAuthority(folder), days))
    server_folder = folder / SERVER
    for path in (server_folder / CERTIFICATE, server_folder / KEY):
        if not path.is_file():
            raise ConfigError(
                f"{path}: no such file; make it with tacit pki issue {SERVER} --host NAME"
            )
    listener = bind(address)
    server = web(app, server_folder)
    log.info("edges may enrol at https://%s, authority %s", address, folder / CA)
    with listener:
        server.run(sockets=[listener])
