"""The REST interface of a federation's host: offers for members, runs for people.

A member is known by its client certificate, a person by a token. `/v1/runs/{run}/…` beyond the
routes here is the run's own interface, as its aggregator serves it (docs/rest.md).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Body, Depends, FastAPI, HTTPException, Query, Request, Response
from fastapi.responses import FileResponse
from fastapi.routing import APIRoute
from fastapi.security import HTTPAuthorizationCredentials
from pydantic import BaseModel, ConfigDict, Field
from starlette.concurrency import run_in_threadpool
from starlette.types import Scope

from tacit.digests import Sha256
from tacit.errors import ConfigError, ServiceError
from tacit_services.federation.audit_log import AuditLog
from tacit_services.federation.file_pool import BadUpload, FilePool, NoRoom, OverQuota
from tacit_services.federation.host_packing import HostPacking, RunFileUpload
from tacit_services.federation.member_control import MemberControl
from tacit_services.federation.member_desk import MemberDesk
from tacit_services.federation.members import Member
from tacit_services.federation.people import Person, Right
from tacit_services.federation.person_access import PERSON_TOKEN
from tacit_services.federation.run_desk import RunDesk
from tacit_services.federation.run_proxy import RunProxy
from tacit_services.federation.run_records import Answered, Reason, RunRecords
from tacit_services.federation.statement_desk import StatementDesk
from tacit_services.federation.submissions import Refused
from tacit_services.transport.bearer import guarded
from tacit_services.transport.http_pace import Caller, Pace, nobody_shown
from tacit_services.transport.known_hosts import KnownHosts
from tacit_services.transport.pinned_authority import PATH as AUTHORITY
from tacit_services.transport.pinned_authority import FederationAuthority
from tacit_services.transport.problems import Problem, document, documented, install, problem

OFFER_BYTES = 1 << 22
STATEMENT_BYTES = 1 << 22
_LAST_SECOND = 253_402_300_799.0  # of the year 9999: a later one has no date
_BINARY = "application/octet-stream"


class Answering(BaseModel):
    """A member's answer to an offer, of which `fingerprint` is."""

    model_config = ConfigDict(extra="forbid")
    fingerprint: Sha256
    answer: Answered
    reason: Reason = ""


class StatementText(BaseModel):
    """What a member states on a run, as it has signed it."""

    model_config = ConfigDict(extra="forbid")
    statement: str = Field(min_length=2, max_length=STATEMENT_BYTES)


class Stopping(BaseModel):
    """Why a run is stopped: its members are told."""

    model_config = ConfigDict(extra="forbid")
    # No control characters, as of an aggregator's halt: it is logged, journalled, sent and shown.
    reason: str = Field(
        "stopped by its researcher", min_length=1, max_length=200, pattern=r"^[^\x00-\x1f\x7f]+$"
    )


@dataclass(frozen=True, slots=True)
class HostDesks:
    """Who answers at a host. member, person: FastAPI's dependencies that give who asks.

    near_member: a member of a version that can work here.
    """

    authority: FederationAuthority
    members: MemberDesk
    runs: RunDesk
    statements: StatementDesk
    records: RunRecords
    control: MemberControl
    audit: AuditLog
    pool: FilePool
    packing: HostPacking
    proxy: RunProxy
    member: Callable[..., Member]
    near_member: Callable[..., Member]
    person: Callable[..., Person]

    def routers(self) -> Iterator[APIRouter]:
        """Yield all routes of the REST interface."""
        yield authority_routes(self.authority)
        yield self.members.router()
        yield offer_routes(self.runs, self.near_member)
        yield statement_routes(self.statements, self.near_member)
        yield leaving_routes(self.control, self.member)
        yield person_routes(self.person)
        yield member_routes(self.control, self.person)
        yield audit_routes(self.audit, self.person)
        yield file_routes(self.pool, self.person)
        yield run_file_routes(self.packing, self.runs, self.person)
        yield result_routes(self.runs, self.records, self.person)
        yield run_routes(self.runs, self.proxy, self.person)


def authority_routes(authority: FederationAuthority) -> APIRouter:
    """Return what a newcomer asks first: whom to believe, known by its SHA-256."""
    router = APIRouter(tags=["newcomers"])

    @router.get(AUTHORITY, summary="The authority, as the line that lets members join names it")
    def whom_to_believe() -> Response:
        return Response(authority.document(), media_type="application/json")

    return router


