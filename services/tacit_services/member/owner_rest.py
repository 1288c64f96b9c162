"""The REST interface of a member, for its owner's page on the same machine.

Everything needs the token that lies in the member's folder. What an owner accepts is what the page
has shown: the answer names the offer's fingerprint, and the SHA-256 of the costs that were shown.
"""

from __future__ import annotations

import hmac
import secrets
from collections.abc import Callable
from typing import Annotated, Literal

from fastapi import APIRouter, Depends, FastAPI, HTTPException, Query, Request, Response
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer
from fastapi.security.utils import get_authorization_scheme_param
from pydantic import BaseModel, ConfigDict, Field
from starlette.datastructures import Headers
from starlette.types import Scope

from tacit.digests import Sha256
from tacit.errors import TacitError
from tacit_services.aggregator.page.static_files import StaticFiles, routes_of
from tacit_services.disk import files
from tacit_services.member.answering import AnswerRefused
from tacit_services.member.member_state import MemberState
from tacit_services.member.owner_desk import OwnerDesk
from tacit_services.offers.offer import RUN
from tacit_services.transport.bearer import guarded
from tacit_services.transport.http_pace import Pace
from tacit_services.transport.known_hosts import KnownHosts
from tacit_services.transport.problems import document, documented, install, problem

TOKEN = "page-token"  # noqa: S105  (a file's name)
_FIRST = "owner.html"
_BEARER = HTTPBearer(auto_error=False, description="the token in the member's folder")


class Deciding(BaseModel):
    """An owner's answer to the offer of this fingerprint.

    costs: those that the offer had when it was read; they are needed to accept it.
    """

    model_config = ConfigDict(extra="forbid")
    fingerprint: Sha256
    costs: Sha256 | None = None


def new_token(state: MemberState) -> str:
    """Return a new token of a member's page, which replaces the one before. Raises OSError.

    A page that is still open shows its token to the program that serves the address by then, which
    may be another user's. So no token is worth anything after the end of its server.
    """
    token = secrets.token_urlsafe(24)
    files.write(state.folder / TOKEN, f"{token}\n".encode(), files.SECRET)
    return token


def create_app(desk: OwnerDesk, token: str) -> FastAPI:
    """Return the application of the owner's page."""
    app = FastAPI(
        title="tacit member",
        version="1",
        docs_url=None,
        redoc_url=None,
        description="A member of a federation, for its owner.",
        responses=documented(400, 421, 429),
    )
    app.add_middleware(KnownHosts)
    install(app)
    app.add_middleware(Pace, free=lambda scope: _is_free(scope, token))

    @app.exception_handler(TacitError)
    def refused(_: Request, error: TacitError) -> Response:
        return problem(409, error.words if isinstance(error, AnswerRefused) else str(error))

    app.include_router(_pages())
    check = _checked(token)
    app.include_router(_routes(desk, check))
    app.include_router(_spending(desk, check))
    app.include_router(_reports(desk, check))
    return app


def _is_free(scope: Scope, token: str) -> bool:
    """Return whether a request is never delayed: the owner's, or for a part of the page."""
    if not scope["path"].startswith("/v1/"):
        return True
    scheme, credentials = get_authorization_scheme_param(Headers(scope=scope).get("authorization"))
    return scheme.lower() == "bearer" and hmac.compare_digest(credentials.encode(), token.encode())


def _checked(token: str) -> Callable[[HTTPAuthorizationCredentials | None], None]:
    """Return what raises HTTPException (401) for another token."""

    def check(credentials: HTTPAuthorizationCredentials | None) -> None:
        shown = "" if credentials is None else credentials.credentials
        if not hmac.compare_digest(shown.encode(), token.encode()):
            raise HTTPException(
                401, "the token is in the member's folder", {"WWW-Authenticate": "Bearer"}
            )

    return check


def _pages() -> APIRouter:
    pages = StaticFiles.of(
        ("tacit_services.aggregator.page", "static"), ("tacit_services.member.page", "static")
    )
    return routes_of(pages, "/", "/page", _FIRST)


OfferedName = Annotated[str, Field(pattern=RUN)]
OwnerAction = Literal["accept", "decline", "withdraw", "confirm"]


def _router(check: Callable[[HTTPAuthorizationCredentials | None], None]) -> APIRouter:
    """Return a router of what the token opens."""
    return APIRouter(
        prefix="/v1",
        tags=["owner"],
        route_class=guarded(_BEARER, check),
        dependencies=[Depends(_BEARER)],
        responses=documented(401),
    )


def _routes(
    desk: OwnerDesk, check: Callable[[HTTPAuthorizationCredentials | None], None]
) -> APIRouter:
    router = _router(check)

    @router.get("/me", summary="Who this member is")
    def me() -> Response:
        return document(desk.me())

    @router.get("/offers", summary="Every offer that has come, and how it stands")
    def offers() -> Response:
        return document(desk.offers())

    @router.get(
        "/offers/{run}", summary="What is to be read of an offer", responses=documented(404)
    )
    def offer(run: OfferedName) -> Response:
        try:
            return document(desk.offer(run))
        except KeyError:
            return _missing(run)

    @router.post("/offers/{run}/{action}", summary="Accept, decline, withdraw, confirm a key",
                 responses=documented(404, 409, 422))  # fmt: skip
    def decide(run: OfferedName, action: OwnerAction, deciding: Deciding) -> Response:
        try:
            return document(
                {"said": desk.decide(run, action, deciding.fingerprint, deciding.costs)}
            )
        except KeyError:
            return _missing(run)

    return router


def _spending(
    desk: OwnerDesk, check: Callable[[HTTPAuthorizationCredentials | None], None]
) -> APIRouter:
    router = _router(check)

    @router.get("/ledger", summary="What the data has spent")
    def ledger() -> Response:
        return document(desk.ledger())

    @router.get("/departures", summary="What has left, by run")
    def departures() -> Response:
        return document(desk.departures())

    @router.get(
        "/departures/{run}", summary="What has left in a run before a message",
        responses=documented(404, 422),
    )  # fmt: skip
    def earlier(run: OfferedName, before: Annotated[int, Query(ge=1)]) -> Response:
        try:
            return document(desk.earlier(run, before))
        except KeyError:
            return _missing(run)

    return router


def _reports(
    desk: OwnerDesk, check: Callable[[HTTPAuthorizationCredentials | None], None]
) -> APIRouter:
    router = _router(check)

    @router.get("/reports/{run}", summary="What a run was worth here, once it is known",
                responses=documented(404))  # fmt: skip
    def report(run: OfferedName) -> Response:
        try:
            return document(desk.report(run))
        except KeyError:
            return _missing(run)

    @router.post("/reports/{run}", summary="Find out what a run was worth here",
                 status_code=202, responses=documented(404, 409))  # fmt: skip
    def make(run: OfferedName) -> Response:
        try:
            return document(desk.make_report(run), 202)
        except KeyError:
            return _missing(run)

    return router


def _missing(run: str) -> Response:
    return problem(404, f"run {run!r}: no such offer has come")
