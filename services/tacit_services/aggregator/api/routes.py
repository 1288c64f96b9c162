"""The aggregator's REST interface. Reads are open; writes need the operator's token.

Handlers are plain functions in the thread pool: they wait for the driver's lock for moments only,
and the accounting they may cause is cached. The driver thread never waits for HTTP; it polls
`Operator.wanted`.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import threading
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Annotated, Any

from fastapi import APIRouter, Depends, FastAPI, HTTPException, Query, Request, Response
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer
from fastapi.sse import EventSourceResponse, ServerSentEvent
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from starlette.concurrency import run_in_threadpool
from torch import Tensor

from tacit.errors import ConfigError, DataError, PrivacyError, ServiceError
from tacit.models import Model
from tacit_services.aggregator.api import documents, metrics
from tacit_services.aggregator.driver import ServerDriver
from tacit_services.aggregator.reporting.run_status import Observer
from tacit_services.aggregator.vertical.inference import Inference
from tacit_services.journal.weights import weights
from tacit_services.transport.problems import (
    SAFETENSORS,
    document,
    documented,
    install,
    partial,
    problem,
)

EVENT_PERIOD = 0.5  # seconds between two status events, at least
_TICK = 0.1  # seconds until an open event stream sees that the server closes
_MOVING = (
    "duration_s",
    "updates_per_s",
)  # they change with the clock alone: no reason for an event
_BEARER = HTTPBearer(auto_error=False, description="the operator's token")


class Operator:
    """What the operator wants, handed from HTTP threads to the driver thread."""

    def __init__(self, token: str | None) -> None:
        """`token`: None refuses every write."""
        self._token = token
        self._wanted: str | None = None
        self._lock = threading.Lock()
        self.closed = threading.Event()

    def wanted(self) -> str | None:
        """The reason of a requested halt, or None. Read by the driver thread."""
        return self._wanted

    def request_halt(self, reason: str) -> str:
        """Ask for the run's end; the first reason stays, and is returned."""
        with self._lock:
            self._wanted = self._wanted or reason or "operator"
            return self._wanted

    def close(self) -> None:
        """The server is about to stop: end the event streams, which uvicorn would wait for."""
        self.closed.set()

    def check(self, given: HTTPAuthorizationCredentials | None) -> None:
        """Raises HTTPException unless `given` is the token."""
        if self._token is None:
            raise HTTPException(
                403, "this aggregator takes no writes: it was started without TACIT_TOKEN_FILE"
            )
        if given is None or not hmac.compare_digest(
            given.credentials.encode(), self._token.encode()
        ):
            raise HTTPException(
                401,
                "the operator's token is missing or wrong (tacit: --token-file)",
                {"WWW-Authenticate": "Bearer"},
            )


@dataclass(frozen=True, slots=True)
class _File:
    version: int
    clip: float
    data: bytes
    sha256: str


class _View:
    """The observer with the weights file, cached per version, and the status that event streams
    share.
    """

    def __init__(self, observer: Observer[ServerDriver], model: Model) -> None:
        self.observer, self.driver, self.model = observer, observer.driver, model
        self._lock, self._feed_lock = threading.Lock(), threading.Lock()
        self._params: Tensor | None = None
        self._data, self._sha256 = b"", ""
        self._feed: dict[str, Any] = {}
        self._feed_at = -EVENT_PERIOD

    def file(self) -> _File:
        """The newest weights."""
        driver = self.driver
        with driver.lock:
            version, clip, params = driver.role.version, driver.role.clip, driver.role.params
        with self._lock:
            if (
                self._params is not params
            ):  # the fold replaces its parameters, it never writes into them
                self._data = weights(self.model, params)
                self._params, self._sha256 = params, hashlib.sha256(self._data).hexdigest()
            return _File(version, clip, self._data, self._sha256)

    def status(self) -> dict[str, Any]:
        """The observer's status with the digest; `model_version` is the digest's, and may be newer
        than `applied`.

        In this order, so that the digest beside `finished` is the last model's.
        """
        status, file = self.observer.status(), self.file()
        return {**status, "model_version": file.version, "model_sha256": file.sha256}

    def feed(self, age: float = EVENT_PERIOD) -> dict[str, Any]:
        """The status of at most `age` seconds ago: one for however many streams ask."""
        with self._feed_lock:
            if time.monotonic() - self._feed_at >= age:
                self._feed, self._feed_at = self.status(), time.monotonic()
            return self._feed

    def model_info(self) -> dict[str, Any]:
        """What the weights file holds."""
        file, model = self.file(), self.model
        return {
            "name": model.name,
            "version": file.version,
            "parameters": model.size,
            "sha256": file.sha256,
            "bytes": len(file.data),
            "layers": [{"name": name, "shape": shape} for name, shape in model.layout],
            "clip": file.clip,
            "state": self.driver.state,
        }


