"""A ledger that was put back, or copied.

The aggregator has seen more, refuses, and the edge stops.
"""

from __future__ import annotations

import os
import shutil
import signal
import sqlite3
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest
import torch
from tacit_services.identity import lineage
from tacit_services.identity.folder import Identity
from tacit_services.journal.store.memory import MemoryRun, MemoryStore
from tacit_services.transport.mqtt import Connection
from tacit_services.worker.cpu_turns import CpuTurns
from tacit_services.worker.outbox import Outbox
from tacit_services.worker.tasks import task_loop

from tacit import config
from tacit.errors import PrivacyError
from tacit.privacy.ledger import read_chains
from tacit.privacy.ledger.chain import Chain
from tacit.privacy.noise.randomness import Random
from tacit.privacy.release import Releaser
from tacit.protocol import topics
from tests.golden.harness import make_edge
from tests.helpers.crash_edge import Forks
from tests.helpers.processes import PATIENCE
from tests.helpers.rig import ROOMY, Rig, run_file, run_text
from tests.helpers.servers import wait_for


class Enough(Exception):
    """It has released what it was asked to."""


class Place:
    """Runs on one store at one broker, and edge-0 with its ledger and outbox in a folder that
    may be copied.
    """

    def __init__(self, broker: str, name: str) -> None:
        self.broker, self.name, self.shared = broker, name, dict[str, MemoryRun]()
        self.rigs: dict[str, Rig] = {}

    def rig(self, run: str) -> Rig:
        if run not in self.rigs:
            run_id = f"{self.name}-{run}"
            self.rigs[run] = Rig(
                run_file(updates=10**6),
                self.broker,
                run_id,
                MemoryStore(run_id, ROOMY, self.shared),
            )
            self.rigs[run].serve()
        return self.rigs[run]

    def work(
        self, run: str, folder: Path, releases: int, last: Callable[[], object] = lambda: None
    ) -> None:
        """Work until the ledger in `folder` has `releases` more, all receipted; then call `last`.

        The ledger is still open then. Raise what the edge raises.
        """
        rig = self.rig(run)
        torch.set_num_threads(1)
        role = make_edge(rig.run, rig.model, 0, 5)
        with (
            closing(Identity(0, folder, (folder / "lock").open("ab"))) as identity,
            lineage.ledger(identity, identity.ledger_place, "digits") as ledger,
        ):
            outbox = Outbox(ledger, rig.run_id, identity.enrolment().owner, identity.path)
            role.releaser = Releaser(role.releaser.plan, ledger, Random(5))
            loop = task_loop(role, outbox, rig.settings(2.0), CpuTurns(None))
            names = [topics.down_all(rig.run_id, role.edge), topics.model(rig.run_id)]
            connection = Connection(
                self.broker,
                f"{rig.run_id}-{role.edge}",
                names,
                loop.mailbox.put,
                on_up=loop.mailbox.connected,
            )
            target = ledger.charged().count + releases
            outbox_done = outbox.done

            def enough(seq: int, *, accepted: bool = False) -> bool:
                final = outbox_done(seq, accepted=accepted)
                if ledger.charged().count >= target:
                    last()
                    raise Enough
                return final

            outbox.done = enough  # type: ignore[method-assign]
            connection.start(PATIENCE)
            try:
                loop.run(connection, threading.Event(), lambda state: None)
            except Enough:
                pass
            finally:
                connection.stop()

    def close(self) -> None:
        for rig in self.rigs.values():
            rig.close()
            assert not rig.failures


@pytest.fixture
def place(address: str, request: pytest.FixtureRequest) -> Iterator[Place]:
    new_place = Place(address, request.node.name[:40].replace("_", "-"))
    yield new_place
    new_place.close()


def state(folder: Path) -> Chain:
    (chain,) = read_chains(folder / "ledger.db")
    return chain


def copied(folder: Path, name: str) -> Path:
    """Copy all that an identity has on its disk, and return the copy."""
    return Path(shutil.copytree(folder, folder.parent / name))


def put_back(copy: Path, folder: Path) -> None:
    """Put the disk back as it was, with all that the identity knew then."""
    shutil.rmtree(folder)
    shutil.copytree(copy, folder)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "edge").mkdir()
    return tmp_path / "edge"


