"""The aggregator's REST interface. Writes need the operator's token; reads are open, or need one.

Handlers are plain functions in the thread pool: they wait for the driver's lock for moments only,
and the accounting they may cause is cached. The driver thread never waits for HTTP; it polls
`Operator.wanted`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from typing import Annotated, Any

from fastapi import APIRouter, Depends, FastAPI, HTTPException, Query, Request, Response
from fastapi.sse import EventSourceResponse, ServerSentEvent
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from starlette.concurrency import run_in_threadpool

from tacit.errors import ConfigError, DataError, PrivacyError, ServiceError
from tacit.models import Model
from tacit_services.aggregator.api import documents, metrics
from tacit_services.aggregator.api.operator import BEARER, Operator, Readers
from tacit_services.aggregator.api.view import EVENT_PERIOD, View
from tacit_services.aggregator.driver import ServerDriver
from tacit_services.aggregator.page.static_files import interface, page
from tacit_services.aggregator.reporting.run_status import Observer
from tacit_services.aggregator.vertical.inference import Inference
from tacit_services.transport.bearer import guarded
from tacit_services.transport.http_pace import Pace
from tacit_services.transport.known_hosts import KnownHosts
from tacit_services.transport.places import Places
from tacit_services.transport.problems import (
    SAFETENSORS,
    address_of,
    document,
    documented,
    install,
    partial,
    problem,
    unless_known,
)

MOST_EDGES = 1000  # in one answer
_TICK = 0.1  # seconds until an open event stream sees that the server closes
# Of 128 connections these may last; each=: of one address.
STREAMS, STREAMS_EACH = 64, 16
DOWNLOADS, DOWNLOADS_EACH = 8, 4
_MOVING = (
    "duration_s",
    "updates_per_s",
)  # they change with the clock alone: no reason for an event


def create_app(
    observer: Observer[ServerDriver],
    operator: Operator,
    model: Model,
    inference: Inference | None = None,
    hosts: Iterable[str] = (),
    read_token: str | None = None,
) -> FastAPI:
    """The application of one run. Call `operator.close()` before stopping its server.

    `inference`: vertical. `hosts`: further names under which it may be asked for. `read_token`:
    what of the run is shown, metrics too, is shown to whoever has it, or the operator's; None shows
    it to everybody.
    """
    app = FastAPI(
        title="tacit aggregator",
        version="1",
        docs_url=None,
        redoc_url=None,
        description="One federated run: its state, its model and its privacy ledger.",
        responses=documented(400, 421, 429),
    )
    app.add_middleware(KnownHosts, names=tuple(hosts))
    install(app)
    app.add_middleware(Pace, free=operator.never_waits)  # the first of all
    view = View(observer, model)

    def recovered() -> None:
        if (
            observer.driver.epoch == 0
        ):  # version 0 now would be a lie about a run that goes on from a snapshot
            raise HTTPException(
                503, "the run is being recovered from the store", {"Retry-After": "1"}
            )

    app.include_router(page())
    app.include_router(interface())
    app.include_router(_health(observer))
    may_read = [] if read_token is None else [Depends(Readers(read_token, operator).check)]
    refused = documented(401) if may_read else {}
    app.include_router(_metrics(observer), dependencies=may_read, responses=refused)
    later: dict[str, Any] = {"dependencies": [Depends(recovered)], "responses": documented(503)}
    read = later | {"dependencies": [*may_read, Depends(recovered)]}
    read["responses"] = later["responses"] | refused
    app.include_router(_run(view), prefix="/v1", **read)
    app.include_router(_model(view), prefix="/v1/model", **read)
    app.include_router(_events(view, operator), prefix="/v1", tags=["control"], **read)
    app.include_router(_control(view, operator), prefix="/v1", tags=["control"], **later)
    app.include_router(_predict(view, operator, inference), prefix="/v1", tags=["predict"], **later)
    return app


def _health(observer: Observer[ServerDriver]) -> APIRouter:
    router = APIRouter(tags=["health"])

    @router.get("/healthz", summary="The process answers")
    async def healthz() -> dict[str, str]:
        return {"status": "alive"}

    @router.get(
        "/readyz",
        response_model=documents.Ready,
        summary="Broker and store are there, recovery is done",
        responses=documented(503, kind=documents.NotReady),
    )
    def readyz() -> Response:
        parts, missing = _parts(observer), _missing(observer)
        if missing is None:
            return document({"status": "ready", "parts": parts})
        return problem(503, f"not ready: {missing}", parts=parts)

    return router


def _metrics(observer: Observer[ServerDriver]) -> APIRouter:
    router = APIRouter(tags=["health"])
    registry = metrics.registry(observer)
    text: dict[int | str, dict[str, Any]] = {
        200: {"content": {"text/plain": {"schema": {"type": "string"}}}}
    }

    @router.get("/metrics", summary="Prometheus", response_class=Response, responses=text)
    def prometheus() -> Response:
        return Response(generate_latest(registry), media_type=CONTENT_TYPE_LATEST)

    return router


def _parts(observer: Observer[ServerDriver]) -> dict[str, str]:
    driver = observer.driver
    store = "recovering" if driver.epoch == 0 else "up" if driver.store_up else "lost"
    return {"store": store, "broker": "up" if observer.broker_up() else "down"}


def _missing(observer: Observer[ServerDriver]) -> str | None:
    driver = observer.driver
    if driver.epoch == 0:
        return "store (not reached, or the run is being recovered)"
    if driver.role.halted:  # the results are all there is to serve
        return None
    if not driver.store_up:
        return "store (lost; edges are told to wait)"
    return None if observer.broker_up() else "broker (not connected)"


def _run(view: View) -> APIRouter:
    router = APIRouter(tags=["run"])
    observer = view.observer

    @router.get(
        "/status",
        response_model=documents.Status,
        summary="summary.json so far without its edges, and the state",
    )
    def status() -> Response:
        return document(view.status())

    @router.get(
        "/definition",
        response_model=documents.RunDefinition,
        summary="What all who take part must agree on",
    )
    def definition() -> Response:
        run = observer.definition
        return document({"fingerprint": run.fingerprint, "agreed": run.agreed})

    @router.get(
        "/edges",
        response_model=list[documents.Edge],
        summary="Edges that ever said Hello, by name, a page at a time",
        responses=documented(422) | {304: {"description": "The client has them"}},
    )
    def edges(
        request: Request,
        limit: Annotated[int, Query(ge=1, le=MOST_EDGES, description="of one page")] = MOST_EDGES,
        after: Annotated[str, Query(max_length=200, description="the last edge before it")] = "",
    ) -> Response:
        return unless_known(request, document(view.edges(after, limit)))

    @router.get(
        "/edges/{edge}",
        response_model=documents.Edge,
        summary="One edge",
        responses=documented(404),
    )
    def one_edge(edge: str) -> Response:
        rows = [row for row in observer.edges() if row["id"] == edge]
        return (
            document(rows[0])
            if rows
            else problem(404, f"no edge {edge[:64]!r} has said Hello in this run")
        )

    @router.get(
        "/series",
        response_model=list[documents.Point],
        summary="Evaluations, oldest first",
        responses=documented(422),
    )
    def series(
        after: Annotated[
            int | None, Query(ge=0, description="only later versions; the first is 0")
        ] = None,
    ) -> Response:
        least = 0 if after is None else after + 1
        return document([point for point in list(observer.series) if point["version"] >= least])

    @router.get(
        "/privacy", response_model=documents.Privacy, summary="The guarantee, per edge and in total"
    )
    def privacy() -> Response:
        return document(observer.privacy())

    return router


def _model(view: View) -> APIRouter:
    router, downloads = APIRouter(tags=["model"]), Places(DOWNLOADS, DOWNLOADS_EACH)

    @router.get("", response_model=documents.ModelInfo, summary="What the weights file holds now")
    def info() -> Response:
        return document(view.model_info())

    binary = {SAFETENSORS: {"schema": {"type": "string", "format": "binary"}}}
    answers: dict[int | str, dict[str, Any]] = {
        200: {"content": binary, "description": "The whole file; its ETag is its SHA-256"},
        206: {"content": binary, "description": "One range of it"},
        304: {"description": "The client has it"},
    }

    @router.get(
        "/weights",
        response_class=Response,
        responses=answers | documented(416, 503),
        summary="Safetensors file",
    )
    def file(request: Request) -> Response:
        newest = view.file()
        return partial(request, newest.data, newest.sha256, downloads)

    return router


def _events(view: View, operator: Operator) -> APIRouter:
    router, streams = APIRouter(), Places(STREAMS, STREAMS_EACH)

    async def place(request: Request) -> AsyncIterator[None]:
        with streams.taken(address_of(request.scope)):
            yield

    @router.get(
        "/events",
        response_class=EventSourceResponse,
        dependencies=[Depends(place)],
        summary="`status` events as the run changes",
    )
    async def events() -> AsyncIterator[ServerSentEvent]:
        last: dict[str, Any] = {}
        while True:
            over = operator.closed.is_set()
            status = await run_in_threadpool(view.feed, 0.0 if over else EVENT_PERIOD)
            seen = {name: value for name, value in status.items() if name not in _MOVING}
            if seen != last:
                last = seen
                yield ServerSentEvent(event="status", data=status)
            if over:
                return
            await _pause(operator)

    return router


def _operators(operator: Operator) -> APIRouter:
    """A router of what the operator alone may do."""
    return APIRouter(route_class=guarded(BEARER, operator.check), dependencies=[Depends(BEARER)])


def _control(view: View, operator: Operator) -> APIRouter:
    router = _operators(operator)

    @router.post(
        "/halt",
        status_code=202,
        response_model=documents.Halted,
        summary="End the run; may be said again",
        responses=documented(401, 403, 411, 413, 422),
    )
    def halt(request: documents.HaltRequest | None = None) -> Response:
        reason = operator.request_halt((request or documents.HaltRequest()).reason)
        return document({"state": view.driver.state, "reason": reason}, 202)

    @router.post(
        "/edges/{edge}/release",
        response_model=documents.Released,
        summary="End an edge's quarantine",
        responses=documented(401, 403, 404, 411, 413, 422),
    )
    def release(edge: str) -> Response:
        if not view.driver.guard.release(edge):
            return problem(404, f"edge {edge[:64]!r} is not in quarantine")
        return document({"id": edge, "released": True})

    return router


def _predict(view: View, operator: Operator, inference: Inference | None) -> APIRouter:
    router = _operators(operator)  # it may cost the parties' budgets

    @router.post(
        "/predict",
        response_model=documents.Predictions,
        summary="Classes of records, from what parties say of them",
        responses=documented(401, 403, 404, 409, 410, 411, 413, 422),
    )
    def predict(request: documents.PredictRequest) -> Response:
        if inference is None:
            return problem(
                409,
                "this run is not vertical: its model predicts without its edges (tacit model "
                "--out)",
            )
        try:
            found = inference.predict(request.ids, request.wait_s)
        except DataError as error:
            return problem(404, str(error))
        except ConfigError as error:
            return problem(409, str(error))
        except PrivacyError as error:
            return problem(410, str(error))
        except ServiceError as error:
            return problem(503, str(error), {"Retry-After": "10"})
        rows = [
            {"id": one, "label": max(range(len(p)), key=p.__getitem__), "probabilities": p}
            for one, p in found.items()
        ]
        version = view.driver.role.version
        return document(
            {"model_version": version, "predictions": rows, "epsilon": view.observer.epsilon()}
        )

    return router


async def _pause(operator: Operator) -> None:
    # Short steps: the server's end is said by another thread, and must not wait for a whole period.
    for _ in range(round(EVENT_PERIOD / _TICK)):
        if operator.closed.is_set():
            return
        await asyncio.sleep(_TICK)
