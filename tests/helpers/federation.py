"""A federation of real processes on this machine: a host, members with folders of their own."""

from __future__ import annotations

import csv
import json
import pty
import random
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from threading import Event
from typing import Any

import psutil
from tacit_services.federation import access
from tacit_services.journal import journal_file
from tacit_services.transport.tls import Tls

from tacit.privacy.ledger import read_chains
from tacit.protocol import wire
from tests.helpers.crash_plan import Death, died, plan
from tests.helpers.processes import environment
from tests.helpers.servers import HOST, PATIENCE, free_port, wait_for

# What to write before the arguments of a command.
TACIT = (sys.executable, "-m", "tacit_services.cli.main")
_RUN = """
[run]
updates = {updates}

[data]
kind = "table"
target = "y"
rows = 400

[data.columns]
a = {{ low = -4, high = 4 }}
b = {{ low = -4, high = 4 }}
y = {{ values = ["no", "yes"] }}

[model]
name = "logistic"

[algorithm]
name = "mapa"

[privacy]
epsilon = {epsilon}
delta = 1e-5

[edges]
count = {count}
wait = 600
slowdown = {slowdown}
"""
# How many times longer edges of an endless run take than they compute: meanwhile, others compute.
_RESTING = 30


def write_rows(path: Path, seed: int, rows: int = 400) -> Path:
    """Write a table of two numbers and a class that they tell."""
    draw = random.Random(seed)
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["a", "b", "y"])
        for _ in range(rows):
            a, b = draw.gauss(0, 1), draw.gauss(0, 1)
            writer.writerow([f"{a:.4f}", f"{b:.4f}", "yes" if a + b > 0 else "no"])
    return path


def run_text(**values: Any) -> str:
    """Return a run file of two columns, with other `values`."""
    usual = {"updates": 40, "epsilon": 2.0, "count": 2, "slowdown": []}
    return _RUN.format(**(usual | values))


def run_file(folder: Path, **values: Any) -> Path:
    """Write a run file, as of `run_text`."""
    path = folder / "run.toml"
    path.write_text(run_text(**values))
    return path


def endless_run(folder: Path, count: int = 2) -> Path:
    """Write a run file that trains for longer than any test, a few updates a second."""
    return run_file(folder, updates=100_000, epsilon=6.0, count=count, slowdown=[_RESTING] * count)


@dataclass
class Machine:
    """A machine of somebody: a folder, a data folder of its own, processes.

    program: how `tacit` is begun there; staying: the same of commands that stay. variables: of its
    environment, besides ours.
    """

    folder: Path
    program: Sequence[str] = TACIT
    variables: Mapping[str, str] = field(default_factory=dict)
    processes: list[subprocess.Popen[bytes]] = field(default_factory=list)
    staying: Sequence[str] | None = None

    def dying(self, **deaths: Sequence[Death]) -> None:
        """Let what stays, from its next start on, have processes that die at these points.

        They are those of a run, one after the other: workers of a member, aggregators of a host.
        """
        self.staying = (sys.executable, "-m", "tests.helpers.crash_federation")
        self.variables = {**self.variables, **plan(self.folder / "deaths", deaths)}

    def deaths(self, run: str) -> int:
        """Return how many processes of a run have died at their points."""
        return len(died(self.folder / "deaths", run))

    def tacit(self, *arguments: str | Path, patience: float = PATIENCE) -> str:
        """Run a command to its end; returns what it printed. Fails where it does."""
        done = self.tried(*arguments, patience=patience)
        assert done.returncode == 0, (arguments, done.stdout, done.stderr)
        return done.stdout

    def tried(
        self, *arguments: str | Path, patience: float = PATIENCE
    ) -> subprocess.CompletedProcess[str]:
        """Run a command to its end, well or not."""
        return subprocess.run(
            self._command(*arguments), env=self._environment(), cwd=self.folder, capture_output=True,
            text=True, timeout=patience, check=False, stdin=subprocess.DEVNULL,
        )  # fmt: skip

    def start(self, log: str, *arguments: str | Path) -> subprocess.Popen[bytes]:
        """Start a command that stays; its output goes to a file of the folder."""
        with (self.folder / log).open("ab") as out:
            process = subprocess.Popen(
                [*(self.staying or self.program), *map(str, arguments)],
                env=self._environment(), cwd=self.folder, stdout=out,
                stderr=out, stdin=subprocess.DEVNULL, start_new_session=True,
            )  # fmt: skip
        self.processes.append(process)
        return process

    def stop(self) -> None:
        """End what stays."""
        for process in reversed(self.processes):
            process.terminate()
        for process in self.processes:
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def text(self, log: str) -> str:
        """Return what a command that stays has printed."""
        path = self.folder / log
        return path.read_text(errors="replace") if path.exists() else ""

    def wait_for_text(self, log: str, text: str) -> None:
        """Wait until a command that stays has printed `text`."""
        wait_for(lambda: text in self.text(log), 3 * PATIENCE)

    def _command(self, *arguments: str | Path) -> list[str]:
        return [*self.program, *map(str, arguments)]

    def _environment(self) -> dict[str, str]:
        own = {"XDG_DATA_HOME": str(self.folder / "home"), "HOME": str(self.folder)}
        return environment(**own, **self.variables)


