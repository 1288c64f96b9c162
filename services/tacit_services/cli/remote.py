"""The commands that ask a running aggregator over REST: `tacit status`, `watch`, `halt`, ..."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from tacit.errors import ConfigError, ServiceError, TacitError
from tacit_services.cli.say import say
from tacit_services.extras import need
from tacit_services.transport import rest_client

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from tacit_client import Client, Edge, Point, Status


def status(url: str, token_file: Path | None, as_json: bool) -> None:
    """Show the run as it stands."""
    with _client(url, token_file) as client:
        _show_status(client.status(), as_json)


def watch(url: str, once: bool, token_file: Path | None, as_json: bool) -> None:
    """Show the run live until it ends."""
    with _client(url, token_file) as client:
        if once:
            _show_status(client.status(), as_json)
        elif not _follow(client, as_json):
            raise ServiceError(f"{url}: the aggregator stopped before the run's end")


def model(url: str, out: Path | None, token_file: Path | None, as_json: bool) -> None:
    """Show the model, or download its weights and check their SHA-256."""
    with _client(url, token_file) as client:
        show_model(client, out, as_json)


def show_model(client: Client, out: Path | None, as_json: bool) -> None:
    """Show the model of a client's run; with `out`, download its weights instead."""
    from tacit_services.display import text_tables

    if out is not None:
        _download(client, out, as_json)
        return
    info = client.model()
    _show(info.to_json(), as_json, lambda console: text_tables.model(console, info))


def ledger(url: str, token_file: Path | None, as_json: bool) -> None:
    """Show what every edge's data has paid in privacy."""
    with _client(url, token_file) as client:
        edges = client.edges()
        live = not client.status().over
    show_ledger(edges, live, as_json)


def show_ledger(edges: list[Edge], live: bool, as_json: bool) -> None:
    """Show what each of `edges` has paid. live: its run goes on."""
    from tacit_services.display import text_tables

    _show(
        [edge.to_json() for edge in edges],
        as_json,
        lambda console: text_tables.ledger(console, edges, live=live),
    )


def halt(url: str, reason: str, token_file: Path | None, as_json: bool) -> None:
    """End the run: no further update is accepted."""
    with _client(url, token_file) as client:
        answer = client.halt(reason)
    _show(
        answer.to_json(),
        as_json,
        lambda _: f"halt taken ({answer.reason}); the run was {answer.state}",
    )


def begin(url: str, token_file: Path | None, as_json: bool) -> None:
    """Begin the run with the edges that are there, and wait for no more."""
    with _client(url, token_file) as client:
        answer = client.begin()
    _show(answer.to_json(), as_json, lambda _: f"the run begins with {answer.edges} edges")


def release(edge: str, url: str, token_file: Path | None, as_json: bool) -> None:
    """End the quarantine that the guard has put an edge into."""
    with _client(url, token_file) as client:
        client.release(edge)
    show_released(edge, as_json)


def show_released(edge: str, as_json: bool) -> None:
    """Say that an edge may take part again."""
    _show({"id": edge, "released": True}, as_json, lambda _: f"{edge} may take part again")


@contextmanager
def _client(url: str, token_file: Path | None) -> Iterator[Client]:
    """Yield a client whose errors become tacit's: its package shares no code with the rest."""
    need("edge")
    from tacit_client import ApiError, Unreachable

    try:
        with rest_client.client(url, rest_client.token(token_file)) as client:
            yield client
    except Unreachable as error:
        raise ServiceError(
            f"{error}; is a run going on there? `tacit run` says its address (--url)"
        ) from error
    except ApiError as error:
        raise TacitError(f"{url}: {error.detail}") from error


def _show(content: Any, as_json: bool, picture: Callable[[Console], RenderableType]) -> None:
    from tacit_services.display import text_tables

    if as_json:
        typer.echo(json.dumps(content, indent=2))
    else:
        console = text_tables.console()
        console.print(picture(console))


def _show_status(run: Status, as_json: bool) -> None:
    from tacit_services.display import text_tables

    _show(run.to_json(), as_json, lambda console: text_tables.status(console, run))


def _follow(client: Client, as_json: bool) -> bool:
    """Show every event until the run is over (True) or the aggregator ends the stream (False)."""
    from rich.live import Live

    from tacit_services.display import text_tables, watch

    console = text_tables.console()
    if as_json or not console.is_terminal:
        return _until_over(client, lambda run: say(text_tables.line(run, as_json)))
    points: list[Point] = []
    with Live(console=console, auto_refresh=False) as live:

        def show(run: Status) -> None:
            points.extend(client.series(points[-1].version if points else None))
            live.update(watch.view(console, run, points, client.edges()), refresh=True)

        return _until_over(client, show)


def _until_over(client: Client, show: Callable[[Status], None]) -> bool:
    for run in client.events():
        show(run)
        if run.over:
            return True
    return False


def _download(client: Client, out: Path, as_json: bool) -> None:
    import hashlib

    data = client.weights()  # checked against the announced digest
    assert data is not None  # no ETag was given
    temporary = out.with_name(out.name + ".part")
    try:
        temporary.write_bytes(data)
        temporary.replace(out)
    except OSError as error:
        raise ConfigError(f"--out {out}: {error.strerror or error}") from error
    digest = hashlib.sha256(data).hexdigest()
    content = {"file": str(out), "bytes": len(data), "sha256": digest}
    _show(content, as_json, lambda _: f"{out}: {len(data)} bytes, sha256 {digest}")