@pytest.mark.parametrize("run", ["one", "two"])
def test_an_older_copy_that_was_put_back_is_refused_in_this_run_and_in_another(
    place: Place, folder: Path, run: str
) -> None:
    # Given a copy of a ledger that has gone on,
    place.work("one", folder, 3)
    copy = copied(folder, "backup")
    place.work("one", folder, 2)
    ledger_state = state(folder)
    # when it is put back, then the identity's own record knows, before anything is computed;
    shutil.copy(copy / "ledger.db", folder / "ledger.db")
    with pytest.raises(
        PrivacyError, match="it has 3 releases, there were 5 before; an older copy was put back"
    ):
        place.work(run, folder, 1)
    # when that record is put back, too, then the edge hears it with its first receipt: in this run
    # from the numbers of its messages, in another from the ledger's position.
    put_back(copy, folder)
    messages = {
        "one": r"the aggregator has message \d+, this outbox ends at \d+; its ledger was rolled back",
        "two": r"ledger of edge-0: it has 3 releases, the aggregator has seen more; an older copy",
    }
    for _ in range(2):  # and again after a restart, with what is in the outbox
        with pytest.raises(PrivacyError, match=messages[run]):
            place.work(run, folder, 1)
    assert state(folder).count == 3
    # And the aggregator believes nothing of it.
    rig = place.rig(run)
    assert (rig.live.counts["rejected:rollback"] >= 2) == (run == "two")
    assert rig.store.anchors()["digits/edge-0"].count == ledger_state.count == 5
    with rig.live.lock:
        assert all(record.charged.count == 5 for record in rig.live.role.edges.values())


def test_a_copy_of_an_edge_at_work_has_all_that_was_sent_when_it_was_made(
    place: Place, folder: Path
) -> None:
    """Charges ahead of releases count as used: the copy cannot tell whether they were."""
    # Given the file alone, copied in the middle of a run, when push 3 had its receipt,
    place.work("one", folder, 3, lambda: copied(folder, "backup"))
    copy = folder.parent / "backup"
    at_work = state(copy)
    assert (at_work.count, state(folder).count) == (4, 3)
    assert at_work.head_after(3) == state(folder).head
    # when it is put back, then nothing that was sent is missing in it, and it may go on.
    put_back(copy, folder)
    place.work("two", folder, 1)
    assert state(folder).count == 5
    assert place.rig("two").store.anchors()["digits/edge-0"].count == 5


def test_an_empty_beginning_is_refused_where_the_edge_was_seen(place: Place, folder: Path) -> None:
    place.work("one", folder, 3)
    for file in folder.iterdir():
        file.unlink()
    with pytest.raises(PrivacyError, match="it has 0 releases"):
        place.work("two", folder, 1)


def test_two_copies_that_both_go_on_are_refused(place: Place, folder: Path, address: str) -> None:
    # Given two copies of one ledger, of which one went on here, and one, as far, at another
    # aggregator,
    place.work("one", folder, 3)
    clone = copied(folder, "clone")
    place.work("one", folder, 2)
    elsewhere = Place(address, "elsewhere")
    elsewhere.work("one", clone, 2)
    elsewhere.close()
    assert state(folder).count == state(clone).count
    # when the second comes here, then it is not taken for the first.
    with pytest.raises(PrivacyError, match="with another history; another copy is in use"):
        place.work("two", clone, 1)
    assert place.rig("two").live.counts["rejected:clone"] >= 1
    # And the first goes on.
    place.work("two", folder, 1)


def test_an_outbox_that_is_behind_is_refused_as_before(place: Place, folder: Path) -> None:
    place.work("one", folder, 3)
    copy = copied(folder, "copy")
    place.work("one", folder, 2)
    with pytest.raises(PrivacyError, match=r"its ledger was rolled back or lost"):
        place.work("one", copy, 1)


def test_an_aggregator_that_takes_over_remembers(place: Place, folder: Path) -> None:
    place.work("one", folder, 3)
    copy = copied(folder, "copy")
    place.work("one", folder, 2)
    # A new aggregator on the same store.
    place.rigs.pop("one").close()
    put_back(copy, folder)
    with pytest.raises(PrivacyError, match="it has 3 releases, the aggregator has seen more"):
        place.work("two", folder, 1)


