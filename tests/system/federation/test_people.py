"""Who may do what in a federation: operator, researchers, readers, members, strangers."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from tacit_services.federation.access import Access, of_url
from tacit_services.transport.proxy import DIRECT

from tacit.errors import ConfigError
from tests.helpers.federation import Host, Machine, federation, run_file


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Host]:
    with federation(tmp_path_factory.mktemp("people"), members=0) as (served, _):
        yield served


def somebody(host: Host, folder: Path, name: str, role: str) -> Machine:
    """Return the machine of somebody who was invited; `token` is in its folder."""
    machine = Machine(folder / name)
    machine.folder.mkdir()
    token = host.tacit("members", "invite", name, "--role", role, "--federation", host.place)
    (machine.folder / "token").write_text(token)
    return machine


def elsewhere(host: Host) -> tuple[str, ...]:
    """Return the options with which somebody elsewhere reaches the host."""
    return ("--url", f"https://127.0.0.1:{host.port}", "--token-file", "token")


def test_a_researcher_sees_and_stops_own_runs_only(host: Host, tmp_path: Path) -> None:
    ada = somebody(host, tmp_path, "ada", "researcher")
    bob = somebody(host, tmp_path, "bob", "researcher")
    ada.tacit("submit", run_file(ada.folder), "--name", "adas", *elsewhere(host))
    assert json.loads(bob.tacit("runs", *elsewhere(host), "--json")) == []
    for command in (("stop", "adas"), ("begin", "adas"), ("results", "adas", "--out", "out")):
        refused = bob.tried(*command, *elsewhere(host))
        assert refused.returncode == 2
        assert "there is none of this name" in refused.stderr
    (run,) = json.loads(ada.tacit("runs", "adas", *elsewhere(host), "--json"))
    assert (run["state"], run["researcher"], run["applied"]) == ("offered", "ada", 0)
    (stopped,) = json.loads(ada.tacit("stop", "adas", *elsewhere(host), "--json"))
    assert stopped["state"] == "stopped"
    listed = json.loads(host.tacit("runs", "--federation", host.place, "--json"))
    assert {run["name"]: run["state"] for run in listed}["adas"] == "stopped"  # operators see all


def test_a_reader_sees_all_and_changes_nothing(host: Host, tmp_path: Path) -> None:
    eve = somebody(host, tmp_path, "eve", "reader")
    host.tacit("submit", run_file(tmp_path), "--name", "seen", "--federation", host.place)
    assert "seen" in eve.tacit("runs", *elsewhere(host))
    for command in (
        ("submit", run_file(eve.folder), "--name", "hers"),
        ("stop", "seen"),
        ("begin", "seen"),
        ("members", "invite", "mallory"),
    ):
        refused = eve.tried(*command, *elsewhere(host))
        assert (refused.returncode, "token" in refused.stderr) == (2, True), command


def test_a_cancelled_token_is_worth_nothing(host: Host, tmp_path: Path) -> None:
    carl = somebody(host, tmp_path, "carl", "reader")
    host.tacit("members", "cancel", "carl", "--federation", host.place)
    refused = carl.tried("runs", *elsewhere(host))
    assert refused.returncode == 2
    assert "the token is missing or wrong" in refused.stderr


def test_a_token_names_the_host_that_it_is_for(host: Host, tmp_path: Path) -> None:
    dora = somebody(host, tmp_path, "dora", "reader")
    secret, _, _ = (dora.folder / "token").read_text().strip().partition(".")
    (dora.folder / "token").write_text(f"{secret}.{'0' * 64}")
    refused = dora.tried("runs", *elsewhere(host))
    assert refused.returncode == 2
    assert "Ask its operator for a new line" in refused.stderr


def test_strangers_and_people_get_no_offer(host: Host, tmp_path: Path) -> None:
    frida = somebody(host, tmp_path, "frida", "researcher")
    access: Access = of_url(f"https://127.0.0.1:{host.port}", frida.folder / "token", None, DIRECT)
    with httpx.Client(verify=access.authority.context(), base_url=access.url) as client:
        for path in ("/v1/offers", "/v1/offers/seen", "/v1/runs", "/v1/members", "/v1/me"):
            assert client.get(path).status_code == 401, path
        token = {"Authorization": f"Bearer {access.token}"}
        assert client.get("/v1/offers", headers=token).status_code == 401
        assert client.get("/v1/me", headers=token).json()["right"] == "researcher"
        assert client.get("/healthz").json() == {"status": "alive"}


def test_what_is_submitted_is_checked_before_anybody_sees_it(host: Host, tmp_path: Path) -> None:
    gina = somebody(host, tmp_path, "gina", "researcher")
    run = run_file(gina.folder)
    run.write_text(run.read_text().replace('name = "mapa"', 'name = "vafl"'))
    refused = gina.tried("submit", run, "--name", "bad", *elsewhere(host))
    assert refused.returncode != 0
    assert refused.stderr.count("\n") == 1
    assert "Traceback" not in refused.stderr
    assert "bad" not in host.runs()


def test_without_a_federation_a_command_says_what_is_missing(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    refused = machine.tried("runs")
    assert refused.returncode == ConfigError.exit_code
    assert "--federation: missing" in refused.stderr
    refused = machine.tried("runs", "--federation", tmp_path)
    assert "no federation is there" in refused.stderr
