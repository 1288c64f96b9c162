"""The child processes of one command: services that are started again, a broker, a store."""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tacit.errors import ServiceError
from tacit_services import python_child, signals
from tacit_services.children.preload import FORKS, ForkedService, die_with_parent
from tacit_services.disk import files
from tacit_services.transport.mqtt import MAX_PACKET

RESTARTS = 20  # per child; a child that dies more often is not going to recover
_FIRST_PORT = 10_240
_TRIES = 50  # ports that are looked at outside the range of outgoing connections
START_SECONDS = 60.0


def _nothing() -> None:
    """Prepare nothing."""


@dataclass(slots=True)
class Child:
    """A process that is started again when it dies before its work is done.

    `command` is a program with its arguments; `tacit` is not looked up but forked, on systems that
    fork. `environment` is added to our own. A `lasting` one is a server, which never has its work
    done: it is started again even if it ended well. `inherits` are descriptors that a program (not
    a `tacit`) gets as they are: a lock that lasts until it has ended, too. `before` is called
    before every start.

    A program ends with the thread that has started it, as Linux takes that for its parent. Where
    POSIX is not, it inherits nothing, and goes on when this process was killed.
    """

    name: str
    command: list[str]
    environment: dict[str, str]
    log: Path
    process: subprocess.Popen[bytes] | ForkedService | None = None
    restarts: int = field(default=0)
    lasting: bool = False
    inherits: tuple[int, ...] = ()
    before: Callable[[], None] = _nothing

    def start(self) -> None:
        """Start the process; its output is appended to its log."""
        self.before()
        environment = os.environ | self.environment
        command = self.command
        if command[0] == "tacit":
            if FORKS:
                self.process = ForkedService(command[1:], environment, self.log)
                return
            command = python_child.command("tacit_services.cli.main", *command[1:])
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                command,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                **self._bonds(),
            )

    def _bonds(self) -> dict[str, Any]:
        """Return what ties a program to this process; nothing does where POSIX is not."""
        if os.name != "posix":
            return {}
        return {"start_new_session": True, "preexec_fn": die_with_parent, "pass_fds": self.inherits}

    def code(self) -> int | None:
        """Return the exit code, or None while it runs."""
        assert self.process is not None
        return self.process.poll()

    def signal(self, number: int) -> None:
        """Send it a signal, if it runs."""
        if self.process is not None and self.process.poll() is None:
            self.process.send_signal(number)

    def stop(self, patience: float = 8.0) -> None:
        """Ask it to end (SIGTERM), and kill it after `patience` seconds."""
        if self.process is None or self.process.poll() is not None:
            return
        self.process.terminate()
        try:
            self.process.wait(patience)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()

    def complaint(self) -> str:
        """Return the last line of its log."""
        lines = self.log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
        if lines:
            return lines[-1].removeprefix("tacit: ")
        return f"{self.name} ended without a word"


def restart_if_dead(child: Child) -> None:
    """Start `child` again if it has died before its work was done.

    Raises ServiceError, with the child's exit code and last line, where the child gave a reason
    (bad input, a spent budget), and where it died RESTARTS times.
    """
    code = child.code()
    if code is None or (code == 0 and not child.lasting):
        return
    if 0 < code < 128:  # it gave a reason, so another start would not help
        error = ServiceError(f"{child.name}: {child.complaint()}")
        error.exit_code = code
        raise error
    if child.restarts >= RESTARTS:
        raise ServiceError(f"{child.name}: died {RESTARTS} times; see {child.log}")
    child.restarts += 1
    child.start()


@contextlib.contextmanager
def stopping(children: list[Child]) -> Iterator[threading.Event]:
    """Stop all children at the end of the block, the last started first; yields an event.

    No child outlives the command, also where the block raises. SIGINT and SIGTERM set the event in
    the meantime.
    """
    interrupted = threading.Event()
    undo = signals.watch(interrupted)
    try:
        yield interrupted
    finally:
        for child in reversed(children):
            child.stop()
        undo()


@dataclass(frozen=True, slots=True)
class StartedServer:
    """A broker or a store that was started: what it is, and its address."""

    kind: str
    address: str


