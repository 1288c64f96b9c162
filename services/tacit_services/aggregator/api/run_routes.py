"""The routes that show a run to all who may read it: state, edges, model and events."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Query, Request, Response
from fastapi.sse import EventSourceResponse, ServerSentEvent
from starlette.concurrency import run_in_threadpool

from tacit_services.aggregator.api import documents
from tacit_services.aggregator.api.operator import Operator
from tacit_services.aggregator.api.view import EVENT_PERIOD, View
from tacit_services.aggregator.reporting.run_status import RunStatus
from tacit_services.transport.connection_slots import ConnectionSlots
from tacit_services.transport.problems import (
    SAFETENSORS,
    address_of,
    document,
    documented,
    partial,
    problem,
    unless_known,
)

MOST_EDGES = 1000  # in one answer
MOST_EVENTS = 1000
_TICK = 0.1  # seconds until an open event stream sees that the server closes
# Of 128 connections these may last; each=: of one address.
STREAMS = 64
STREAMS_EACH = 16
DOWNLOADS = 8
DOWNLOADS_EACH = 4
SVG = "image/svg+xml"
_NO_GRAPH = "the model of this run is no graph"
_NO_FUNCTIONS = "the model of this run is not additive, or nothing is counted yet"
# Opened by itself it loads nothing, and nothing in it runs.
_OF_PICTURE = {
    "Cache-Control": "no-cache",
    "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; sandbox",
    "X-Content-Type-Options": "nosniff",
}
_MOVING = (
    "at",
    "duration_s",
    "updates_per_s",
)  # they change with the clock alone: no reason for an event


def run_routes(view: View, run_status: RunStatus) -> APIRouter:
    """Return the routes of the run as a whole: status, definition, evaluations, privacy."""
    router = APIRouter(tags=["run"])

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
        run = run_status.definition
        return document({"fingerprint": run.fingerprint, "agreed": run.agreed})

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
        return document([point for point in list(run_status.series) if point["version"] >= least])

    @router.get(
        "/privacy", response_model=documents.Privacy, summary="The guarantee, per edge and in total"
    )
    def privacy() -> Response:
        return document(run_status.privacy())

    @router.get(
        "/log",
        response_model=list[documents.RunEvent],
        summary="Events with the server's time, oldest first",
        responses=documented(422),
    )
    def happened(
        after: Annotated[int, Query(ge=0, description="only events behind this number")] = 0,
        limit: Annotated[int, Query(ge=1, le=MOST_EVENTS, description="the newest")] = MOST_EVENTS,
    ) -> Response:
        return document(run_status.events(after, limit))

    return router


def question_routes(run_status: RunStatus) -> APIRouter:
    """Return the route of a run that asks questions in the place of training."""
    router = APIRouter(tags=["run"])

    @router.get(
        "/answers",
        response_model=list[documents.QuestionAnswers],
        summary="Answers to the run's questions so far; none where it trains",
    )
    def answers() -> Response:
        return document(run_status.answers())

    return router


def look_routes(run_status: RunStatus) -> APIRouter:
    """Return the route of a run that judges on rows which its edges hold out."""
    router = APIRouter(tags=["run"])

    @router.get(
        "/looks",
        response_model=list[documents.LookDocument],
        summary="Looks at held-out rows so far; none where edges hold none out",
    )
    def looks() -> Response:
        return document(run_status.looks())

    return router


def edge_routes(run_status: RunStatus) -> APIRouter:
    """Return the routes of the edges of a run: a page of them, or one."""
    router = APIRouter(tags=["run"])

    @router.get(
        "/edges",
        response_model=list[documents.Edge],
        summary="Edges that ever said Hello, or refuse the run, by name, a page at a time",
        responses=documented(422) | {304: {"description": "The client has them"}},
    )
    def edges(
        request: Request,
        limit: Annotated[int, Query(ge=1, le=MOST_EDGES, description="of one page")] = MOST_EDGES,
        after: Annotated[str, Query(max_length=200, description="the last edge before it")] = "",
    ) -> Response:
        return unless_known(request, document(run_status.edges(after, limit)))

    @router.get(
        "/edges/{edge}",
        response_model=documents.Edge,
        summary="One edge",
        responses=documented(404),
    )
    def one_edge(edge: str) -> Response:
        if (row := run_status.edge(edge)) is None:
            return problem(404, f"no edge {edge[:64]!r} has said Hello in this run")
        return document(row)

    return router


def model_routes(view: View) -> APIRouter:
    """Return the routes of the newest model, in blocks with flow control."""
    router = APIRouter(tags=["model"])
    downloads = ConnectionSlots(DOWNLOADS, DOWNLOADS_EACH)

    @router.get("", response_model=documents.ModelInfo, summary="What the weights file holds now")
    def info() -> Response:
        return document(view.model_info())

    @router.get(
        "/graph",
        response_model=documents.NetworkInfo,
        summary="The layers of a graph",
        responses=documented(404),
    )
    def graph() -> Response:
        layers = view.network()
        return problem(404, _NO_GRAPH) if layers is None else document(layers)

    image: dict[int | str, dict[str, Any]] = {
        200: {"content": {SVG: {"schema": {"type": "string"}}}, "description": "The picture"}
    }

    @router.get(
        "/picture",
        response_class=Response,
        summary="The layers of a graph as SVG",
        responses=image | documented(404),
    )
    def drawing(request: Request) -> Response:
        return _picture(request, view.network_picture(), _NO_GRAPH)

    _add_functions(router, view, image)
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
        return partial(request, *view.file(), downloads)

    return router


def _add_functions(router: APIRouter, view: View, image: dict[int | str, dict[str, Any]]) -> None:
    """Add the routes of an additive model's functions. image: what answers with a picture."""

    @router.get(
        "/functions",
        response_model=documents.ModelFunctions,
        summary="The functions of an additive model, and their noise",
        responses=documented(404),
    )
    def functions() -> Response:
        shapes = view.functions()
        return problem(404, _NO_FUNCTIONS) if shapes is None else document(shapes)

    @router.get(
        "/functions/picture",
        response_class=Response,
        summary="The functions of an additive model as SVG",
        responses=image | documented(404),
    )
    def functions_drawing(request: Request) -> Response:
        return _picture(request, view.functions_picture(), _NO_FUNCTIONS)


def _picture(request: Request, content: bytes | None, missing: str) -> Response:
    """Return an SVG, or 404 with why there is none."""
    if content is None:
        return problem(404, missing)
    return unless_known(request, Response(content, headers=_OF_PICTURE, media_type=SVG))


def event_routes(view: View, operator: Operator) -> APIRouter:
    """Return the route of the run's status as a stream of changes."""
    router = APIRouter()
    streams = ConnectionSlots(STREAMS, STREAMS_EACH)

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
            steady = {name: value for name, value in status.items() if name not in _MOVING}
            if steady != last:
                last = steady
                yield ServerSentEvent(event="status", data=status)
            if over:
                return
            await _pause(operator)

    return router


async def _pause(operator: Operator) -> None:
    # Short steps: the server's end is said by another thread, and must not wait for a whole period.
    for _ in range(round(EVENT_PERIOD / _TICK)):
        if operator.closed.is_set():
            return
        await asyncio.sleep(_TICK)
