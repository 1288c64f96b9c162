"""The routes that only the operator may use, by a token."""

from __future__ import annotations

from fastapi import APIRouter, Depends, Response

from tacit.errors import ConfigError, DataError, PrivacyError, ServiceError
from tacit_services.aggregator.api import documents
from tacit_services.aggregator.api.operator import BEARER, Operator
from tacit_services.aggregator.reporting.run_status import RunStatus
from tacit_services.aggregator.vertical.inference import Inference
from tacit_services.transport.bearer import guarded
from tacit_services.transport.problems import document, documented, problem


def _operators(operator: Operator) -> APIRouter:
    """Return a router of what the operator alone may do."""
    return APIRouter(route_class=guarded(BEARER, operator.check), dependencies=[Depends(BEARER)])


def _later(error: ServiceError, seconds: int) -> Response:
    """Return the answer to a request that may be made again."""
    return problem(503, str(error), {"Retry-After": str(seconds)})


def control_routes(run_status: RunStatus, operator: Operator) -> APIRouter:
    """Return the routes that change a run: its end, and the end of a quarantine."""
    router = _operators(operator)

    @router.post(
        "/halt",
        status_code=202,
        response_model=documents.Halted,
        summary="End the run; may be said again",
        responses=documented(401, 403, 411, 413, 422),
    )
    def halt(request: documents.HaltRequest | None = None) -> Response:
        before = run_status.reading()
        if not before.halted:
            try:
                operator.halt((request or documents.HaltRequest()).reason)
            except ServiceError as error:
                # The journal may have it although the store failed.
                if not run_status.reading().halted:
                    return _later(error, 1)
        return document({"state": before.state, "reason": run_status.reading().reason}, 202)

    @router.post(
        "/edges/{edge}/release",
        response_model=documents.Released,
        summary="End an edge's quarantine",
        responses=documented(401, 403, 404, 411, 413, 422),
    )
    def release(edge: str) -> Response:
        reading = run_status.reading()
        if reading.halted:
            return problem(404, "the run is over, and with it every quarantine")
        if edge not in reading.quarantined:
            return problem(404, f"edge {edge[:64]!r} is not in quarantine")
        try:
            operator.release(edge)
        except ServiceError as error:
            return _later(error, 1)
        return document({"id": edge, "released": True})

    return router


def beginning_routes(run_status: RunStatus, operator: Operator) -> APIRouter:
    """Return the route that begins a run which waits for more edges."""
    router = _operators(operator)

    @router.post(
        "/begin",
        response_model=documents.Begun,
        summary="Begin with the edges that are there; may be said again",
        responses=documented(401, 403, 404, 409, 411, 413, 422),
    )
    def begin() -> Response:
        reading = run_status.reading()
        if reading.halted:
            return problem(404, "the run is over")
        if not reading.online:
            return problem(409, "no edge is there to begin with")
        try:
            operator.begin()
        except ServiceError as error:
            return _later(error, 1)
        return document({"edges": reading.online})

    return router


def prediction_routes(
    run_status: RunStatus, operator: Operator, inference: Inference | None
) -> APIRouter:
    """Return the route of a vertical run's predictions: its parties compute them, at some ε."""
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
            with operator.waiting():
                probabilities = inference.predict(request.ids, request.wait_s)
        except DataError as error:
            return problem(404, str(error))
        except ConfigError as error:
            return problem(409, str(error))
        except PrivacyError as error:
            return problem(410, str(error))
        except ServiceError as error:
            return _later(error, 10)
        rows = [
            {"id": record_id, "label": max(range(len(p)), key=p.__getitem__), "probabilities": p}
            for record_id, p in probabilities.items()
        ]
        reading = run_status.reading()
        epsilon = run_status.total(reading).epsilon
        return document({"model_version": reading.version, "predictions": rows, "epsilon": epsilon})

    return router
