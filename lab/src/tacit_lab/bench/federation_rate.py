"""A federation's rate: one run through the front door over `tacit run`, and two over one.

`python -m tacit_lab.bench.federation_rate [TURNS]`. All train the same: MEMBERS edges, the CNN of
21,840 parameters on 28×28 arrays, batch 48. No noise is added. A private push is held back for a
time that is measured once, at its start: a rate of such pushes shows little of the way that they
go. `tacit run` has its own broker, without TLS. The federation has a host and its members: TLS to
the broker through the one port, its plugin's rules, one ledger of each member for both runs.

They take turns of seconds, as in bench/training_cost.py: one is stopped (SIGSTOP) while the other
goes on. So what else the machine does meanwhile is the same for both. First the federation has one
run, then two. Both are compared with `tacit run`, and so with each other.
"""

from __future__ import annotations

import json
import os
import shlex
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, TypeVar

import httpx
import numpy as np
import psutil
from tacit_services.children.processes import free_port
from tacit_services.federation import access

from tacit_lab.bench.training_cost import SETTLE_SECONDS, TURN_SECONDS, tell

TURNS = 12
MEMBERS = 2  # no more than processors, or they wait for each other
ROWS = 2000  # of each member
WARM = 30  # updates after which a run is in step
PATIENCE = 300.0
FIRST, SECOND = "first", "second"
RUN = """
[run]
updates = 100000000
snapshot_every = 500
[data]
kind = "arrays"
{train}
shape = [1, 28, 28]
low = 0
high = 1
classes = 10
rows = {rows}
[model]
name = "cnn"
channels = [10, 20]
kernel = 5
hidden = [50]
[algorithm]
name = "asgd"
smoothness = 1.0
deviation = 1.0
max_staleness = 100000
[privacy]
batch = 48
mechanism = "none"
clip = 1.0
[edges]
count = {members}
"""


def measured(turns: int = TURNS) -> dict[str, Any]:
    """Return `door_over_run` and `two_runs_over_one`, of medians of neighbouring turns.

    {`run_per_s`, `door_per_s`, `two_runs_per_s`}: means of updates a second. `federation_load`: of
    the machine.
    """
    with tempfile.TemporaryDirectory() as name, ExitStack() as parts:
        alone = parts.enter_context(_begun(MeasuredRun(Path(name) / "run")))
        federation = parts.enter_context(_begun(MeasuredFederation(Path(name) / "federation")))
        single = _turns(turns, alone, federation)
        federation.submit(SECOND)
        two = _turns(turns, alone, federation)
    return compared(single, two)


def _turns(
    turns: int, alone: MeasuredRun, federation: MeasuredFederation
) -> list[tuple[float, float]]:
    """Return the rates of neighbouring turns of both."""
    rates = []
    for _ in range(turns):
        rates.append((_rate(alone, federation), _rate(federation, alone)))
        print("    " + ", ".join(f"{rate:.1f}" for rate in rates[-1]), flush=True)
    alone.tell(signal.SIGCONT)
    return rates


def compared(
    single: Sequence[tuple[float, float]], two: Sequence[tuple[float, float]]
) -> dict[str, Any]:
    """Return what turns of (`tacit run`, the federation) with one run, and with two, come to."""
    door, both = (statistics.median(ours / run for run, ours in rates) for rates in (single, two))
    return {
        "door_over_run": door,
        "two_runs_over_one": both / door,
        "run_per_s": statistics.mean(run for run, _ in (*single, *two)),
        "door_per_s": statistics.mean(ours for _, ours in single),
        "two_runs_per_s": statistics.mean(ours for _, ours in two),
        "federation_load": round(os.getloadavg()[0], 1),
    }


def show(results: dict[str, Any]) -> None:
    """Print it."""
    print(
        f"(i) door / tacit run     {results['door_over_run']:.2f}"
        f"   ({results['door_per_s']:.0f} of {results['run_per_s']:.0f} updates/s), "
        f"two runs over one {results['two_runs_over_one']:.2f}, load {results['federation_load']}"
    )


