"""A run whose edges, aggregator, broker and store are all killed, again and again, and what must
be true in the end.
"""

from __future__ import annotations

import hashlib
import os
import random
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import redis
from tacit_services.cli.replay import fold
from tacit_services.journal import journal_file
from tacit_services.journal.store import open_store

from tacit import config
from tacit.errors import ServiceError
from tacit.privacy.accounting import epsilon_pld
from tacit.privacy.ledger import read_chains
from tacit.protocol import wire
from tests.helpers.crash_edge import Forks
from tests.helpers.hostile import BOUNDED_BY_RULES, HARMLESS_TO_THE_MODEL
from tests.helpers.processes import PATIENCE, Deployment, Watcher, appended, check
from tests.helpers.run_files import MAPA, toml
from tests.helpers.servers import HOST, Mosquitto, RedisServer, wait_for

# Of a run without a message, and of one after its last kill, on a busy machine.
REST_SECONDS = 4 * PATIENCE
KINDS = ("aggregator", "broker", "redis", "edge", "edge")
FINAL = ("ACCEPTED", "DUPLICATE")


def run_text(updates: int, edges: int, *, hostile: bool = False) -> str:
    """Return a run file of so many updates by so many edges, with a place for a hostile edge."""
    return toml(
        MAPA,
        run={"updates": updates, "snapshot_every": 60},
        algorithm={"max_staleness": 1000},
        privacy={"batch": 16},
        edges={"count": edges},
        data={"spare": int(hostile)},
    )


def storm(
    chance: random.Random,
    kinds: Sequence[str],
    strike: Callable[[str], None],
    progress: Callable[[], int],
    every: int,
    over: Callable[[], bool],
) -> None:
    """Strike one of `kinds`, sometimes two, whenever `progress` has grown by about `every`,
    until it is over.
    """
    turn: list[str] = []  # every kind has its turn before any has its next
    while not over():
        await_growth(progress, chance.randint(1, 2 * every))
        for _ in range(chance.choice((1, 1, 2))):
            turn = turn or chance.sample(kinds, len(kinds))
            strike(turn.pop())


def await_growth(progress: Callable[[], int], count: int) -> None:
    """Return once `progress` has grown by `count`; TimeoutError where it stands still.

    How long all of it takes is no promise: on a busy machine a start alone may take minutes.
    """
    most = progress()
    goal = most + count
    while most < goal:
        wait_for(lambda most=most: progress() > most, REST_SECONDS)  # type: ignore[misc]
        most = max(most, progress())


@dataclass
class Scene:
    """One run: who is alive, and how often each kind was killed."""

    run: Deployment
    forks: Forks
    broker: Mosquitto
    redis: RedisServer
    edges: int
    random: random.Random
    pids: dict[str, int] = field(default_factory=dict)
    kills: Counter[str] = field(default_factory=Counter)

    @property
    def hostile(self) -> str:
        """The name of the hostile member, if there is one: the first after the honest ones'."""
        return f"edge-{self.edges}"

    def start(self, name: str) -> None:
        """Start `aggregator`, or `edge-K`, again."""
        folder = self.run.folder
        common = {
            "run_file": str(self.run.file),
            "run_id": self.run.run_id,
            "broker": self.run.broker,
            "chunk": 1024,
        }
        more: dict[str, Any]
        if name == "aggregator":
            journal_path = str(folder / "run.journal")
            more = {
                "store": self.run.url,
                "out": str(self.run.out),
                "http": f"{HOST}:0",
                "journal_file": journal_path,
            }
        else:
            number = int(name.partition("-")[2])
            more = {"identities": str(folder / "identities"), "identity": number, "patience": 0.4}
        order = {
            "start": common | more,
            "kind": name.partition("-")[0],
            "log": str(folder / f"{name}.log"),
            "account": str(folder / f"{name}.account"),
            "seed": self.random.getrandbits(32),
        }
        self.pids[name] = self.forks.ask(order) or 0

    def kill(self, name: str) -> None:
        """Kill a service with `kill -9`, and start a successor."""
        if name in ("broker", "redis"):
            server = self.broker if name == "broker" else self.redis
            server.kill()
            server.start()
            self.kills[name] += 1
            return
        if name not in self.pids:
            return
        os.kill(self.pids[name], signal.SIGKILL)
        ended = self.forks.wait(self.pids.pop(name), PATIENCE)
        if ended:  # else it had come to its end by itself: no kill, and no successor
            assert ended == -signal.SIGKILL, self.log(name)
            self.kills[name.partition("-")[0]] += 1
            self.start(name)

    def accepted(self) -> int:
        """Return how many messages have been accepted (0: no store at this moment)."""
        try:
            with closing(open_store(self.run.url, self.run.run_id)) as store:
                seqs = store.last_seqs()
                return sum(seqs[name] for name in seqs if name != self.hostile)
        except ServiceError:
            return 0

    def rage(self, kills: int, every: int) -> None:
        """Kill somebody, sometimes two at once, whenever about `every` more messages have been
        accepted.
        """

        def strike(kind: str) -> None:
            self.kill(f"edge-{self.random.randrange(self.edges)}" if kind == "edge" else kind)

        storm(
            self.random,
            KINDS,
            strike,
            self.accepted,
            every,
            lambda: sum(self.kills.values()) >= kills,
        )

    def log(self, name: str) -> str:
        return (self.run.folder / f"{name}.log").read_text()

    def ended(self) -> dict[str, Any]:
        """Wait until everybody has left by itself; the summary."""
        for name in list(self.pids):
            status = self.forks.wait(self.pids.pop(name), REST_SECONDS)
            assert status == 0, f"{name} ended with {status}: {self.log(name)}"
        return self.run.summary()


