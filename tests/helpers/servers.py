"""Real servers for tests, on free loopback ports, with their files in a temporary directory.

Each is a child process that is ended by its own pid. A missing binary skips the test on a laptop
and fails it where the environment has CI set.
"""

from __future__ import annotations

import functools
import itertools
import json
import os
import shutil
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Event
from typing import TypeVar

import pytest
from tacit_services.cli.pki import ACL, RULES
from tacit_services.enrollment import acl
from tacit_services.transport.mqtt import MAX_PACKET

HOST = "127.0.0.1"
MEGABYTE = 1 << 20
PATIENCE = 90.0  # seconds; a deadline for tests on a busy machine, not an expectation
COUNTS_ITS_HEAP = (2, 0, 16)  # a version of mosquitto whose count of memory falls again
S = TypeVar("S", bound="Server")
# Ports of each pytest worker; the last are for processes that are none.
_PORTS = 2_000
_FIRST_PORT = 12_000 + _PORTS * (int(os.environ.get("PYTEST_XDIST_WORKER", "gw9")[2:]) % 10)
_ASKED = itertools.count(61 * os.getpid())


def need(binary: str) -> str:
    """Return the path of `binary`. Without it, skip the test, or fail it under CI."""
    path = shutil.which(binary) or shutil.which(binary, path="/usr/sbin:/usr/local/sbin")
    if path is None:
        message = f"{binary} is not installed"
        if os.environ.get("CI"):
            pytest.fail(message)
        pytest.skip(message)
    return path


def free_port() -> int:
    """Return a loopback TCP port that nothing listens on at this moment.

    It is of a range of this pytest worker alone, below those that the kernel gives. So nobody takes
    it before its server is up, or while that is down.
    """
    while True:
        with socket.socket() as probe, suppress(OSError):
            probe.bind((HOST, _FIRST_PORT + next(_ASKED) % _PORTS))
            return int(probe.getsockname()[1])


def wait_for(condition: Callable[[], bool], seconds: float = PATIENCE) -> None:
    """Return once `condition()` is true; TimeoutError after `seconds`."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"not so within {seconds:g} s")
        Event().wait(0.01)


def rss(pid: int) -> int:
    """Return the bytes of memory that a process has."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


class Server:
    """A child process that listens on `host`:`port`. The port stays the same over restarts."""

    def __init__(self, command: list[str], port: int, log: Path) -> None:
        self.host = HOST
        self.port = port
        self._command = command
        self._log = log
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        """The process now running."""
        assert self._process is not None
        return self._process.pid

    def start(self) -> None:
        """Start the process and return when it serves.

        Raise RuntimeError with its log if it ends instead.
        """
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(self._command, stdout=log, stderr=log)
        wait_for(self._serves)

    def kill(self) -> None:
        """Kill the server with SIGKILL: what was not written to disk is lost."""
        self._end(subprocess.Popen.kill)

    def stop(self) -> None:
        """End the server in an orderly way, with SIGTERM."""
        self._end(subprocess.Popen.terminate)

    def restart(self) -> None:
        """Stop in order, if still running, and start again with the same files and port."""
        self.stop()
        self.start()

    def _end(self, how: Callable[[subprocess.Popen[bytes]], None]) -> None:
        if self._process is not None:
            how(self._process)
            self._process.wait(timeout=PATIENCE)
            self._process = None

    def _serves(self) -> bool:
        assert self._process is not None
        if self._process.poll() is not None:
            raise RuntimeError(f"{self._command[0]} ended: {self._log.read_text()[-2000:]}")
        try:
            with socket.create_connection((self.host, self.port), timeout=PATIENCE) as connection:
                return self._answers(connection)
        except OSError:
            return False

    def _answers(self, connection: socket.socket) -> bool:
        """Check whether the server behind this fresh connection is ready for work."""
        return True


class RedisServer(Server):
    """A redis-server; `url` is database 0 over TCP."""

    @property
    def url(self) -> str:
        """Address for open_store."""
        return f"redis://{self.host}:{self.port}/0"

    def _answers(self, connection: socket.socket) -> bool:
        connection.sendall(b"PING\r\n")
        return connection.recv(64).startswith(b"+PONG")  # -LOADING while it reads its files


class Mosquitto(Server):
    """A mosquitto broker, anonymous, without TLS."""


