"""The store over Redis with Sentinel: what a fail-over keeps, and how a loss is noticed."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from tacit_services.journal.store import Appended, NewEntry, Snapshot, Store, Verdict, open_store
from tacit_services.journal.store.append_rules import JournalLimits
from tacit_services.journal.store.redis_store import RedisStore

from tacit import errors
from tests.helpers.processes import check, deployment, journalled
from tests.helpers.run_files import MAPA, toml
from tests.helpers.sentinel import RedisFleet, paused, redis_fleet, resumed
from tests.helpers.servers import PATIENCE, Mosquitto, wait_for
from tests.helpers.stores import entries, verdicts

LARGE = bytes(range(256)) * 20_000


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[RedisFleet]:
    with redis_fleet(tmp_path) as running:
        yield running


def opened(store: Store) -> int:
    """Return the epoch of `open`, once a primary with replicas is there."""
    epochs: list[int] = []

    def tried() -> bool:
        try:
            epochs.append(store.open("f"))
        except errors.ServiceError:
            return False
        return True

    wait_for(tried)
    return epochs[0]


def appended(store: Store, seq: int) -> list[str]:
    """Return the verdict of an append, which is tried again where the connection was cut."""
    try:
        return verdicts(store.append(entries("a", seq)))
    except errors.Fenced:
        raise
    except errors.ServiceError:
        return verdicts(store.append(entries("a", seq)))


def test_a_fail_over_keeps_what_was_confirmed_and_the_fence(fleet: RedisFleet) -> None:
    with (
        closing(open_store(fleet.url(), "run")) as old,
        closing(open_store(fleet.url(), "run")) as new,
    ):
        before = old.open("f")
        assert verdicts(old.append([*entries("a", 1, 2), NewEntry("b", 1, LARGE)])) == [
            "accepted",
            "accepted",
            "accepted",
        ]
        old.save(Snapshot(1, b"one"))
        fleet.kill()
        assert opened(new) > before
        with pytest.raises(errors.Fenced):
            appended(old, 3)
        assert new.snapshot() == Snapshot(1, b"one")
        assert [record.payload for record in new.read(1, 9)] == [bytes([2]) * 10, LARGE]
        assert new.append(entries("a", 2, 3)) == [
            Appended(Verdict.DUPLICATE, 0, 2),
            Appended(Verdict.ACCEPTED, 4, 3),
        ]


def test_what_no_replica_has_is_not_confirmed(fleet: RedisFleet) -> None:
    with closing(open_store(fleet.url(), "run")) as store:
        store.open("f")
        replicas = fleet.replicas()
        for replica in replicas:
            paused(replica)
        try:
            with pytest.raises(errors.ServiceError, match="0 of 1 replicas had a write after 1000"):
                store.append(entries("a", 1))
            with pytest.raises(errors.ServiceError, match="0 of 1 replicas"):
                store.open("f")
        finally:
            for replica in replicas:
                resumed(replica)
        opened(store)
        assert verdicts(store.append(entries("a", 1))) == ["duplicate"]


@pytest.mark.exhaustive
@pytest.mark.parametrize("counted", [1, 2])
def test_a_replica_that_lags_and_is_chosen_loses_only_where_it_was_not_counted(
    fleet: RedisFleet, counted: int
) -> None:
    # More than the kernel holds for a server that is paused.
    entry = NewEntry("a", 2, LARGE * 8)
    with closing(open_store(fleet.url(counted, 9000), "run")) as store:
        store.open("f")
        store.append(entries("a", 1))
        primary = fleet.primary()
        lagging, current = fleet.replicas()
        paused(lagging)
        if counted == 1:  # a replica has it, so it counts
            assert verdicts(store.append([entry])) == ["accepted"]
        else:
            with pytest.raises(errors.ServiceError, match="1 of 2 replicas"):
                store.append([entry])
        # Both that have it die, and the third is chosen.
        current.kill()
        primary.kill()
        resumed(lagging)
        wait_for(lambda: fleet.primary() is lagging, 2 * PATIENCE)
        for server in (current, primary):
            if counted == 1:  # their disks are gone, too: Sentinel may choose them again
                fleet.wipe(server)
            server.start()
        fleet.await_copies()
        opened(store)
        if counted == 1:
            with pytest.raises(errors.StoreLost, match="has lost a part"):
                appended(store, 3)
        else:
            # It may be there or not, as nobody was told; what was confirmed is.
            assert appended(store, 2) in (["accepted"], ["duplicate"])
            assert [record.seq for record in store.read(0, 9)] == [1, 2]


@pytest.mark.exhaustive
def test_nothing_confirmed_is_lost_while_primaries_die(fleet: RedisFleet) -> None:
    confirmed: list[int] = []
    over = threading.Event()

    def write(store: RedisStore) -> None:
        opened(store)
        for seq in itertools.count(1):
            while not over.is_set():
                try:
                    answers = store.append(entries("a", seq, size=2000))
                except errors.ServiceError:
                    opened(store)
                    continue
                assert verdicts(answers)[0] in ("accepted", "duplicate")
                confirmed.append(seq)
                break
            if over.is_set():
                return

    with closing(RedisStore(fleet.url(2), "run", JournalLimits(1 << 20, 1 << 30))) as store:
        writer = threading.Thread(target=write, args=[store])
        writer.start()
        try:
            for _ in range(5):
                had = len(confirmed)
                wait_for(lambda had=had: len(confirmed) > had + 50)  # type: ignore[misc]
                fleet.kill()
                fleet.await_copies()
        finally:
            over.set()
            writer.join()
        stored = [record.seq for record in store.read(0, 1 << 20)]
        assert stored == sorted(set(stored))
        assert set(confirmed) <= set(stored)
        assert len(confirmed) > 250


@pytest.mark.exhaustive
def test_a_run_ends_in_the_model_of_its_journal_while_primaries_die(
    tmp_path: Path, fleet: RedisFleet, broker: Mosquitto
) -> None:
    text = toml(MAPA, run={"updates": 1200, "snapshot_every": 40}, edges={"count": 2})
    address = f"{broker.host}:{broker.port}"
    kills = 0
    with deployment(tmp_path, text, address, fleet.url(2), "killed") as run:
        aggregator = run.aggregator(TACIT_JOURNAL_FILE=str(tmp_path / "journal"))
        edges = [run.edge(0), run.edge(1)]
        over = (run.out / "summary.json").exists
        while not over():
            goal = run.accepted() + 300
            wait_for(lambda goal=goal: over() or run.accepted() > goal, 4 * PATIENCE)  # type: ignore[misc]
            fleet.kill()
            victim = (aggregator, *edges)[kills % 3]
            if victim.process is not None and victim.process.poll() is None:
                victim.kill()
                victim.start()
            fleet.await_copies()
            kills += 1
        check(run, run.ended(), journalled(run), range(2))
    assert kills > 1


@pytest.mark.parametrize(
    "url",
    [
        "redis+sentinel://h:1",
        "redis+sentinel://h/name",
        "redis+sentinel://h:1,h/name",
        "redis+sentinel://h:1/name?replicas=0",
        "redis+sentinel://h:1/name?wait_ms=30000",
        "redis+sentinel://h:1/name?other=1",
    ],
)
def test_an_address_of_sentinels_that_cannot_be_meant_is_refused(url: str) -> None:
    with pytest.raises(errors.ConfigError, match=r"expected redis\+sentinel://host:port"):
        open_store(url, "run")