def offer_routes(desk: RunDesk, member: Callable[..., Member]) -> APIRouter:
    """Return what members may ask for. member: who asks; raises HTTPException."""
    router = APIRouter(prefix="/v1/offers", tags=["members"], responses=documented(401, 403))
    known = Depends(member)  # not in an annotation: these are strings, which know no local name

    @router.get("", summary="The runs that are offered, and how each stands")
    def offers(_: Member = known) -> Response:
        return document(desk.offered())

    @router.get("/{run}", summary="An offer, as its researcher signed it",
                responses=documented(404))  # fmt: skip
    def offer(run: str, _: Member = known) -> Response:
        return Response(desk.offer(run), media_type="application/json")

    @router.get("/{run}/files/{digest}", summary="A file that an offer refers to",
                responses=documented(404))  # fmt: skip
    def file(run: str, digest: str, _: Member = known) -> Response:
        return FileResponse(desk.file(run, digest), media_type=_BINARY)

    @router.get("/{run}/model", summary="The model that the run has ended with, as safetensors",
                responses=documented(404))  # fmt: skip
    def model(run: str, asker: Member = known) -> Response:
        return FileResponse(desk.model(run, asker.id), media_type=_BINARY)

    @router.put("/{run}/answer", status_code=204, summary="What this member's owner answers",
                responses=documented(404, 409, 422))  # fmt: skip
    def answer(run: str, answering: Answering, asker: Member = known) -> Response:
        desk.answer(run, asker.id, answering.model_dump())
        return Response(status_code=204)

    return router


def statement_routes(desk: StatementDesk, member: Callable[..., Member]) -> APIRouter:
    """Return the route by which a member states what it has released. member: who asks."""
    router = APIRouter(prefix="/v1/offers", tags=["members"], responses=documented(401, 403))
    known = Depends(member)

    @router.put("/{run}/statement", status_code=204, summary="What this member has released",
                responses=documented(404, 409, 422))  # fmt: skip
    def state(run: str, text: StatementText, asker: Member = known) -> Response:
        desk.take(run, asker, text.statement)
        return Response(status_code=204)

    return router


def leaving_routes(control: MemberControl, member: Callable[..., Member]) -> APIRouter:
    """Return the route by which a member ends its membership. member: as of `offer_routes`."""
    router = APIRouter(tags=["members"], responses=documented(401, 403))
    known = Depends(member)

    @router.post("/v1/leave", status_code=204, summary="End this member's membership")
    def leave(asker: Member = known) -> Response:
        control.leave(asker)
        return Response(status_code=204)

    return router


def result_routes(desk: RunDesk, records: RunRecords, person: Callable[..., Person]) -> APIRouter:
    """Return the routes of runs' results and offers.

    person: as of `run_routes`, which come after these.
    """
    router = APIRouter(prefix="/v1/runs", tags=["people"], responses=documented(401, 403))
    known = Depends(person)

    @router.get("/{run}/results", summary="The files of a run's results",
                responses=documented(404))  # fmt: skip
    def results(run: str, by: Person = known) -> Response:
        folder = records.results(desk.run(run, by).name)
        names = sorted(path for path in folder.glob("*") if path.is_file())
        return document([{"file": path.name, "bytes": path.stat().st_size} for path in names])

    @router.get("/{run}/offer", summary="Its offer, as its researcher signed it",
                responses=documented(404))  # fmt: skip
    def offer(run: str, by: Person = known) -> Response:
        return Response(desk.offer(desk.run(run, by).name), media_type="application/json")

    @router.get("/{run}/files/{digest}", summary="A file that its offer refers to",
                responses=documented(404))  # fmt: skip
    def file(run: str, digest: str, by: Person = known) -> Response:
        return FileResponse(desk.file(desk.run(run, by).name, digest), media_type=_BINARY)

    @router.get("/{run}/results/{file}", summary="A file of a run's results",
                responses=documented(404))  # fmt: skip
    def result(run: str, file: str, by: Person = known) -> Response:
        folder = records.results(desk.run(run, by).name)
        if file not in {path.name for path in folder.glob("*") if path.is_file()}:
            return problem(404, f"run {run}: has no result {file[:80]!r}")
        return FileResponse(folder / file, media_type=_BINARY)

    return router


