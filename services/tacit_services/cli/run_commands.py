"""The commands about one run: of a federation, by RUN and its host, or of one aggregator, by --url.

Those of one aggregator are in remote.py; their names stay for 0.3.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any
from urllib.parse import quote

import typer

from tacit_services.cli import federations, remote
from tacit_services.cli.option_group import option_group
from tacit_services.cli.options import AsJson
from tacit_services.cli.reach import Reach, ReadingReach, reaching
from tacit_services.extras import need

if TYPE_CHECKING:
    from tacit_client import Edge, FederationClient

_OptionalRun = Annotated[
    str | None, typer.Argument(metavar="[RUN]", help="the run's name, in a federation")
]
_RunOption = Annotated[
    str | None, typer.Option("--run", metavar="RUN", help="the run's name, in a federation")
]
_reading: Callable[[Callable[..., Any]], Callable[..., Any]] = partial(
    option_group, name="reach", group=ReadingReach
)


@_reading
def status(run: _OptionalRun = None, *, reach: ReadingReach, as_json: AsJson = False) -> None:
    """Show a run as it stands."""
    need("edge")
    if run is None:
        remote.status(reach.aggregator, reach.token_file, as_json)
    else:
        federations.show_runs(reach, run, watch=False, as_json=as_json)


@_reading
def watch(
    run: _OptionalRun = None,
    once: Annotated[bool, typer.Option("--once", help="show the present state and leave")] = False,
    *,
    reach: ReadingReach,
    as_json: AsJson = False,
) -> None:
    """Show a run live until it ends."""
    need("edge")
    if run is None:
        remote.watch(reach.aggregator, once, reach.token_file, as_json)
    else:
        federations.show_runs(reach, run, not once, as_json)


@_reading
def model(
    run: _OptionalRun = None,
    out: Annotated[
        Path | None, typer.Option(help="download the weights (safetensors) to this file")
    ] = None,
    *,
    reach: ReadingReach,
    as_json: AsJson = False,
) -> None:
    """Show the model of a run that trains, or download its weights and check their SHA-256."""
    need("edge")
    if run is None:
        remote.model(reach.aggregator, out, reach.token_file, as_json)
        return
    with reach.client() as client, client.of_run(run) as aggregator:
        remote.show_model(aggregator, out, as_json)


@_reading
def ledger(
    context: typer.Context, run: _RunOption = None, *, reach: ReadingReach, as_json: AsJson = False
) -> None:
    """Show what every edge's data has paid in privacy, or read an edge's own ledger."""
    if context.invoked_subcommand is not None:
        return
    need("edge")
    if run is None:
        remote.ledger(reach.aggregator, reach.token_file, as_json)
        return
    with reach.client() as client:
        edges, live = _recorded(client, run)
    remote.show_ledger(edges, live, as_json)


@reaching
def halt(
    run: _OptionalRun = None,
    reason: Annotated[
        str, typer.Option(help="said to every edge, and kept in the journal")
    ] = "operator",
    *,
    reach: Reach,
    as_json: AsJson = False,
) -> None:
    """End a run: no further update is accepted."""
    need("edge")
    if run is None:
        remote.halt(reach.aggregator, reason, reach.token_file, as_json)
    else:
        federations.show_stopped(reach, run, reason, as_json)


@reaching
def begin(run: _OptionalRun = None, *, reach: Reach, as_json: AsJson = False) -> None:
    """Begin a run with those who are there, and wait for no more."""
    need("edge")
    if run is None:
        remote.begin(reach.aggregator, reach.token_file, as_json)
        return
    with reach.client() as client:
        begun = client.begin(run)
    federations.show([begun], as_json)


@reaching
def release(
    edge: Annotated[str, typer.Argument(help="an edge in quarantine", show_default=False)],
    run: _RunOption = None,
    *,
    reach: Reach,
    as_json: AsJson = False,
) -> None:
    """End the quarantine that the guard has put an edge into."""
    need("edge")
    if run is None:
        remote.release(edge, reach.aggregator, reach.token_file, as_json)
    else:
        readmit(reach, edge, run, as_json)


def readmit(reach: Reach, member: str, run: str, as_json: bool) -> None:
    """End the quarantine of a member, by its name or its id, in a run."""
    with reach.client() as client:
        identity = _identity(client, member)
        client.post(f"/v1/runs/{quote(run, safe='')}/edges/{quote(identity, safe='')}/release", {})
    remote.show_released(member, as_json)


def _identity(client: FederationClient, member: str) -> str:
    """Return the id of a member that is not revoked; what nobody is called stays as it is."""
    present = [each for each in client.get("/v1/members")["members"] if each["revoked"] is None]
    ids = [each["id"] for each in present if member in (each["id"], each["name"])]
    return str(ids[0]) if ids else member


def _recorded(client: FederationClient, run: str) -> tuple[list[Edge], bool]:
    """Return what the members of a run have paid, by its host's record; and whether it trains."""
    from tacit_client import ApiError, Edge

    names = {each["id"]: each["name"] for each in client.get("/v1/members")["members"]}
    try:
        with client.of_run(run) as aggregator:
            edges = aggregator.edges()
        live = True
    except ApiError as error:
        if error.status != 404:
            raise
        recorded = client.get(f"/v1/runs/{quote(run, safe='')}/results/ledger.json")["edges"]
        edges = [Edge(id=name, state="left", updates=0, **paid) for name, paid in recorded.items()]
        live = False
    shown = [
        edge.model_copy(update={"id": f"{edge.id} ({names[edge.id]})"})
        if edge.id in names
        else edge
        for edge in edges
    ]
    return shown, live
