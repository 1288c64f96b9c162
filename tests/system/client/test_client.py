"""The Python client, against a real aggregator and against servers that are none."""

from __future__ import annotations

import hashlib
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from pydantic import BaseModel
from tacit_client import ApiError, Client, Status, Unreachable, models
from tacit_client.client import _server_sent
from tacit_services.display import text_tables
from tacit_services.transport import http_pace

from tacit.privacy.report import EdgePrivacy, RunPrivacy
from tests.conftest import ROOT
from tests.helpers.rest import TOKEN, Rig, Stage, staged
from tests.helpers.servers import HOST, free_port, wait_for
from tests.helpers.web import strange_server


@pytest.fixture
def rig(tmp_path: Path) -> Rig:
    rig = Rig(tmp_path)
    rig.hello("edge-0")
    rig.update("edge-0")
    return rig


@pytest.fixture(scope="module")
def stage() -> Iterator[Stage]:
    with staged() as new_stage:
        yield new_stage


@pytest.fixture
def client(rig: Rig, stage: Stage) -> Iterator[Client]:
    with stage.showing(rig) as url, Client(url, TOKEN) as client:
        yield client


def test_every_document_is_typed(rig: Rig, client: Client) -> None:
    rig.run_status.point(1, 0.5, 1.0, 10)
    status = client.status()
    assert (status.applied, status.target, status.state, status.over) == (1, 6, "training", False)
    assert status.slowest is not None
    assert (status.slowest.id, status.slowest.releases, status.privacy.bound) == (
        "edge-0",
        1,
        False,
    )
    assert client.privacy().edges["edge-0"].pushes == 1
    (edge,) = client.edges()
    assert edge == client.edge("edge-0")
    assert edge.epsilon_pld == client.privacy().epsilon
    assert [point.version for point in client.series()] == [1]
    assert client.series(after=1) == []


@pytest.mark.parametrize(
    ("kind", "read"), [(EdgePrivacy, models.EdgePrivacy), (RunPrivacy, models.Privacy)]
)
def test_the_client_reads_what_is_reported_of_privacy(
    kind: type[BaseModel], read: type[BaseModel]
) -> None:
    assert set(kind.model_json_schema()["properties"]) == set(read.model_fields)


def test_weights_are_checked_and_fetched_once(client: Client) -> None:
    info = client.model()
    data = client.weights()
    assert data is not None
    assert hashlib.sha256(data).hexdigest() == info.sha256
    assert client.weights(info.sha256) is None
    assert client.weights("0" * 64) == data


def test_an_infinite_epsilon_is_none(rig: Rig, client: Client) -> None:
    rig.hello("edge-1", multiplier=0.0, pushes=2)
    assert client.privacy().epsilon is None


def test_ready(rig: Rig, client: Client) -> None:
    assert not client.ready()
    rig.link.up = True
    assert client.ready()


def test_halt_says_what_was_taken(rig: Rig, client: Client) -> None:
    assert client.halt("enough").reason == "enough"
    assert client.halt().reason == "enough"
    assert rig.role.halt_reason == "enough"


def test_events_end_with_the_server(rig: Rig, client: Client) -> None:
    events = client.events()
    assert next(events).applied == 1
    rig.update("edge-0")
    assert next(events).applied == 2
    rig.operator.close()
    assert list(events) == []


def test_a_refusal_carries_the_problem(rig: Rig, client: Client) -> None:
    with pytest.raises(ApiError) as refused:
        client.edge("nobody/../../..")
    assert refused.value.status == 404
    with (
        pytest.raises(ApiError, match="401 Unauthorized: the operator's token"),
        Client(client._url) as nobody,
    ):
        nobody.halt()


