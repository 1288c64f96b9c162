"""What `tacit conform broker` finds of real brokers, and of one that lacks what is needed."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from tacit_services.conformance.broker_client import BrokerPlace
from tacit_services.conformance.broker_suite import (
    ADVISED,
    CHECKS,
    WITH_CERTIFICATES,
    BrokerRehearsal,
    conform,
)
from tacit_services.conformance.check_result import CheckResult, NonconformanceError
from tacit_services.enrollment.authority import CertificateAuthority

from tacit.errors import ConfigError
from tests.helpers.nightly import nightly
from tests.helpers.rabbitmq import rabbitmq
from tests.helpers.servers import HOST, Server, free_port, mosquitto, secure_mosquitto

PLAIN = [name for name in CHECKS if name not in WITH_CERTIFICATES]
# The quick ones; the rest waits for what must not come, second after second.
QUICK = ["order", "size", "wildcards", "many topics"]


def results(
    url: str, checks: list[str], pki: Path | None = None, patience: float = 20.0
) -> dict[str, CheckResult]:
    """Return what these checks find, by name."""
    place = BrokerPlace.parsed(url, pki, patience)
    return {result.name: result for result in conform(BrokerRehearsal(place, "conform"), checks)}


@pytest.mark.parametrize("checks", [QUICK, *nightly(PLAIN)], ids=["quick", "all"])
def test_mosquitto_has_what_is_needed(tmp_path: Path, checks: list[str]) -> None:
    with mosquitto(tmp_path) as broker:
        findings = results(f"mqtt://{broker.host}:{broker.port}", checks)
    assert list(findings) == checks
    assert {name: result.why for name, result in findings.items() if result.why} == {}


@pytest.mark.parametrize(
    "checks", [["speaks for itself"], *nightly([*CHECKS])], ids=["quick", "all"]
)
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # paho's sockets
def test_the_broker_of_compose_keeps_members_apart(tmp_path: Path, checks: list[str]) -> None:
    authority = CertificateAuthority.create(tmp_path / "pki")
    for name in ("aggregator", "edge-0"):
        authority.issue(name)
    bundle = authority.issue("broker", [HOST])
    with secure_mosquitto(tmp_path, bundle, "conform", ["edge-0", "edge-1"]) as broker:
        findings = results(f"mqtts://{HOST}:{broker.port}", checks, authority.folder)
    assert {name: result.why for name, result in findings.items() if result.why} == {}


def test_a_broker_that_takes_small_messages_only_fails_by_their_size(tmp_path: Path) -> None:
    with mosquitto(tmp_path, "max_packet_size 100000") as broker:
        findings = results(f"{broker.host}:{broker.port}", ["order", "size"], patience=5.0)
    assert findings["order"].why is None
    assert "part of 262156 bytes" in str(findings["size"].why)
    assert findings["size"].failed


@pytest.mark.exhaustive
def test_what_brokers_lack_is_told(tmp_path: Path) -> None:
    # Given brokers that keep little, let nobody subscribe, or let two of one name in,
    with mosquitto(tmp_path, "max_queued_messages 100", "max_inflight_messages 16") as broker:
        little = results(f"{broker.host}:{broker.port}", ["waiting"], patience=5.0)
    with mosquitto(tmp_path, "retain_available false") as broker:
        forgetful = results(f"{broker.host}:{broker.port}", ["retained"], patience=5.0)
    port = free_port()
    module = "tacit_services.children.fallback_broker"
    amqtt = Server([sys.executable, "-m", module, f"{HOST}:{port}"], port, tmp_path / "amqtt.log")
    amqtt.start()
    try:
        findings = results(f"{HOST}:{port}", PLAIN, patience=10.0)
    finally:
        amqtt.stop()
    # then the checks of these fail, and no other.
    assert little["waiting"].failed
    assert forgetful["retained"].failed
    assert {name for name, result in findings.items() if result.failed} == {"take-over"}
    assert {name for name, result in findings.items() if result.why} == {"take-over", *ADVISED}


@pytest.mark.exhaustive
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # paho's sockets
def test_rabbitmq_keeps_members_apart_and_lacks_one_thing_that_is_needed(tmp_path: Path) -> None:
    authority = CertificateAuthority.create(tmp_path / "pki")
    for name in ("aggregator", "edge-0"):
        authority.issue(name)
    bundle = authority.issue("broker", [HOST])
    with rabbitmq(bundle, "conform", ["edge-0", "edge-1"]) as broker:
        findings = results(f"mqtts://{HOST}:{broker.port}", [*CHECKS], authority.folder, 60.0)
    # Version 3.10 looks up what it retains by the topic alone, and takes packets of any size.
    lacks = {name: result.why for name, result in findings.items() if result.why}
    assert set(lacks) == {"retained, by wildcard", "packet limit"}, lacks


@pytest.mark.exhaustive
def test_the_command_prints_each_check_as_json(tmp_path: Path) -> None:
    command = [str(Path(sys.executable).parent / "tacit"), "conform", "broker", "--json"]
    with mosquitto(tmp_path) as broker:
        address = f"mqtt://{broker.host}:{broker.port}"
        completed = subprocess.run([*command, address], capture_output=True, text=True, check=False)
    assert completed.returncode == 0, completed.stderr
    printed = json.loads(completed.stdout)
    assert [check["check"] for check in printed] == PLAIN
    assert {check["why"] for check in printed} == {None}


def test_a_broker_that_is_not_there_is_told_in_a_line() -> None:
    with pytest.raises(NonconformanceError, match="no connection"):
        results(f"{HOST}:{free_port()}", QUICK)


@pytest.mark.parametrize(
    ("url", "pki", "why"),
    [
        ("http://broker", None, "expected mqtt://HOST:PORT"),
        ("mqtt://broker:99999", None, "expected mqtt://HOST:PORT"),
        ("mqtts://broker", None, "mqtts:// needs --pki"),
        ("mqtt://broker", "pki", "--pki needs mqtts://"),
    ],
)
def test_a_wrong_address_is_refused(url: str, pki: str | None, why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        BrokerPlace.parsed(url, None if pki is None else Path(pki), 1.0)