def run_routes(desk: RunDesk, proxy: RunProxy, person: Callable[..., Person]) -> APIRouter:
    """Return what people may ask for. person: who asks, by their token; raises HTTPException."""
    router = APIRouter(
        prefix="/v1/runs",
        tags=["people"],
        responses=documented(401, 403),
        route_class=_known_first(person),
    )
    known = Depends(person)

    async def still(request: Request) -> Callable[[], bool]:
        """Return what tells whether this request's token is still worth what it was."""
        credentials = await PERSON_TOKEN(request)

        def may() -> bool:
            try:
                person(credentials)
            except (HTTPException, ConfigError):
                return False
            return True

        return may

    @router.get("", summary="All runs that the token may see, and how each stands")
    def runs(by: Person = known) -> Response:
        return document(desk.runs(by))

    @router.post("", status_code=201, summary="Submit a run: an offer whose files are uploaded",
                 responses=documented(409, 413, 422, 507))  # fmt: skip
    def submit(content: Annotated[dict[str, Any], Body()], by: Person = known) -> Response:
        return document(desk.submit(content, by), 201)

    @router.post("/{run}/stop", status_code=202, summary="End a run, with its results",
                 responses=documented(404, 422))  # fmt: skip
    def stop(run: str, stopping: Stopping | None = None, by: Person = known) -> Response:
        return document(desk.stop(run, by, (stopping or Stopping()).reason), 202)

    @router.post("/{run}/begin", status_code=202, summary="Begin with those who have consented",
                 responses=documented(404, 409))  # fmt: skip
    def begin(run: str, by: Person = known) -> Response:
        return document(desk.begin(run, by), 202)

    @router.api_route("/{run}/{path:path}", methods=["GET", "HEAD"], include_in_schema=False)
    async def read(request: Request, run: str, path: str, by: Person = known) -> Response:
        desk.training(run, by)
        return await proxy.passed_on(request, run, path, await still(request))

    @router.post("/{run}/{path:path}", include_in_schema=False)
    async def write(request: Request, run: str, path: str, by: Person = known) -> Response:
        await run_in_threadpool(desk.passed_on, run, by, path)
        return await proxy.passed_on(request, run, path, await still(request))

    return router


class Faults(Problem):
    """Why a run file was refused. faults: all that is wrong with it and its files, a line each."""

    faults: tuple[str, ...] = ()


def run_file_routes(
    packing: HostPacking, desk: RunDesk, person: Callable[..., Person]
) -> APIRouter:
    """Return the route by which a page submits a run. person: as of `run_routes`."""
    router = APIRouter(
        tags=["people"], responses=documented(401, 403), route_class=_known_first(person)
    )
    asker = Depends(person)

    @router.post("/v1/run-files", status_code=201,
                 summary="Submit a run file, for the host to pack and to sign",
                 responses=documented(409, 413, 507) | documented(422, kind=Faults))  # fmt: skip
    def submit(upload: RunFileUpload, by: Person = asker) -> Response:
        content = packing.packed(upload, by).model_dump()
        return document(desk.submit(content, by, "host"), 201)

    return router


def audit_routes(audit: AuditLog, person: Callable[..., Person]) -> APIRouter:
    """Return the route by which the operator reads who did what."""
    router = APIRouter(tags=["people"], responses=documented(401, 403))
    asker = Depends(person)

    @router.get("/v1/audit", summary="What was done last, the newest first")
    def newest(limit: Annotated[int, Query(gt=0, le=1000)] = 200, by: Person = asker) -> Response:
        if not by.may(Right.OPERATOR):
            return problem(403, "the operator's token is needed for that")
        return document(audit.newest(limit))

    return router


def person_routes(person: Callable[..., Person]) -> APIRouter:
    """Return the route by which a person learns under which name and right they are known."""
    router = APIRouter(tags=["people"], responses=documented(401))
    known = Depends(person)

    @router.get("/v1/me", summary="Whose token this is")
    def me(by: Person = known) -> Response:
        return document({"name": by.name, "right": by.right.name.lower()})

    return router


class Naming(BaseModel):
    """Whom a request is about. It may be any name: those of earlier hosts read like paths."""

    model_config = ConfigDict(extra="forbid")
    name: str = Field(min_length=1, max_length=100)


class Inviting(BaseModel):
    """For whom a token is: uses: how many may join by it; until: seconds since 1970."""

    model_config = ConfigDict(extra="forbid")
    name: str = Field(min_length=1, max_length=100)
    role: Literal["member", "researcher", "reader"] = "member"
    uses: int | None = Field(None, gt=0)
    until: float | None = Field(None, gt=0, le=_LAST_SECOND)


