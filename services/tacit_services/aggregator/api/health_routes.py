"""Whether the process answers, whether it is ready, and its metrics."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Response
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

from tacit_services.aggregator.api import documents, prometheus_metrics
from tacit_services.aggregator.reading import Health
from tacit_services.aggregator.reporting.run_status import RunStatus
from tacit_services.transport.problems import document, documented, problem


def health_routes(run_status: RunStatus) -> APIRouter:
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
        health = run_status.health()
        parts = _parts(health)
        missing = _missing(health)
        if missing is None:
            return document({"status": "ready", "parts": parts})
        return problem(503, f"not ready: {missing}", parts=parts)

    return router


def metrics_routes(run_status: RunStatus, certificate_ends: float | None) -> APIRouter:
    router = APIRouter(tags=["health"])
    registry = prometheus_metrics.registry(run_status, certificate_ends)
    text: dict[int | str, dict[str, Any]] = {
        200: {"content": {"text/plain": {"schema": {"type": "string"}}}}
    }

    @router.get("/metrics", summary="Prometheus", response_class=Response, responses=text)
    def prometheus() -> Response:
        return Response(generate_latest(registry), media_type=CONTENT_TYPE_LATEST)

    return router


def _parts(health: Health) -> dict[str, str]:
    if not health.recovered:
        store = "recovering"
    else:
        if health.store_up:
            store = "up"
        else:
            store = "lost"
    if health.broker_refuses:
        broker = "refuses"
    else:
        if health.broker_up:
            broker = "up"
        else:
            broker = "down"
    return {"store": store, "broker": broker}


def _missing(health: Health) -> str | None:
    """Return the part that a run lacks; None: it lacks none.

    A run that is over is ready, as it serves results alone.
    """
    if not health.recovered:
        return "store (not reached, or the run is being recovered)"
    if health.over:
        return None
    if not health.store_up:
        return "store (lost; edges are told to wait)"
    if health.broker_refuses:
        return "broker (refuses a subscription; its rules are of another run)"
    if health.broker_up:
        return None
    return "broker (not connected)"
