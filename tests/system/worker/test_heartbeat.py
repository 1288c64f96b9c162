"""Health: a service that is stopped, or long without its broker, is found out; nothing new listens."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tacit_services.cli import health, main
from tacit_services.worker import heartbeat
from tacit_services.worker.heartbeat import Heartbeat, judged

from tacit.errors import ConfigError, ServiceError
from tests.helpers import gossip, vertical
from tests.helpers.nightly import nightly
from tests.helpers.processes import Deployment, Service, deployment
from tests.helpers.run_files import MAPA, toml
from tests.helpers.servers import HOST, Mosquitto, free_port, mosquitto, wait_for
from tests.helpers.web import strange_server

LONG = 10.0**6  # seconds: nothing is too old


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the beats of this process follow one another closely."""
    monkeypatch.setattr(heartbeat, "PERIOD", 0.02)


def complaint(path: Path, silent: float = LONG, without_broker: float = LONG) -> str:
    """Return what is not well, or an empty text."""
    try:
        judged(path, silent, without_broker)
    except ServiceError as error:
        return str(error)
    return ""


@pytest.mark.usefixtures("quick")
def test_the_file_follows_the_worker_and_goes_at_its_end(tmp_path: Path) -> None:
    path, up = tmp_path / "health", [True]
    heart = Heartbeat(path)
    assert judged(path, LONG, LONG) == "a worker: starting"
    heart.stands("waits for an identity")
    heart.stands("online", "edge-3")
    heart.watch(lambda: up[0])
    wait_for(lambda: judged(path, LONG, LONG) == "edge-3: online")
    assert complaint(path, silent=30.0, without_broker=60.0) == ""
    up[0] = False
    wait_for(
        lambda: "edge-3 has been without its broker for" in complaint(path, without_broker=0.2)
    )
    up[0] = True
    wait_for(lambda: complaint(path, without_broker=0.2) == "")
    heart.close()
    assert complaint(path) == f"{path}: no such file; the service does not run"
    assert list(tmp_path.iterdir()) == []


def test_without_a_file_nothing_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    heart = Heartbeat(None)
    heart.stands("online", "edge-0")
    heart.close()
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_cannot_be_written_is_said_at_the_start(tmp_path: Path) -> None:
    path = tmp_path / "none" / "health"
    with pytest.raises(ConfigError, match=f"TACIT_HEALTH_FILE='{path}': No such file"):
        Heartbeat(path)


@pytest.mark.usefixtures("quick")
def test_a_disk_that_fails_later_ages_the_file_and_ends_nothing(tmp_path: Path) -> None:
    folder = tmp_path / "there"
    folder.mkdir()
    heart = Heartbeat(folder / "health")
    folder.rename(tmp_path / "gone")
    wait_for(lambda: "has said nothing" in complaint(tmp_path / "gone" / "health", silent=0.2))
    (tmp_path / "gone").rename(folder)
    wait_for(lambda: complaint(folder / "health", silent=0.2) == "")
    heart.close()


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        '{"at": "x"}',
        "\xff",
        '{"at": 0, "without_broker_s": "x", "edge": "", "state": ""}',
        "[" * 200_000,
    ],
    ids=["empty", "list", "text", "bytes", "seconds", "brackets"],
)
def test_what_is_no_such_file_is_not_well(tmp_path: Path, text: str) -> None:
    path = tmp_path / "health"
    path.write_bytes(text.encode("latin1"))
    assert "not what an edge says of its health" in complaint(path)


def test_a_file_from_before_the_machines_start_is_not_well(tmp_path: Path) -> None:
    path = tmp_path / "health"
    beat = {"at": 10.0**12, "edge": "edge-0", "state": "online", "without_broker_s": 0.0}
    path.write_text(json.dumps(beat))
    assert "edge-0 has said nothing" in complaint(path)


@pytest.mark.parametrize(
    "body", [b"[1]", b"5", b"null", b'"status"', b"[" * 200_000], ids=lambda body: body[:8].decode()
)
def test_another_service_at_the_address_is_not_well(body: bytes) -> None:
    with strange_server(body, "application/json") as url:
        assert asked("--url", url) == 4


@pytest.mark.parametrize("arguments", [["--silent", "-1"], ["--url", "foo"], ["--ca", "/nix"]])
def test_bad_usage_is_two(arguments: list[str]) -> None:
    assert asked(*arguments) == 2