@contextmanager
def scene(
    run: Deployment,
    broker: Mosquitto,
    redis_server: RedisServer,
    edges: int,
    seed: int,
    *,
    hostile: bool = False,
) -> Iterator[Scene]:
    """Start everybody, beside a hostile member if so asked, and yield the scene.

    At the end, whatever still runs is killed.
    """
    forks = Forks(run.folder / "forks.log", "tests.helpers.chaos_process")
    chaos_scene = Scene(run, forks, broker, redis_server, edges, random.Random(seed))
    for number in range(edges):  # an edge first: the warm process learns from its settings
        chaos_scene.start(f"edge-{number}")
    chaos_scene.start("aggregator")
    member = _hostile(run, chaos_scene.hostile, seed) if hostile else None
    try:
        yield chaos_scene
    finally:
        for pid in chaos_scene.pids.values():
            os.kill(
                pid, signal.SIGKILL
            )  # nobody has asked for its status, so the number is still its own
        forks.close()
        if member is not None:
            assert member.poll() is None, "the hostile member has given up"
            member.kill()
            member.wait()


def _hostile(run: Deployment, edge: str, seed: int) -> subprocess.Popen[bytes]:
    """Start the process of a hostile member, which does all that leaves the model to the others.

    It leaves nothing at the broker: this broker has no rules, and would store everything.
    """
    behaviours = [name for name in HARMLESS_TO_THE_MODEL if name not in BOUNDED_BY_RULES]
    only = [word for name in behaviours for word in ("--only", name)]
    command = [sys.executable, "-m", "tests.helpers.hostile", str(run.file), run.broker]
    with (run.folder / "hostile.log").open("wb") as log:
        return subprocess.Popen(
            [*command, run.run_id, edge, "--seed", str(seed), *only], stdout=log, stderr=log
        )


def accounts(folder: Path, number: int) -> tuple[dict[int, str], set[int]]:
    """Return what edge `number` made durable, and the messages that it knows to be accepted.

    What it made durable is the digest of every message, by its number.
    """
    put: dict[int, str] = {}
    acknowledged: set[int] = set()
    for line in (folder / f"edge-{number}.account").read_text().splitlines():
        kind, seq, value = line.split()
        if kind == "put":
            put[int(seq)] = (
                value  # a number whose message did not reach the disk is used for the next one
            )
        elif value in FINAL:
            acknowledged.add(int(seq))
    return put, acknowledged


def judge(scene: Scene, summary: dict[str, Any], watcher: Watcher) -> dict[str, int]:
    """Check every promise, and return in numbers what happened."""
    run, folder = scene.run, scene.run.folder
    # The journal file, redis's own file and the model are one story; serial replay ends in the same
    # bits.
    with journal_file.open_journal(folder / "run.journal") as file:
        recorded = [
            (record.position, record.payload)
            for record in journal_file.JournalReader(file, "journal")
        ]
    entries = appended(folder)
    assert recorded == [(entry.position, entry.payload) for entry in entries]
    check(run, summary, entries, range(scene.edges))
    replayed = asdict(fold(folder / "run.journal"))
    assert (replayed["model_sha256"], replayed["version"]) == (
        summary["model_sha256"],
        summary["applied"],
    )
    # Every message is the one that its edge made, and every receipted one is there, once.
    ids = {(entry.edge, entry.seq) for entry in entries}
    assert len(ids) == len(entries)
    receipted = 0
    for number in range(scene.edges):
        put, acknowledged = accounts(folder, number)
        mine = [entry for entry in entries if entry.edge == f"edge-{number}"]
        lost = acknowledged.difference(entry.seq for entry in mine)
        assert not lost, (
            f"edge-{number}: {lost}, {(folder / f'edge-{number}.account').read_text()[-500:]}"
        )
        assert all(hashlib.sha256(entry.payload).hexdigest() == put[entry.seq] for entry in mine)
        receipted += len(acknowledged)
    # What was seen on the wire was paid for, and what is reported is what was paid.
    delta = config.load(run.file).privacy.delta
    for number in range(scene.edges):
        (chain,) = read_chains(folder / "identities" / str(number) / "ledger.db")
        distinct = {
            entry.payload
            for entry in entries
            if entry.edge == f"edge-{number}" and is_update(entry.payload)
        }
        row = summary["privacy"]["edges"][f"edge-{number}"]
        assert len(distinct) <= row["pushes"] <= chain.count
        (paid,) = chain.history()
        assert row["epsilon_pld"] >= epsilon_pld([replace(paid, count=len(distinct))], delta)
    assert not watcher.differing()
    # Nothing is left over.
    with closing(open_store(run.url, run.run_id)) as store:
        assert store.depth() == (0, 0)
    with closing(redis.Redis.from_url(run.url)) as client:
        remaining_keys = {key.decode() for key in client.scan_iter()}
    kinds = ("journal", "meta", "seq", "snapshot")
    assert remaining_keys <= {
        "tacit:anchors",
        *(f"tacit:{{{run.run_id}}}:{kind}" for kind in kinds),
    }
    return {"accepted": len(entries), "applied": summary["applied"], "receipted": receipted}


def is_update(payload: bytes) -> bool:
    return bool(wire.decode(payload).meta.WhichOneof("kind") == "update")