@contextmanager
def redis_server(directory: Path, *options: str) -> Iterator[RedisServer]:
    """Yield a redis-server with an append-only file in `directory`; `options` are arguments of it."""
    port = free_port()
    fixed = [
        "--bind",
        HOST,
        "--port",
        str(port),
        "--dir",
        str(directory),
        "--save",
        "",
        "--appendonly",
        "yes",
        "--appendfsync",
        "always",
    ]
    command = [need("redis-server"), *fixed, *options]
    yield from _running(RedisServer(command, port, directory / "redis.log"))


@contextmanager
def mosquitto(directory: Path, *options: str) -> Iterator[Mosquitto]:
    """Yield a mosquitto with the project's limits and its persistence in `directory`.

    `options` are lines of its configuration, which go last and win.
    """
    port = free_port()
    lines = [
        f"listener {port} {HOST}",
        "max_qos 1",
        "max_topic_alias 0",
        "allow_anonymous true",
        "set_tcp_nodelay true",
        f"max_packet_size {MAX_PACKET}",
        "max_queued_messages 50000",
        "max_inflight_messages 16",
        "persistence true",
        f"persistence_location {directory}/",
        *options,
    ]
    if os.geteuid() == 0:
        lines.append("user root")  # else it drops to a user who may not write into `directory`
    config = directory / "mosquitto.conf"
    config.write_text("\n".join(lines) + "\n")
    command = [need("mosquitto"), "-c", str(config)]
    yield from _running(Mosquitto(command, port, directory / "mosquitto.log"))


@contextmanager
def secure_mosquitto(
    directory: Path,
    bundle: Path,
    run: str,
    edges: Sequence[str],
    *,
    peers: bool = False,
    plugin: bool = True,
) -> Iterator[Mosquitto]:
    """Yield the broker of compose.yaml, with the certificate in `bundle` and rules for this run.

    Its configuration is its own; without `plugin`, as its comments state, it has an `acl_file`.
    """
    for name, form in ((RULES, acl.plugin), (ACL, acl.acl)):
        (bundle / name).write_text(form([run], edges, peers=peers))
        (bundle / name).chmod(0o600)
    port, docker = free_port(), Path(__file__).parent.parent.parent / "docker"
    text = (docker / "mosquitto.conf").read_text()
    moved = {
        "listener 8883": f"listener {port} {HOST}",
        "/mosquitto/tls": str(bundle),
        "/mosquitto/data/": f"{directory}/",
    }
    for old, new in moved.items():
        assert old in text, old
        text = text.replace(old, new)
    if not plugin:
        text = text.replace("plugin", "#plugin").replace("#acl_file", "acl_file")
    if _version() < COUNTS_ITS_HEAP:  # as the comment of the line asks
        text = text.replace("memory_limit", "#memory_limit")
    config = directory / "mosquitto.conf"
    config.write_text(text + ("user root\n" if os.geteuid() == 0 else ""))
    yield from _running(
        Mosquitto([need("mosquitto"), "-c", str(config)], port, directory / "mosquitto.log")
    )


@functools.cache
def _version() -> tuple[int, ...]:
    """Return the version of the mosquitto on PATH, as (2, 0, 21)."""
    usage = subprocess.run([need("mosquitto"), "-h"], capture_output=True, text=True, check=False)
    return tuple(int(part) for part in usage.stdout.split()[2].split("."))


@contextmanager
def ruled_mosquitto(directory: Path, granted: str) -> Iterator[Mosquitto]:
    """Yield a mosquitto whose plugin for dynamic security grants everybody one subscription."""
    rules = {
        "defaultACLAccess": dict.fromkeys(("publishClientSend", "publishClientReceive"), True)
        | {"subscribe": False, "unsubscribe": True},
        "clients": [],
        "groups": [{"groupname": "all", "roles": [{"rolename": "all"}]}],
        "anonymousGroup": "all",
        "roles": [
            {
                "rolename": "all",
                "acls": [{"acltype": "subscribeLiteral", "topic": granted, "allow": True}],
            }
        ],
    }
    file = directory / "rules.json"
    file.write_text(json.dumps(rules))
    file.chmod(0o600)
    plugin = "/usr/lib/x86_64-linux-gnu/mosquitto_dynamic_security.so"
    plugin_path = plugin if Path(plugin).exists() else "mosquitto_dynamic_security.so"
    with mosquitto(directory, f"plugin {plugin_path}", f"plugin_opt_config_file {file}") as running:
        yield running


def _running(server: S) -> Iterator[S]:
    try:
        server.start()
        yield server
    finally:
        server.kill()