def start_broker(state: Path, children: list[Child]) -> StartedServer:
    """Start a broker on a free loopback port: mosquitto if it is on PATH, else amqtt."""
    port = free_port()
    binary = mosquitto()
    if binary is None:
        command = python_child.command(
            "tacit_services.children.fallback_broker", f"127.0.0.1:{port}"
        )
        kind = "amqtt (no mosquitto on PATH)"
    else:
        conf = state / "mosquitto.conf"
        lines = [
            f"listener {port} 127.0.0.1",
            *broker_limits(),
            "allow_anonymous true",
            "max_queued_messages 50000",
            "persistence false",
        ]
        conf.write_text("\n".join(lines) + "\n", encoding="utf-8")
        command = [binary, "-c", str(conf)]
        kind = "mosquitto"
    start_and_wait(Child("broker", command, {}, state / "broker.log", lasting=True), port, children)
    return StartedServer(kind, f"127.0.0.1:{port}")


def mosquitto() -> str | None:
    """Return the path of mosquitto; None where it is not on PATH."""
    return _which("mosquitto")


def broker_limits() -> list[str]:
    """Return the lines of mosquitto's configuration that every broker of tacit's own has.

    They follow the line of a listener.
    """
    lines = [
        "max_qos 1",
        "max_topic_alias 0",
        "set_tcp_nodelay true",
        f"max_packet_size {MAX_PACKET}",
        "max_inflight_messages 16",
    ]
    if files.is_root():
        lines.append("user root")  # else it becomes a user that cannot read the folder
    return lines


def start_store(
    state: Path, children: list[Child], inherits: tuple[int, ...] = ()
) -> StartedServer:
    """Start a store in `state`: valkey, or redis, or where neither is on PATH a SQLite file.

    inherits: descriptors that the server holds until it has ended.
    """
    binary = _which("valkey-server") or _which("redis-server")
    if binary is None:
        return StartedServer(
            "SQLite (no redis or valkey on PATH)", f"sqlite:///{(state / 'store.db').resolve()}"
        )
    port = free_port()
    command = [
        binary,
        "--bind",
        "127.0.0.1",
        "--port",
        str(port),
        "--dir",
        str(state),
        "--appendonly",
        "yes",
        "--appendfsync",
        "always",
        "--save",
        "",
        "--auto-aof-rewrite-min-size",
        "1gb",
        "--maxmemory",
        "4gb",
        "--maxmemory-policy",
        "noeviction",
    ]
    log = state / "store.log"
    store = Child("store", command, {}, log, lasting=True, inherits=inherits)
    start_and_wait(store, port, children)
    return StartedServer(Path(binary).stem.removesuffix("-server"), f"redis://127.0.0.1:{port}/0")


def start_and_wait(child: Child, port: int, children: list[Child]) -> None:
    """Start `child`, enter it among `children`, and return when its loopback port answers.

    Raises ServiceError, with the child's last line, where it ends instead, or takes too long.
    """
    child.start()
    children.append(child)
    deadline = time.monotonic() + START_SECONDS
    pause = threading.Event()
    while time.monotonic() < deadline and child.code() is None:
        with (
            contextlib.suppress(OSError),
            socket.create_connection(("127.0.0.1", port), timeout=1.0),
        ):
            return
        pause.wait(0.02)
    raise ServiceError(f"{child.name} did not start: {child.complaint()}")


def _which(name: str) -> str | None:
    return shutil.which(name)


def free_port() -> int:
    """Return a TCP port of the loopback interface that is free now.

    The server that binds it starts later. So it is none of those that the system gives to every
    connection that goes out: of these another process, or an edge, may get the same one meanwhile.
    """
    first, last = _ports_of_clients()
    others = [*range(_FIRST_PORT, first), *range(last + 1, 1 << 16)]
    port: int
    for port in random.SystemRandom().sample(others, min(_TRIES, len(others))):
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
        return port


def _ports_of_clients() -> tuple[int, int]:
    try:
        first, last = Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()
        return int(first), int(last)
    except (OSError, ValueError):  # not Linux: what most systems have
        return 32_768, 65_535