class Host(Machine):
    """The machine that serves."""

    def __init__(
        self, folder: Path, program: Sequence[str] = TACIT, address: str | None = None
    ) -> None:
        """address: HOST:PORT to listen at; None: a free port of the loopback interface."""
        folder.mkdir(exist_ok=True)
        super().__init__(folder, program)
        self.address = address or f"{HOST}:{free_port()}"
        self.place = folder / "clinic"
        self.serving: subprocess.Popen[bytes] | None = None

    @property
    def port(self) -> int:
        """The port that it listens at."""
        return int(self.address.rpartition(":")[2])

    def serve(self, *more: str) -> None:
        """Serve, and wait until members can join."""
        before = self.text("serve.log").count("tacit join")
        self.serving = self.start("serve.log", "serve", self.place, "--listen", self.address, *more)
        self.wait(lambda: self.text("serve.log").count("tacit join") > before)

    def kill(self) -> None:
        """Kill it with -9."""
        assert self.serving is not None
        self.serving.kill()
        self.serving.wait()

    def broker_pid(self) -> int:
        """Return the process that is its broker."""
        assert self.serving is not None
        children = psutil.Process(self.serving.pid).children()
        (broker,) = (child for child in children if child.name() == "mosquitto")
        return int(broker.pid)

    def libraries(self) -> str:
        """Return the files that its process has in memory, as Linux lists them."""
        assert self.serving is not None
        return Path(f"/proc/{self.serving.pid}/maps").read_text()

    def move(self, place: Path) -> None:
        """Stop serving, copy the folder to `place`, and serve it there at another port."""
        assert self.serving is not None
        self.serving.terminate()
        assert self.serving.wait(60) == 0, self.text("serve.log")
        shutil.copytree(self.place, place)
        shutil.rmtree(self.place)  # whatever still leads there is in the way from now on
        self.place = place
        self.address = f"{HOST}:{free_port()}"
        self.serve()

    def join_words(self) -> list[str]:
        """Return the newest line that was printed to give away, without the program."""
        lines = [line for line in self.text("serve.log").splitlines() if "tacit join" in line]
        return shlex.split(lines[-1])[1:]

    def runs(self) -> dict[str, dict[str, Any]]:
        """Return how each run stands, by name; as `tacit runs --json`, without its process."""
        with access.of_folder(self.place).client() as client:
            return {run.name: run.to_json() for run in client.runs()}

    def wait_run(self, name: str, met: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        """Wait until a run is so; returns how it stands."""
        self.wait(lambda: met(self.runs()[name]))
        return self.runs()[name]

    def journalled(self, run: str) -> list[bytes]:
        """Return every message in a run's journal, in its order."""
        with journal_file.open_journal(self.place / "runs" / run / "journal") as file:
            return [entry.payload for entry in journal_file.JournalReader(file, "journal")]

    def accepted(self, run: str, first: int = 0) -> list[tuple[str, int]]:
        """Return the (edge, number) of every update in a run's journal, from message `first` on."""
        metas = [wire.decode(payload).meta for payload in self.journalled(run)[first:]]
        return [(meta.edge, meta.seq) for meta in metas if meta.HasField("update")]

    def wait(self, condition: Callable[[], bool]) -> None:
        """Wait until `condition` is true, while the host serves."""

        def is_met() -> bool:
            assert self.serving is not None
            assert self.serving.poll() is None, self.text("serve.log")
            pause.wait(0.2)
            return condition()

        pause = Event()

        wait_for(is_met, 3 * PATIENCE)


class Member(Machine):
    """The machine of an owner of rows."""

    def __init__(
        self,
        folder: Path,
        seed: int,
        name: str,
        program: Sequence[str] = TACIT,
        variables: Mapping[str, str] | None = None,
    ) -> None:
        folder.mkdir(exist_ok=True)
        super().__init__(folder, program, variables or {})
        self.name = name
        self.rows = write_rows(folder / "rows.csv", seed)
        self.state = folder / "state"
        self.joined: subprocess.Popen[bytes] | None = None
        self._words: list[str] = []

    def join(self, host: Host, policy: str | None = 'accept = "within"', *more: str) -> None:
        """Join with a policy; None: its owner answers by hand. more: further options."""
        words = [*host.join_words(), "--data", str(self.rows), "--as", self.name]
        words += ["--state", str(self.state), *more]
        if policy is not None:
            (self.folder / "policy.toml").write_text(policy)
            words += ["--policy", str(self.folder / "policy.toml"), "--yes"]
        self._words = words
        self.start_again()

    def join_at_terminal(self, host: Host) -> int:
        """Join with nobody's policy, at a terminal; returns the descriptor to type at."""
        ours, theirs = pty.openpty()
        words = [*host.join_words(), "--data", str(self.rows), "--state", str(self.state)]
        with (self.folder / "join.log").open("ab") as out:
            self.joined = subprocess.Popen(
                self._command(*words), env=self._environment(), cwd=self.folder, stdout=out,
                stderr=out, stdin=theirs, start_new_session=True,
            )  # fmt: skip
        self.processes.append(self.joined)
        return ours

    def charges(self) -> int:
        """Return how many releases the ledger of its data has, its chain verified."""
        (ledger,) = (self.folder / "home" / "tacit" / "ledgers").glob("*/*/edge-*.db")
        (chain,) = read_chains(ledger)
        chain.verify()
        return chain.releases

    def spent_nothing_since(self, spent: int) -> bool:
        """Return whether it has released nothing since its ledger had `spent` releases.

        The one release that a worker charges ahead is given back when the worker ends.
        """
        return spent - 1 <= self.charges() <= spent

    @property
    def identity(self) -> str:
        """Its id in the federation, by the order in which members came."""
        path = self.state / "member.json"
        wait_for(path.exists, 3 * PATIENCE)
        content = json.loads(path.read_text())
        return str(content["member"])

    def certificate_ends(self) -> float:
        """Return when its certificate ends, in seconds since 1970."""
        return self.tls.ends()

    @property
    def tls(self) -> Tls:
        """The files by which it shows who it is."""
        return Tls(*(self.state / name for name in ("ca.crt", "tls.crt", "tls.key")))

    def work_log(self, run: str) -> str:
        """Return what its process of a run has logged."""
        return (self.state / "runs" / run / "worker.log").read_text(errors="replace")

    @property
    def has_joined(self) -> bool:
        """Whether it has an id."""
        return (self.state / "member.json").exists()

    def start_again(self) -> None:
        """Start it anew by the same command."""
        self.joined = self.start("join.log", *self._words)

    def kill(self) -> None:
        """Kill it with -9."""
        assert self.joined is not None
        self.joined.kill()
        self.joined.wait()


def check_counted_once(pushes: Sequence[tuple[str, int]], applied: int) -> None:
    """Fail unless each update is in the journal once, and all but a few are in the model.

    What came in one batch with a run's last update is in the journal alone. An edge waits for a
    receipt before its next, so that is less than one of each edge.
    """
    assert len(set(pushes)) == len(pushes)
    assert applied <= len(pushes) < applied + len({edge for edge, _ in pushes})


@contextmanager
def federation(
    folder: Path, members: int, deaths: Mapping[str, Sequence[Death]] | None = None
) -> Iterator[tuple[Host, list[Member]]]:
    """Yield a host that serves, and machines of members that have not joined.

    deaths: of the aggregators of its runs.
    """
    host = Host(folder / "host")
    if deaths:
        host.dying(**deaths)
    machines = [Member(folder / f"site{n}", n, f"Site {n}") for n in range(members)]
    try:
        host.serve()
        yield host, machines
    finally:
        for machine in [*machines, host]:
            machine.stop()
