"""Strangers hold all the connections they can, at REST and at enrolment, while a run goes on.

Whoever has a right to is served, the run goes on, and memory stays within what is stated.
"""

from __future__ import annotations

import logging
import re
import resource
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest
from tacit_services.enrollment import certificates, rest
from tacit_services.enrollment.authority import CertificateAuthority
from tacit_services.enrollment.tokens import TokenRegister
from tacit_services.transport import rest_client
from tacit_services.transport.http_door import ClientLimits
from tacit_services.transport.tls import context_trusting

from tests.helpers.processes import PATIENCE, Deployment, Service, deployment
from tests.helpers.run_files import MAPA, toml
from tests.helpers.servers import HOST, Mosquitto, free_port, wait_for

log = logging.getLogger("tacit.test")
MODEL = 4 * 64 * 3000 + 4 * 3000 * 10  # bytes, about
ROOM = 100 << 20  # what docs/operations.md says that strangers cost, beside downloads


@dataclass(frozen=True)
class Length:
    """How long is attacked, in rounds of so many seconds, with as long a calm before each."""

    rounds: int
    seconds: float


LENGTHS = [
    pytest.param(Length(3, 3.0), id="short", marks=pytest.mark.slow),
    pytest.param(Length(5, 60.0), id="long", marks=[pytest.mark.exhaustive, pytest.mark.alone]),
]


@pytest.fixture
def hidden() -> list[int]:
    """Return the units of the model, which make its size."""
    return [3000]


@pytest.fixture
def run(tmp_path: Path, broker: Mosquitto, hidden: list[int]) -> Iterator[Deployment]:
    text = toml(
        MAPA,
        run={"updates": 10**6},
        model={"name": "mlp", "hidden": hidden},
        privacy={"batch": 16, "pushes": 10**6},
        edges={"count": 1},
    )
    address, store = f"{broker.host}:{broker.port}", f"sqlite:///{tmp_path}/store.db"
    with deployment(tmp_path, text, address, store, "strangers") as deployed:
        yield deployed


def peak(service: Service) -> int:
    """Return the most bytes of memory that a process has ever had."""
    assert service.process is not None
    status = Path(f"/proc/{service.process.pid}/status").read_text()
    match = re.search(r"VmHWM:\s+(\d+) kB", status)
    assert match
    return int(match[1]) << 10


def few_descriptors(service: Service) -> None:
    """Limit the process to the usual number of descriptors, as where nobody has raised it."""
    assert service.process is not None
    resource.prlimit(service.process.pid, resource.RLIMIT_NOFILE, (1024, 1024))