def test_who_is_told_to_wait_waits(
    rig: Rig, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_pace, "BURST", 5.0)
    monkeypatch.setattr(http_pace, "RATE", 0.2)
    url = client._url
    with (
        httpx.Client(base_url=url, trust_env=False) as hasty,
        Client(url, timeout=60.0) as patient,
        Client(url, timeout=0.9) as hurried,
    ):
        wait_for(lambda: hasty.get("/v1/status").status_code == 429)
        with pytest.raises(ApiError, match="429 Too Many Requests: 50 requests a second"):
            hurried.status()
        assert patient.status().applied == 1
        assert client.status().applied == 1  # its token is the operator's


def test_a_document_keeps_what_it_does_not_know(client: Client) -> None:
    document = {**client.status().to_json(), "invented_later": {"x": 1}}
    assert Status.model_validate(document).to_json() == document


@pytest.mark.parametrize(
    ("body", "kind", "status", "message"),
    [
        (b"<html>", "text/html", 200, "not JSON"),
        (b"[" * 200_000, "application/json", 200, "not JSON"),
        (b"[" * 200_000, "application/json", 500, "not a tacit aggregator"),
        (b'{"state": "training"}', "application/json", 200, "algorithm: Field required"),
        (b"<html>", "text/html", 502, "not a tacit aggregator"),
        (b"[]", "application/json", 500, "not a tacit aggregator"),
        (b"<html>", "text/html", 429, "not a tacit aggregator"),
    ],
)
def test_a_strange_server_is_an_api_error(
    body: bytes, kind: str, status: int, message: str
) -> None:
    with (
        strange_server(body, kind, status) as url,
        Client(url) as client,
        pytest.raises(ApiError, match=message) as error,
    ):
        client.status()
    assert error.value.status == status


def test_damaged_weights_are_refused() -> None:
    with (
        strange_server(b"half a file", "application/octet-stream") as url,
        Client(url) as client,
        pytest.raises(ApiError, match="SHA-256"),
    ):
        client.weights()


def test_nobody_there() -> None:
    url = f"http://{HOST}:{free_port()}"
    with Client(url) as client:
        for call in (
            client.status,
            client.ready,
            client.weights,
            client.halt,
            lambda: next(client.events()),
        ):
            with pytest.raises(Unreachable) as error:
                call()
            assert error.value.url == url


@pytest.mark.parametrize(
    "url",
    [
        "",
        "127.0.0.1:8000",
        "ftp://host",
        "http://",
        "http://host:port",
        f"http://{70 * 'a'}.com",
        "http://a..b",
    ],
)
def test_a_bad_url_is_named(url: str) -> None:
    with pytest.raises(ValueError, match="url="):
        Client(url)


def test_server_sent_events_by_the_book() -> None:
    lines = [
        ": ping",
        "",
        "event: status",
        "data: {",
        "data:  1}",
        "id: 7",
        "",
        "data:x",
        "",
        "event: empty",
        "",
        "data: cut",
    ]
    assert list(_server_sent(iter(lines))) == [("status", "{\n 1}"), ("message", "x")]


def test_the_client_stands_alone() -> None:
    script = (
        "import sys, tacit_client;"
        "print({name.partition('.')[0] for name in sys.modules}"
        " & {'torch', 'tacit', 'tacit_services', 'fastapi', 'numpy'})"
    )
    completed = subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT, capture_output=True, check=True, text=True
    )
    assert completed.stdout.strip() == "set()"


def test_the_operators_status_says_why_a_run_has_ended_and_whom_it_waits_for(
    rig: Rig, client: Client
) -> None:
    console = text_tables.console()
    with console.capture() as before:
        console.print(text_tables.status(console, client.status()))
    assert "ended" not in before.get()
    rig.live.role.halt_reason = "the budget of every edge online is spent"
    with console.capture() as after:
        console.print(text_tables.status(console, client.status()))
    assert "the budget of every edge online is spent" in after.get()
    status = replace_needed(client, 5)
    assert text_tables.state(status).startswith(
        f"waiting for edges ({status.edges_online} of 5 have"
    )


def replace_needed(client: Client, needed: int) -> Status:
    """Return the status of a run that waits for so many edges."""
    return Status.model_validate(client.status().to_json() | {"edges_needed": needed})