class StartedCommands(ABC):
    """Commands that stay, in a folder, with the user's data there."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True)
        self.folder = folder
        self._commands: list[subprocess.Popen[bytes]] = []

    def start(self, name: str, *words: str | Path) -> None:
        """Start `tacit WORDS`; what it prints goes into NAME.log."""
        with (self.folder / f"{name}.log").open("ab") as log:
            self._commands.append(
                subprocess.Popen(
                    _tacit(*words),
                    stdout=log,
                    stderr=log,
                    stdin=subprocess.DEVNULL,
                    env=self.environment(),
                    cwd=self.folder,
                )
            )

    def environment(self) -> Mapping[str, str]:
        """Return the variables of its processes."""
        home = str(self.folder / "home")
        return os.environ | {"XDG_DATA_HOME": home, "HOME": home, "OMP_NUM_THREADS": "1"}

    def tell(self, what: signal.Signals) -> None:
        """Send a signal to all processes that run now."""
        roots = [psutil.Process(command.pid) for command in self._commands]
        children = [child for root in roots for child in root.children(recursive=True)]
        tell((process.pid for process in (*roots, *children)), what)

    @abstractmethod
    def begin(self) -> None:
        """Start them; returns when they train."""

    @abstractmethod
    def applied(self) -> int:
        """Return the updates that were applied. Raises httpx.HTTPError."""

    def wait(self, condition: Callable[[], bool]) -> None:
        """Wait until `condition` is true. Raises TimeoutError, and RuntimeError where one ends."""
        pause, end = threading.Event(), time.monotonic() + PATIENCE
        while not condition():
            if time.monotonic() > end:
                raise TimeoutError(f"not so within {PATIENCE:g} s: {self._said()}")
            if any(command.poll() is not None for command in self._commands):
                raise RuntimeError(f"a command has ended: {self._said()}")
            pause.wait(0.2)

    def close(self) -> None:
        """End all."""
        for command in reversed(self._commands):
            command.terminate()
        for command in self._commands:
            command.wait(60)

    def _said(self) -> str:
        return " | ".join(path.read_text()[-300:] for path in sorted(self.folder.glob("*.log")))


class MeasuredRun(StartedCommands):
    """`tacit run`, with its own broker."""

    def begin(self) -> None:
        """Start it, and wait until its edges are in step."""
        file = self.folder / "run.toml"
        _write_rows(self.folder / "rows.npz", MEMBERS * ROWS, MEMBERS)
        file.write_text(_text('train = "rows.npz"', MEMBERS * ROWS))
        self._url = f"http://127.0.0.1:{free_port()}"
        where = self._url.removeprefix("http://")
        self.start("run", "run", file, "--out", self.folder / "out", "--serve", where)
        self.wait(lambda: _answered(self.applied) > WARM)

    def applied(self) -> int:
        """Return the updates that were applied. Raises httpx.HTTPError."""
        return _applied(httpx.get(f"{self._url}/v1/status", trust_env=False))


class MeasuredFederation(StartedCommands):
    """A host, its members, and their runs."""

    def begin(self) -> None:
        """Start all, and wait until one run is in step."""
        place = self.folder / "host"
        port = free_port()
        self.start("serve", "serve", place, "--listen", f"127.0.0.1:{port}")
        self.wait(lambda: bool(self._join_words()))
        self._access = access.of_folder(place)
        trusted = self._access.authority.context()
        bearer = {"Authorization": f"Bearer {self._access.token}"}
        self._http = httpx.Client(
            base_url=self._access.url, verify=trusted, headers=bearer, trust_env=False
        )
        self._join()
        (self.folder / "run.toml").write_text(_text("", ROWS))
        self._runs: list[str] = []
        self.submit(FIRST)

    def submit(self, run: str) -> None:
        """Submit a run, and wait until it is in step."""
        place, file = self.folder / "host", self.folder / "run.toml"
        words = _tacit("submit", file, "--name", run, "--federation", place)
        subprocess.run(words, env=self.environment(), check=True, capture_output=True)
        self._runs.append(run)
        self.wait(lambda: len(self._status()[run]["members"]) == MEMBERS)
        self.wait(lambda: _answered(lambda: self._applied_in(run)) > WARM)

    def _status(self) -> dict[str, dict[str, Any]]:
        answer = self._http.get("/v1/runs").raise_for_status()
        return {run["name"]: run for run in answer.json()}

    def _join(self) -> None:
        policy = self.folder / "policy.toml"
        policy.write_text('accept = "within"\n')
        for number in range(MEMBERS):
            name = f"Site {number}"
            rows = _write_rows(self.folder / f"rows-{number}.npz", ROWS, number)
            self.start(
                f"join-{number}", *self._join_words(), "--data", rows, "--as", name,
                "--state", self.folder / f"state-{number}", "--policy", policy, "--yes",
            )  # fmt: skip

    def _join_words(self) -> list[str]:
        lines = (self.folder / "serve.log").read_text().splitlines()
        words = [shlex.split(line)[1:] for line in lines if line.startswith("tacit join")]
        return words[0] if words else []

    def applied(self) -> int:
        """Return the updates that were applied in all runs. Raises httpx.HTTPError."""
        return sum(self._applied_in(run) for run in self._runs)

    def _applied_in(self, run: str) -> int:
        return _applied(self._http.get(f"/v1/runs/{run}/status"))

    def close(self) -> None:
        """End all."""
        super().close()
        self._http.close()


C = TypeVar("C", bound="StartedCommands")


@contextmanager
def _begun(commands: C) -> Iterator[C]:
    """Yield commands that have begun to train, and end them all."""
    try:
        commands.begin()
        yield commands
    finally:
        commands.tell(signal.SIGCONT)
        commands.close()


def _rate(these: StartedCommands, others: StartedCommands) -> float:
    """Return what one applies a second, while the other is stopped."""
    others.tell(signal.SIGSTOP)
    these.tell(signal.SIGCONT)
    time.sleep(SETTLE_SECONDS)
    before, began = these.applied(), time.perf_counter()
    time.sleep(TURN_SECONDS)
    after, ended = these.applied(), time.perf_counter()
    return (after - before) / (ended - began)


def _text(train: str, rows: int) -> str:
    return RUN.format(train=train, rows=rows, members=MEMBERS)


def _write_rows(path: Path, rows: int, seed: int) -> Path:
    draw = np.random.default_rng(seed)  # equal rows would have one ledger
    x = draw.random((rows, 1, 28, 28), dtype=np.float32)
    np.savez(path, x=x, y=draw.integers(10, size=rows))
    return path


def _tacit(*words: str | Path) -> list[str]:
    return [sys.executable, "-m", "tacit_services.cli.main", *map(str, words)]


def _applied(answer: httpx.Response) -> int:
    return int(answer.raise_for_status().json()["applied"])


def _answered(question: Callable[[], int]) -> int:
    """Return the answer; 0 where nobody answers yet."""
    try:
        return question()
    except (httpx.HTTPError, OSError):
        return 0


if __name__ == "__main__":
    ratios = measured(int(sys.argv[1]) if len(sys.argv) > 1 else TURNS)
    print(json.dumps(ratios, indent=2))
    show(ratios)
