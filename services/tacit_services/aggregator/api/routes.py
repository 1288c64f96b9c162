"""The aggregator's REST interface. Writes need the operator's token; reads are open, or need one.

Handlers are plain functions in the thread pool: they wait for the driver's lock for moments only,
and the accounting they may cause is cached. A write waits until the driver thread has entered it in
the journal (`Operator.enter`). That thread never waits for HTTP.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from fastapi import Depends, FastAPI, HTTPException

from tacit.models import Model
from tacit_services.aggregator.api.health_routes import health_routes, metrics_routes
from tacit_services.aggregator.api.operator import Operator, Readers
from tacit_services.aggregator.api.operator_routes import (
    beginning_routes,
    control_routes,
    prediction_routes,
)
from tacit_services.aggregator.api.run_routes import (
    edge_routes,
    event_routes,
    look_routes,
    model_routes,
    question_routes,
    run_routes,
)
from tacit_services.aggregator.api.view import View
from tacit_services.aggregator.page.static_files import interface, page
from tacit_services.aggregator.reporting.run_status import RunStatus
from tacit_services.aggregator.vertical.inference import Inference
from tacit_services.transport.http_pace import Pace
from tacit_services.transport.known_hosts import KnownHosts
from tacit_services.transport.problems import documented, install


def create_app(
    run_status: RunStatus,
    operator: Operator,
    model: Model,
    inference: Inference | None = None,
    hosts: Iterable[str] = (),
    read_token: str | None = None,
    certificate_ends: float | None = None,
) -> FastAPI:
    """Return the application of one run. Call `operator.close()` before stopping its server.

    `inference`: vertical. `hosts`: further names under which it may be asked for. `read_token`:
    what of the run is shown, metrics too, needs it or the operator's token; None shows it to all
    clients. `certificate_ends`: as for the metrics' `registry`.
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
    view = View(run_status, model)

    async def recovered() -> None:
        # Version 0 now would be a lie about a run that goes on from a snapshot.
        if not run_status.health().recovered:
            raise HTTPException(
                503, "the run is being recovered from the store", {"Retry-After": "1"}
            )

    app.include_router(page())
    app.include_router(interface())
    app.include_router(health_routes(run_status))
    if read_token is None:
        may_read = []
    else:
        may_read = [Depends(Readers(read_token, operator).check)]
    refused = documented(401) if may_read else {}
    app.include_router(
        metrics_routes(run_status, certificate_ends), dependencies=may_read, responses=refused
    )
    later: dict[str, Any] = {"dependencies": [Depends(recovered)], "responses": documented(503)}
    read = later | {"dependencies": [*may_read, Depends(recovered)]}
    read["responses"] = later["responses"] | refused
    app.include_router(run_routes(view, run_status), prefix="/v1", **read)
    for shown in (question_routes, look_routes, edge_routes):
        app.include_router(shown(run_status), prefix="/v1", **read)
    app.include_router(model_routes(view), prefix="/v1/model", **read)
    app.include_router(event_routes(view, operator), prefix="/v1", tags=["control"], **read)
    for routes in (beginning_routes, control_routes):
        app.include_router(routes(run_status, operator), prefix="/v1", tags=["control"], **later)
    app.include_router(
        prediction_routes(run_status, operator, inference), prefix="/v1", tags=["predict"], **later
    )
    return app