def member_routes(control: MemberControl, person: Callable[..., Person]) -> APIRouter:
    """Return the routes about members, people and tokens; to change them is the operator's."""
    router = APIRouter(prefix="/v1/members", tags=["people"], responses=documented(401, 403))
    known = Depends(person)

    @router.get("", summary="Who is a member, and which tokens are open")
    def listed(by: Person = known) -> Response:
        return document(control.listed(by))

    @router.post("/invite", status_code=201, summary="Make a token", responses=documented(422))
    def invite(inviting: Inviting, by: Person = known) -> Response:
        return document(control.invite(by, **inviting.model_dump()), 201)

    @router.post("/cancel", status_code=204, summary="Let a token be worth nothing",
                 responses=documented(404, 422))  # fmt: skip
    def cancel(naming: Naming, by: Person = known) -> Response:
        control.cancel(by, naming.name)
        return Response(status_code=204)

    @router.post("/revoke", summary="End a membership", responses=documented(404, 422))
    def revoke(naming: Naming, by: Person = known) -> Response:
        return document(control.revoke(by, naming.name))

    @router.post("/cancel/{name}", status_code=204, summary="The same, of a name without / or dots",
                 responses=documented(404))  # fmt: skip
    def cancel_by_path(name: str, by: Person = known) -> Response:
        return cancel(Naming(name=name), by)

    @router.post("/revoke/{name}", summary="The same, of a name without / or dots",
                 responses=documented(404))  # fmt: skip
    def revoke_by_path(name: str, by: Person = known) -> Response:
        return revoke(Naming(name=name), by)

    return router


def file_routes(pool: FilePool, person: Callable[..., Person]) -> APIRouter:
    """Return the routes by which the files of an offer come to the host, before the offer."""
    router = APIRouter(prefix="/v1/files", tags=["people"], responses=documented(401, 403))
    known = Depends(person)

    @router.head("/{digest}", summary="Whether a file is here", responses=documented(404))
    def is_here(digest: str, _: Person = known) -> Response:
        return Response(status_code=200 if pool.wanted(digest) else 404)

    @router.put("/{digest}", status_code=204, summary="Upload a file, named by its SHA-256",
                responses=documented(413, 422, 507))  # fmt: skip
    async def upload(request: Request, digest: str, by: Person = known) -> Response:
        if not by.may(Right.RESEARCHER):
            return problem(403, "a reader's token uploads nothing")
        try:
            quota_of = None if by.may(Right.OPERATOR) else by.name
            await pool.take(digest, request.stream(), quota_of)
        except NoRoom as error:
            return problem(507, str(error))
        except OverQuota as error:
            return problem(413, str(error))
        except BadUpload as error:
            return problem(422, str(error))
        return Response(status_code=204)

    return router


def _known_first(person: Callable[..., Person]) -> type[APIRoute]:
    """Return a kind of route that asks for the token before a body is read, which may be large."""

    def check(credentials: HTTPAuthorizationCredentials | None) -> None:
        person(credentials)

    return guarded(PERSON_TOKEN, check)


def _asks_for_health(scope: Scope) -> bool:
    return bool(scope["path"] == "/healthz")


def create_app(
    routers: Iterable[APIRouter],
    hosts: Iterable[str],
    caller: Callable[[Scope], Caller | None] = nobody_shown,
    *,
    clock: Callable[[], float] = time.monotonic,
) -> FastAPI:
    """Return the application of a host. hosts: further names under which it may be asked for.

    caller: who asks; they have an allowance of requests besides that of the address, which `clock`
    fills again.
    """
    app = FastAPI(
        title="tacit federation",
        version="1",
        docs_url=None,
        redoc_url=None,
        description="A federation: its members, its offers and its runs.",
        responses=documented(400, 421, 429),
    )
    app.add_middleware(KnownHosts, names=tuple(hosts))
    install(app, large=_large)
    app.add_middleware(Pace, free=_asks_for_health, caller=caller, clock=clock)

    @app.exception_handler(ServiceError)
    def later(_: Request, error: ServiceError) -> Response:
        return problem(503, str(error), {"Retry-After": "1"})

    @app.exception_handler(Refused)
    def refused(_: Request, error: Refused) -> Response:
        more: dict[str, Any] = {"faults": error.faults} if error.faults else {}
        return problem(error.status, str(error), None, **more)

    @app.get("/healthz", summary="The process answers")
    def healthz() -> dict[str, str]:
        return {"status": "alive"}

    for router in routers:
        app.include_router(router)
    return app


def _large(method: str, path: str) -> int | None:
    """Return the most bytes of a body that may be larger than others are; None: of no such."""
    if method == "PUT" and path.startswith("/v1/files/"):
        return 2 << 30
    if method == "PUT" and path.startswith("/v1/offers/") and path.endswith("/statement"):
        return 2 * STATEMENT_BYTES
    if method == "POST" and path in ("/v1/runs", "/v1/run-files"):
        return OFFER_BYTES
    return None