def test_an_honest_edge_goes_on_through_runs_and_restarts(place: Place, folder: Path) -> None:
    for run, releases in (("one", 2), ("one", 2), ("two", 1), ("one", 1), ("two", 3)):
        place.work(run, folder, releases)
    assert state(folder).count == 9
    state(folder).verify()
    for rig in place.rigs.values():
        assert not [name for name in rig.live.counts if name.startswith("rejected")]


class Processes:
    """Edges in processes of their own, as `tacit edge` runs them, and a driver in this one."""

    def __init__(self, folder: Path, broker: str, forks: Forks, run_id: str) -> None:
        self.folder, self.forks = folder, forks
        text = run_text(10**6, snapshot_every=50)
        (folder / "run.toml").write_text(text)
        self.rig = Rig(config.parse(text, "test"), broker, run_id)
        self.rig.serve()

    def edge(self, number: int, **more: str) -> int:
        """Start edge `number`; its pid."""
        settings = {
            "run_file": str(self.folder / "run.toml"),
            "run_id": self.rig.run_id,
            "broker": self.rig.broker,
            "identities": str(self.folder / "identities"),
            "identity": number,
            "patience": 2.0,
            "log": "info",
        }
        return self.forks.start(settings | more, self.folder / "log")

    def work(self, updates: int) -> None:
        """Run edge 0 until so many more of its updates are in the model."""
        pid, target = self.edge(0), self.rig.live.role.version + updates
        wait_for(lambda: self.rig.live.role.version >= target, PATIENCE)
        os.kill(pid, signal.SIGTERM)
        assert self.forks.wait(pid, PATIENCE) == 0

    def refused(self, number: int, code: int = 5, **more: str) -> str:
        """Return the last line of an edge that exits with status `code` at once."""
        assert self.forks.wait(self.edge(number, **more), PATIENCE) == code
        return (self.folder / "log").read_text().strip().splitlines()[-1]


@pytest.fixture(scope="module")
def forks(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Forks]:
    new_forks = Forks(tmp_path_factory.mktemp("forks") / "log")
    yield new_forks
    new_forks.close()


@pytest.fixture
def processes(
    tmp_path: Path, address: str, forks: Forks, request: pytest.FixtureRequest
) -> Iterator[Processes]:
    new_processes = Processes(tmp_path, address, forks, request.node.name[:40].replace("_", "-"))
    yield new_processes
    new_processes.rig.close()


def test_a_process_leaves_with_5_and_one_line(processes: Processes, tmp_path: Path) -> None:
    path = tmp_path / "identities" / "0" / "ledger.db"
    processes.work(3)
    shutil.copy(path, tmp_path / "backup.db")
    processes.work(3)
    # An older copy.
    shutil.copy(tmp_path / "backup.db", path)
    assert "an older copy was put back, refusing to train" in processes.refused(0)
    # A changed row.
    with closing(sqlite3.connect(path)) as database:
        database.executescript("UPDATE entry SET count = count - 1 WHERE number = 1")
    assert "the chain is broken" in processes.refused(0)
    # None at all, and an empty one.
    for loss in (path.unlink, path.touch):
        loss()
        assert processes.refused(0).startswith(f"tacit: ledger {path}: is missing or empty")
    # Not even the identity: only the aggregator knows, by the number that it has had.
    (tmp_path / "identities").rename(tmp_path / "lost")
    assert "its ledger was rolled back or lost, refusing to train" in processes.refused(0)


def test_two_processes_on_one_ledger_are_refused(processes: Processes, tmp_path: Path) -> None:
    ledger = tmp_path / "data.db"
    first = processes.edge(0, ledger=str(ledger))
    wait_for(lambda: processes.rig.live.role.version > 0, PATIENCE)
    assert f"ledger {ledger}: an edge is using it" in processes.refused(1, ledger=str(ledger))
    os.kill(first, signal.SIGTERM)
    assert processes.forks.wait(first, PATIENCE) == 0


def test_an_edge_with_another_definition_leaves_and_names_the_key(
    processes: Processes, tmp_path: Path
) -> None:
    # Given an edge whose rows are dealt by another seed: half of them would be another edge's, too;
    other = tmp_path / "other.toml"
    other.write_text((tmp_path / "run.toml").read_text().replace("[run]", "[run]\nseed = 7"))
    complaint = processes.refused(1, code=2, run_file=str(other))
    assert "its run definition is not the aggregator's; definition: run.seed=7" in complaint
    assert processes.rig.live.role.version == 0
    # the one with the aggregator's own works.
    processes.work(1)
