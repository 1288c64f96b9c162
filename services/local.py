"""`tacit run`: broker, store, aggregator and edges as child processes of one command, until the run has ended.

A testbed: its edges are simulated on public benchmark data, so every run begins with fresh ledgers. (The services
never do that: there, a ledger belongs to the data for life.)
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, field
from pathlib import Path

from rich.console import Console
from tacit_client import ApiError, Client, Status, Unreachable

from services import display
from services.aggregator import report
from services.edge import turns
from services.runtime.settings import load_policy
from tacit import config, datasets
from tacit.algorithm_sections import Gossip, Vafl
from tacit.config import RunFile
from tacit.errors import ConfigError, ServiceError

MARKER = ".tacit-run"
RESTARTS = 20  # per child; a child that dies more often is not going to recover
# glibc gives the 10 MB buffers of per-example gradients back to the system after every push, and faults them in again.
KEEP_HEAP = {
    "MALLOC_TRIM_THRESHOLD_": str(1 << 30),
    "MALLOC_MMAP_THRESHOLD_": str(1 << 25),
    "MALLOC_TOP_PAD_": str(1 << 25),
}
START_SECONDS = 60.0


@dataclass(slots=True)
class Child:
    """A process that is started again when it dies before its work is done."""

    name: str
    command: list[str]
    environment: dict[str, str]
    log: Path
    process: subprocess.Popen[bytes] | None = None
    restarts: int = field(default=0)

    def start(self) -> None:
        """Start it; output is appended to its log."""
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                self.command, env=os.environ | self.environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                start_new_session=True, preexec_fn=_die_with_parent,
            )  # fmt: skip

    def code(self) -> int | None:
        """Exit code, or None while it runs."""
        assert self.process is not None
        return self.process.poll()

    def stop(self, patience: float = 8.0) -> None:
        """SIGTERM, then SIGKILL after `patience` seconds."""
        if self.process is None or self.process.poll() is not None:
            return
        self.process.terminate()
        try:
            self.process.wait(patience)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()

    def complaint(self) -> str:
        """The last line that it logged."""
        lines = self.log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
        return lines[-1].removeprefix("tacit: ") if lines else f"{self.name} ended without a word"


def run(
    file: Path,
    *,
    edges: int | None,
    out: Path,
    serve: str | None,
    seed: int | None,
    data: Path | None,
    as_json: bool,
    policy: Path | None = None,
    journal: Path | None = None,
    observe: Callable[[Status], None] = lambda status: None,
    listening: Callable[[str], AbstractContextManager[object]] = contextlib.nullcontext,
) -> int:
    """Run everything; returns the exit code. Raises TacitError for bad input before anything is started.

    `observe` gets every status that is polled (for benchmarks); `listening` the broker's address, and is open while
    the run lasts (for measurements).
    """
    console = display.console(as_json)
    started = time.monotonic()
    run_file = config.load(file, edges=edges, seed=seed)
    run_file.build_model()
    if policy is not None:
        load_policy(policy)  # whether the run file is within it is for every edge to say
    datasets.load_labels(run_file.data.dataset, "train", data)  # a missing file is better said before the start
    http = _free_address(serve)
    _check_journal(journal)
    state = _fresh(out, console)
    if edges is not None and edges != run_file.edges.count:
        name = run_file.algorithm.name
        console.print(f"{name} is centralised: one edge holds all the data (--edges {edges} ignored)")
    if (limit := run_file.capacity()) is not None and limit < run_file.run.updates:
        console.print(f"note: {run_file.edges.count} edges can pay for {limit} pushes only; the run will end there")
    console.print(display.ledgers(run_file, bool(os.environ.get("TACIT_LEDGER"))))
    if serve is not None:
        console.print(f"to end it early: tacit halt --url http://{http} --token-file {state / 'token'}")
    shared = _environment({
        "TACIT_RUN_FILE": file, "TACIT_DATA": data, "TACIT_EDGES": edges, "TACIT_SEED": seed, "TACIT_POLICY": policy,
        "TACIT_JOURNAL_FILE": journal and journal.absolute(),
    })  # fmt: skip
    children: list[Child] = []
    with turns.pipe(state / "turns", os.cpu_count() or 1), _stopping(children) as interrupted, ExitStack() as beside:
        broker = start_broker(state, children)
        beside.enter_context(listening(broker.address))
        store = start_store(state, children)
        console.print(display.opening(run_file, broker.kind, store.kind, http))
        shared |= {"TACIT_BROKER": broker.address}
        places = {"TACIT_STORE": store.address, "TACIT_OUT": str(out), "TACIT_HTTP": http}
        aggregator = _aggregator(shared | places, state)
        ours = [aggregator, *_workers(run_file, shared, state)]
        children.extend(ours)
        for child in ours:
            child.start()
        code = _watch(run_file, aggregator, children, http, console, interrupted, observe)
    if code:
        return code
    return _close(run_file, out, console, as_json, time.monotonic() - started)


def _check_journal(journal: Path | None) -> None:
    if journal is not None and (journal.exists() or not journal.absolute().parent.is_dir()):
        why = "there is such a file, and a journal is never overwritten" if journal.exists() else "no such directory"
        raise ConfigError(f"--journal {journal}: {why}")


def _environment(given: dict[str, object]) -> dict[str, str]:
    """What every child is told: `given`, where it is not None, and one thread each."""
    said = {name: str(value) for name, value in given.items() if value is not None}
    return {"TACIT_THREADS": "1", "OMP_NUM_THREADS": "1"} | said


def _aggregator(shared: dict[str, str], state: Path) -> Child:
    secrets = {"TACIT_TOKEN_FILE": "token", "TACIT_TRUSTED": "trusted.db", "TACIT_LABELS": "labels.safetensors"}
    return Child(
        "aggregator", [sys.executable, "-m", "services.cli", "aggregator"],
        shared | {name: str(state / file) for name, file in secrets.items()}, state / "aggregator.log",
    )  # fmt: skip


def _workers(run_file: RunFile, shared: dict[str, str], state: Path) -> list[Child]:
    service = {Gossip: "peer", Vafl: "party"}.get(type(run_file.algorithm), "edge")
    return [_edge(service, number, shared, state) for number in range(run_file.edges.count)]


def _close(run_file: RunFile, out: Path, console: Console, as_json: bool, seconds: float) -> int:
    """Show the summary; the aggregator has ended well, but only the end of a run writes one."""
    try:
        summary = json.loads((out / "summary.json").read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise ServiceError(f"aggregator: was stopped before the run's end; see {out}/state/aggregator.log") from error
    if summary["applied"] < run_file.run.updates:
        console.print(
            f"the run ended early ({summary['reason']}): {summary['applied']} of {run_file.run.updates} updates"
        )
    if as_json:
        Console().print_json(data=summary)
    else:
        console.print(display.closing(summary, out, seconds))
    return 0


def _edge(service: str, number: int, shared: dict[str, str], state: Path) -> Child:
    environment = shared | {"TACIT_IDENTITIES": str(state / "identities"), "TACIT_IDENTITY": str(number)}
    environment |= {"TACIT_TURNS": str(state / "turns")}
    environment |= KEEP_HEAP
    command = [sys.executable, "-m", "services.cli", service]
    return Child(f"edge-{number}", command, environment, state / f"edge-{number}.log")


def _watch(
    run_file: RunFile, aggregator: Child, children: list[Child], http: str, console: Console,
    interrupted: threading.Event, observe: Callable[[Status], None],
) -> int:  # fmt: skip
    """Show progress and restart what dies, until the aggregator has ended well."""
    with Client(f"http://{http}", timeout=5.0) as client, display.Progress(console, run_file) as progress:
        while (code := aggregator.code()) != 0:
            if interrupted.wait(1.0):
                console.print("interrupted")
                return 130
            for child in children:
                _mend(child)
            if code is None:
                with contextlib.suppress(Unreachable, ApiError):
                    status = client.status()
                    progress.show(status)
                    observe(status)
    return 0


def _mend(child: Child) -> None:
    code = child.code()
    if code is None or code == 0:
        return
    if 0 < code < 128:  # it said why: bad input, a spent budget; starting it again would not help
        error = ServiceError(f"{child.name}: {child.complaint()}")
        error.exit_code = code
        raise error
    if child.restarts >= RESTARTS:
        raise ServiceError(f"{child.name}: died {RESTARTS} times; see {child.log}")
    child.restarts += 1
    child.start()


@contextlib.contextmanager
def _stopping(children: list[Child]) -> Iterator[threading.Event]:
    """Whatever happens, no child outlives the command: edges first, then aggregator, store and broker."""
    interrupted = threading.Event()
    previous = {name: signal.signal(name, lambda *_: interrupted.set()) for name in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield interrupted
    finally:
        for child in reversed(children):
            child.stop()
        for name, handler in previous.items():
            signal.signal(name, handler)


@dataclass(frozen=True, slots=True)
class Service:
    """A broker or store that was started: what it is, and its address."""

    kind: str
    address: str


def start_broker(state: Path, children: list[Child]) -> Service:
    """mosquitto if it is on PATH, else amqtt, on a free loopback port."""
    port = _free_port()
    binary = _which("mosquitto")
    if binary is None:
        command = [sys.executable, "-m", "services.runtime.fallback_broker", f"127.0.0.1:{port}"]
        kind = "amqtt (no mosquitto on PATH)"
    else:
        conf = state / "mosquitto.conf"
        lines = [
            f"listener {port} 127.0.0.1", "allow_anonymous true", "set_tcp_nodelay true", "max_packet_size 1048576",
            "max_inflight_messages 16", "max_queued_messages 2000", "persistence false",
        ]  # fmt: skip
        lines += ["user root"] if os.geteuid() == 0 else []  # else it drops to a user that cannot read the folder
        conf.write_text("\n".join(lines) + "\n", encoding="utf-8")
        command, kind = [binary, "-c", str(conf)], "mosquitto"
    child = Child("broker", command, {}, state / "broker.log")
    _start_and_wait(child, port, children)
    return Service(kind, f"127.0.0.1:{port}")


def start_store(state: Path, children: list[Child]) -> Service:
    """valkey or redis if one is on PATH, with its append-only file in `state`; else a SQLite file."""
    binary = _which("valkey-server") or _which("redis-server")
    if binary is None:
        return Service("SQLite (no redis or valkey on PATH)", f"sqlite:///{(state / 'store.db').resolve()}")
    port = _free_port()
    command = [
        binary, "--bind", "127.0.0.1", "--port", str(port), "--dir", str(state), "--appendonly", "yes",
        "--appendfsync", "everysec", "--save", "", "--auto-aof-rewrite-min-size", "1gb",
        "--maxmemory", "4gb", "--maxmemory-policy", "noeviction",
    ]  # fmt: skip
    _start_and_wait(Child("store", command, {}, state / "store.log"), port, children)
    return Service(Path(binary).stem.removesuffix("-server"), f"redis://127.0.0.1:{port}/0")


def _start_and_wait(child: Child, port: int, children: list[Child]) -> None:
    child.start()
    children.append(child)
    deadline = time.monotonic() + START_SECONDS
    pause = threading.Event()
    while time.monotonic() < deadline and child.code() is None:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1.0):
            return
        pause.wait(0.02)
    raise ServiceError(f"{child.name} did not start: {child.complaint()}")


def _which(name: str) -> str | None:
    return shutil.which(name)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _free_address(serve: str | None) -> str:
    """Where REST will be: `serve`, checked now so that the refusal comes at once, or any free loopback port."""
    if serve is None:
        return f"127.0.0.1:{_free_port()}"
    host, _, port = serve.rpartition(":")
    if not host:
        raise ConfigError(f"--serve {serve!r}: expected HOST:PORT")
    try:
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind((host, int(port)))
    except (ValueError, OverflowError) as error:
        raise ConfigError(f"--serve {serve!r}: expected HOST:PORT") from error
    except OSError as error:
        raise ServiceError(f"--serve {serve}: {error.strerror or error}") from error
    return serve


def _fresh(out: Path, console: Console) -> Path:
    """An empty OUT/state. An earlier `tacit run` there is replaced; anything else is left alone."""
    state = out / "state"
    try:
        if state.exists():
            if not (state / MARKER).exists():
                raise ConfigError(f"--out {out}: {state} exists and is not an earlier `tacit run`")
            console.print(f"replacing the earlier run in {out} (a testbed run starts with fresh ledgers)")
            shutil.rmtree(state)
            for name in report.FILES:
                (out / name).unlink(missing_ok=True)
        state.mkdir(parents=True)
        (state / MARKER).touch()
    except OSError as error:
        raise ConfigError(f"--out {out}: {error.strerror or error}") from error
    return state


def _die_with_parent() -> None:
    """In the child, before exec: SIGTERM when `tacit run` dies, even by kill -9 (Linux; a no-op elsewhere)."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(1, signal.SIGTERM)