def attacked(address: str, what: str, seconds: float, meanwhile: Callable[[], None]) -> int:
    """Attack for so long, and do `meanwhile` again and again; how many connections were made."""
    command = [sys.executable, "-m", "tests.helpers.attackers", address, what, str(seconds)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as attack:
        while attack.poll() is None:
            meanwhile()
        output, _ = attack.communicate()
        assert attack.returncode == 0
    return int(output)


@pytest.mark.parametrize("length", LENGTHS)
def test_a_run_goes_on_and_its_operator_is_served(run: Deployment, length: Length) -> None:
    address = f"{HOST}:{free_port()}"
    token = run.folder / "token"
    aggregator = run.aggregator(
        TACIT_HTTP=address,
        TACIT_TOKEN_FILE=str(token),
        MALLOC_ARENA_MAX="2",  # as in the images
    )
    run.edge(0)
    wait_for(lambda: token.exists() and token.read_text() != "")
    progress = Progress(f"http://{address}", rest_client.token(token))
    wait_for(lambda: progress.applied() > 20)
    few_descriptors(aggregator)
    calm, under = Rate(), Rate()
    calm.over(progress, lambda: progress.during(length.seconds))
    before, attempts = peak(aggregator), 0
    for _ in range(length.rounds):
        calm.over(progress, lambda: progress.during(length.seconds))
        attempts += under.over(
            progress, lambda: attacked(address, "rest", length.seconds, progress.asked)
        )
    assert attempts > 2 * ClientLimits().connections, "no attack"
    grown = peak(aggregator) - before
    log.info(
        f"{attempts} connections; {calm.value:.1f} a second, attacked {under.value:.1f}; {grown >> 20} MB more"
    )
    assert under.value > calm.value / 2
    assert grown < ROOM + 10 * MODEL
    assert aggregator.log.count("Traceback") == 0
    assert aggregator.log.count("\n") < 200


@pytest.mark.slow
@pytest.mark.parametrize("hidden", [[2100, 2100]])
def test_downloads_that_nobody_reads_cost_a_few_blocks(run: Deployment) -> None:
    # Given an aggregator with a model of 18 MB, which somebody has had,
    address, model = f"{HOST}:{free_port()}", 4 * 2100 * (64 + 2100 + 10)
    aggregator = run.aggregator(TACIT_HTTP=address, MALLOC_ARENA_MAX="2")
    wait_for(lambda: answered(address) == 200, PATIENCE)  # 503 while it takes the run over
    wait_for(lambda: downloaded(address) > model, PATIENCE)
    before = peak(aggregator)
    # when fifty, from ten addresses, ask for it and read nothing,
    with ExitStack() as stack:
        for number in range(50):
            unread = stack.enter_context(closing(socket.socket()))
            unread.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            unread.bind((f"127.0.0.{2 + number % 10}", 0))
            unread.connect((HOST, int(address.rpartition(":")[2])))
            unread.sendall(b"GET /v1/model/weights HTTP/1.1\r\nHost: localhost\r\n\r\n")
        # then who asks what is answered, none of them is waited for, and nothing is copied for it.
        wait_for(lambda: downloaded(address) > model, PATIENCE)
        grown = peak(aggregator) - before
    log.info(f"50 downloads of {model >> 20} MB that nobody reads: {grown >> 20} MB more")
    assert grown < 2 * model


def answered(address: str) -> int:
    """Return the code of the answer to who asks for the status; 0: it is not there yet."""
    try:
        with httpx.Client(trust_env=False, timeout=PATIENCE) as web:
            return web.get(f"http://{address}/v1/status").status_code
    except httpx.ConnectError:
        return 0


def downloaded(address: str) -> int:
    """Return the bytes of the model, as a stranger gets it; 0: not now."""
    assert answered(address) == 200
    with httpx.Client(trust_env=False, timeout=PATIENCE) as web:
        answer = web.get(f"http://{address}/v1/model/weights")
        return len(answer.content) if answer.status_code == 200 else 0


class Progress:
    """What the operator and a health check ask, each time on a new connection."""

    def __init__(self, url: str, token: str | None) -> None:
        self._url, self._bearer = url, {"Authorization": f"Bearer {token}"}

    def applied(self) -> int:
        try:
            with httpx.Client(trust_env=False, timeout=PATIENCE) as web:
                status = web.get(f"{self._url}/v1/status", headers=self._bearer)
                return int(status.json()["applied"])
        except (httpx.ConnectError, KeyError):  # it is not there yet
            return 0

    def asked(self) -> None:
        """Check that both questions are answered."""
        with httpx.Client(trust_env=False, timeout=PATIENCE) as web:
            assert web.get(f"{self._url}/readyz").status_code == 200
            status = web.get(f"{self._url}/v1/status", headers=self._bearer)
            assert status.json()["state"] == "training"

    def during(self, seconds: float) -> int:
        """Ask the same number of questions a second or more, without an attack."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            self.asked()
        return 0


class Rate:
    """Updates a second, over several stretches."""

    def __init__(self) -> None:
        self._updates, self._seconds = 0, 0.0

    def over(self, progress: Progress, act: Callable[[], int]) -> int:
        """Count what is applied while `act` lasts; returns what it does."""
        began, at = progress.applied(), time.monotonic()
        count = act()
        self._updates += progress.applied() - began
        self._seconds += time.monotonic() - at
        return count

    @property
    def value(self) -> float:
        return self._updates / self._seconds


@pytest.mark.parametrize("length", LENGTHS)
def test_enrolment_goes_on(tmp_path: Path, length: Length) -> None:
    folder, address = tmp_path / "pki", f"{HOST}:{free_port()}"
    authority = CertificateAuthority.create(folder)
    authority.issue(rest.SERVER, [HOST])
    token = TokenRegister(folder).add("*", once=False)
    server = Service("pki", {}, tmp_path / "enrollment.log")
    server.start("serve", "--dir", str(folder), "--listen", address)
    desk, enrolled = Desk(f"https://{address}", folder / "ca.crt", token), list[int]()
    try:
        wait_for(desk.there)
        desk.enroll("first")
        before = peak(server)
        few_descriptors(server)
        attempts = attacked(
            address,
            "enroll",
            length.rounds * length.seconds,
            lambda: enrolled.append(desk.enroll(f"edge-{len(enrolled)}")),
        )
        grown = peak(server) - before
        log.info(f"{attempts} connections, {len(enrolled)} enrolled; {grown >> 20} MB more")
        assert attempts > 2 * ClientLimits().connections, "no attack"
        assert set(enrolled) == {201}
        assert grown < ROOM
        assert server.log.count("Traceback") == 0
        assert server.log.count("\n") < 100 + len(enrolled)
    finally:
        server.kill()


class Desk:
    """An enrolment server, as an edge asks it."""

    def __init__(self, url: str, ca: Path, token: str) -> None:
        self._url, self._ca, self._token = url, ca, token

    def there(self) -> bool:
        try:
            with self._web() as web:
                return web.get("/healthz").status_code == 200
        except httpx.TransportError:
            return False

    def enroll(self, name: str) -> int:
        """Return the status of the answer to an enrolment."""
        csr = certificates.pem(certificates.request(certificates.new_key(), name)).decode()
        with self._web() as web:
            bearer = {"Authorization": f"Bearer {self._token}"}
            return web.post("/v1/enroll", json={"csr": csr}, headers=bearer).status_code

    def _web(self) -> httpx.Client:
        believed = context_trusting(self._ca)
        return httpx.Client(base_url=self._url, verify=believed, trust_env=False, timeout=PATIENCE)