def create_app(
    observer: Observer[ServerDriver],
    operator: Operator,
    model: Model,
    inference: Inference | None = None,
) -> FastAPI:
    """The application of one run. Call `operator.close()` before stopping its server.

    `inference`: vertical.
    """
    app = FastAPI(
        title="tacit aggregator",
        version="1",
        docs_url=None,
        redoc_url=None,
        description="One federated run: its state, its model and its privacy ledger.",
    )
    install(app)
    view = _View(observer, model)

    def recovered() -> None:
        if (
            observer.driver.epoch == 0
        ):  # version 0 now would be a lie about a run that goes on from a snapshot
            raise HTTPException(
                503, "the run is being recovered from the store", {"Retry-After": "1"}
            )

    app.include_router(_health(observer))
    later: dict[str, Any] = {"dependencies": [Depends(recovered)], "responses": documented(503)}
    app.include_router(_run(view), prefix="/v1", **later)
    app.include_router(_model(view), prefix="/v1/model", **later)
    app.include_router(_control(view, operator), prefix="/v1", **later)
    app.include_router(_predict(view, operator, inference), prefix="/v1", **later)
    return app


def _health(observer: Observer[ServerDriver]) -> APIRouter:
    router = APIRouter(tags=["health"])
    registry = metrics.registry(observer)

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


def _run(view: _View) -> APIRouter:
    router = APIRouter(tags=["run"])
    observer = view.observer

    @router.get(
        "/status", response_model=documents.Status, summary="summary.json so far, and the state"
    )
    def status() -> Response:
        return document(view.status())

    @router.get(
        "/edges", response_model=list[documents.Edge], summary="Every edge that ever said Hello"
    )
    def edges() -> Response:
        return document(observer.edges())

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
        after: Annotated[int, Query(ge=0, description="only later versions")] = 0,
    ) -> Response:
        return document([point for point in list(observer.series) if point["version"] > after])

    @router.get(
        "/privacy", response_model=documents.Privacy, summary="The guarantee, per edge and in total"
    )
    def privacy() -> Response:
        return document(observer.privacy())

    return router


def _model(view: _View) -> APIRouter:
    router = APIRouter(tags=["model"])

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
        responses=answers | documented(416),
        summary="Safetensors file",
    )
    def file(request: Request) -> Response:
        newest = view.file()
        return partial(request, newest.data, newest.sha256)

    return router


def _control(view: _View, operator: Operator) -> APIRouter:
    router = APIRouter(tags=["control"])

    @router.get(
        "/events", response_class=EventSourceResponse, summary="`status` events as the run changes"
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

    @router.post(
        "/halt",
        status_code=202,
        response_model=documents.Halted,
        summary="End the run; may be said again",
        responses=documented(401, 403, 411, 413, 422),
    )
    def halt(
        given: Annotated[HTTPAuthorizationCredentials | None, Depends(_BEARER)],
        request: documents.HaltRequest | None = None,
    ) -> Response:
        operator.check(given)
        reason = operator.request_halt((request or documents.HaltRequest()).reason)
        return document({"state": view.driver.state, "reason": reason}, 202)

    @router.post(
        "/edges/{edge}/release",
        response_model=documents.Released,
        summary="End an edge's quarantine",
        responses=documented(401, 403, 404, 411, 413, 422),
    )
    def release(
        edge: str, given: Annotated[HTTPAuthorizationCredentials | None, Depends(_BEARER)]
    ) -> Response:
        operator.check(given)
        if not view.driver.guard.release(edge):
            return problem(404, f"edge {edge[:64]!r} is not in quarantine")
        return document({"id": edge, "released": True})

    return router


def _predict(view: _View, operator: Operator, inference: Inference | None) -> APIRouter:
    router = APIRouter(tags=["predict"])

    @router.post(
        "/predict",
        response_model=documents.Predictions,
        summary="Classes of records, from what parties say of them",
        responses=documented(401, 403, 404, 409, 410, 411, 413, 422),
    )
    def predict(
        given: Annotated[HTTPAuthorizationCredentials | None, Depends(_BEARER)],
        request: documents.PredictRequest,
    ) -> Response:
        operator.check(given)  # it may cost the parties' budgets
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