def asked(*arguments: str) -> int:
    """Return the exit code of `tacit health`."""
    with pytest.raises(SystemExit) as end:
        main.main(["health", *arguments])
    return int(end.value.code or 0)


# -- real services ---------------------------------------------------------------------------------


TEXTS = {
    "edge": toml(MAPA, run={"updates": 10**6}, edges={"count": 1}, privacy={"epsilon": 10**6}),
    "party": vertical.noiseless(10**6),
    "peer": toml(
        gossip.RUN,
        run={"updates": 10**6},
        algorithm={"name": "adpsgd", "learning_rate": 0.1},
        privacy={"mechanism": "none"},
        edges={"count": 2},
    ),
}


@contextmanager
def deployed(folder: Path, text: str) -> Iterator[tuple[Deployment, Mosquitto]]:
    """Yield a run on a broker of its own; nothing else is started yet."""
    with mosquitto(folder) as broker:
        address = f"{HOST}:{broker.port}"
        with deployment(folder, text, address, f"sqlite:///{folder}/store.db", "health") as run:
            yield run, broker


@pytest.mark.slow
@pytest.mark.parametrize("command", ["edge", *nightly("party", "peer")])
def test_a_worker_that_is_stopped_or_without_its_broker_is_not_well(
    tmp_path: Path, command: str
) -> None:
    path = tmp_path / "health"
    with deployed(tmp_path, TEXTS[command]) as (run, broker):
        worker = run.edge(0, command, TACIT_HEALTH_FILE=str(path))

        def online() -> bool:
            run.check_services()
            return path.exists() and judged(path, LONG, LONG) == "edge-0: online"

        wait_for(online)
        assert asked("--file", str(path)) == 0
        stop(worker)
        wait_for(lambda: "edge-0 has said nothing for" in complaint(path, silent=8.0))
        assert asked("--file", str(path), "--silent", "8") == 4
        go_on(worker)
        wait_for(lambda: complaint(path, silent=8.0) == "")
        broker.kill()
        wait_for(lambda: "without its broker" in complaint(path, 30.0, without_broker=0.5))
        broker.start()
        wait_for(lambda: complaint(path, 30.0, without_broker=0.5) == "")
        assert worker.signal(signal.SIGTERM) == 0
        assert not path.exists()


def stop(service: Service) -> None:
    """Stop the service, so that it does nothing any more, and is still there."""
    assert service.process is not None
    service.process.send_signal(signal.SIGSTOP)


def go_on(service: Service) -> None:
    assert service.process is not None
    service.process.send_signal(signal.SIGCONT)


def stopped_and_back(service: Service, address: list[str]) -> None:
    """Check that `tacit health` reports a service well, not well while stopped, and well again."""
    wait_for(lambda: asked(*address) == 0)
    stop(service)
    assert asked(*address) == 4
    go_on(service)
    wait_for(lambda: asked(*address) == 0)


@pytest.mark.slow
def test_an_aggregator_that_is_stopped_or_without_its_broker_is_not_well(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(health, "PATIENCE", 1.0)
    url = f"{HOST}:{free_port()}"
    with deployed(tmp_path, TEXTS["edge"]) as (run, broker):
        aggregator = run.aggregator(TACIT_HTTP=url)
        address = ["--url", f"http://{url}"]
        stopped_and_back(aggregator, address)
        broker.kill()
        wait_for(lambda: asked(*address) == 4)
        broker.start()
        wait_for(lambda: asked(*address) == 0)


@pytest.mark.slow
def test_enrolment_that_is_stopped_is_not_well(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(health, "PATIENCE", 1.0)
    pki, port = tmp_path / "pki", free_port()
    with pytest.raises(SystemExit):
        main.main(["pki", "init", str(pki)])
    service = Service("pki", {}, tmp_path / "log")
    service.start("serve", "--dir", str(pki), "--listen", f"{HOST}:{port}")
    address = ["--url", f"https://{HOST}:{port}", "--ca", str(pki / "ca.crt")]
    try:
        stopped_and_back(service, address)
        assert asked(*address[:2]) == 4  # without the authority, it is nobody that is known
    finally:
        assert service.process is not None
        service.process.kill()
        service.process.wait()
