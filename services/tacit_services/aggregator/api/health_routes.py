"""Whether the process answers, whether it is ready, and its metrics."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Response
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

from tacit_services.aggregator.api import documents, metrics
from tacit_services.aggregator.driver import ServerDriver
from tacit_services.aggregator.reporting.run_status import RunStatus
from tacit_services.transport.problems import document, documented, problem


def health_routes(observer: RunStatus[ServerDriver]) -> APIRouter:
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


def metrics_routes(observer: RunStatus[ServerDriver]) -> APIRouter:
    router = APIRouter(tags=["health"])
    registry = metrics.registry(observer)
    text: dict[int | str, dict[str, Any]] = {
        200: {"content": {"text/plain": {"schema": {"type": "string"}}}}
    }

    @router.get("/metrics", summary="Prometheus", response_class=Response, responses=text)
    def prometheus() -> Response:
        return Response(generate_latest(registry), media_type=CONTENT_TYPE_LATEST)

    return router


def _parts(observer: RunStatus[ServerDriver]) -> dict[str, str]:
    driver = observer.driver
    store = "recovering" if driver.epoch == 0 else "up" if driver.store_up else "lost"
    broker = "refuses" if observer.broker_refuses() else "up" if observer.broker_up() else "down"
    return {"store": store, "broker": broker}


def _missing(observer: RunStatus[ServerDriver]) -> str | None:
    driver = observer.driver
    if driver.epoch == 0:
        return "store (not reached, or the run is being recovered)"
    if driver.role.halted:  # the results are all there is to serve
        return None
    if not driver.store_up:
        return "store (lost; edges are told to wait)"
    if observer.broker_refuses():
        return "broker (refuses a subscription; its rules are of another run)"
    return None if observer.broker_up() else "broker (not connected)"
