"""The store over a real PostgreSQL: killed, silent, forgetful, or of somebody else."""

from __future__ import annotations

import itertools
import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import psycopg
import pytest
from tacit_services.journal.store import (
    Appended,
    NewEntry,
    Pieces,
    Snapshot,
    Store,
    Verdict,
    open_store,
    postgres_client,
)
from tacit_services.journal.store.postgres_store import PIECE, PostgresStore

from tacit import errors
from tests.helpers.postgres import PostgresServer, forget_all, postgres_server
from tests.helpers.processes import check, deployment, journalled
from tests.helpers.run_files import MAPA, toml
from tests.helpers.servers import Mosquitto, wait_for
from tests.helpers.stores import ROOMY, Connect, connector, contents, entries, verdicts
from tests.system.test_chaos_kinds import Victims

LARGE = os.urandom(1000) * (2 * PIECE // 1000) + b"the rest"


@pytest.fixture(scope="module")
def running() -> Iterator[PostgresServer]:
    with postgres_server() as server:
        yield server


@pytest.fixture
def server(running: PostgresServer) -> PostgresServer:
    forget_all(running.url)
    return running


@pytest.fixture
def connect(server: PostgresServer) -> Iterator[Connect]:
    with ExitStack() as stack:
        yield connector("postgresql", server.url, stack)


def ask(server: PostgresServer, *statements: str) -> list[tuple[object, ...]]:
    """Do what an operator states; the rows of the last."""
    with psycopg.connect(server.url, autocommit=True) as db:
        for statement in statements:
            cursor = db.execute(statement.encode())
        return cursor.fetchall() if cursor.description else []


def test_postgres_killed_and_restarted_keeps_every_accepted_entry(
    server: PostgresServer, connect: Connect
) -> None:
    store = connect()
    store.open("f")
    for seq in range(1, 40):
        store.append(entries("a", 2 * seq - 1, 2 * seq, size=5000))
        if seq % 10 == 0:
            store.save(Snapshot(2 * seq - 5, str(seq).encode()))
    before = contents(store)
    server.kill()
    with pytest.raises(errors.ServiceError) as refusal:
        store.append(entries("a", 79))
    assert "\n" not in str(refusal.value)
    assert str(refusal.value).startswith(
        f"store: postgresql://{server.host}:{server.port}/postgres"
    )
    server.start()
    assert contents(connect()) == before
    assert store.open("f") == 2  # the same handle, after its connection was lost
    assert store.append(entries("a", 78, 79)) == [
        Appended(Verdict.DUPLICATE, 0, 78),
        Appended(Verdict.ACCEPTED, 79, 79),
    ]


def test_postgres_killed_in_the_middle_keeps_whole_batches(
    server: PostgresServer, connect: Connect
) -> None:
    accepted: list[int] = []

    def append_until_lost(store: Store) -> None:
        for first in itertools.count(1, 5):
            try:
                store.append(entries("a", *range(first, first + 5), size=20_000))
            except errors.ServiceError:
                return
            accepted.append(first + 4)

    store = connect()
    store.open("f")
    writer = threading.Thread(target=append_until_lost, args=[store])
    writer.start()
    wait_for(lambda: len(accepted) >= 20)
    server.kill()
    writer.join()
    server.start()
    store.open("f")
    seqs = [record.seq for record in store.read(0, 10_000)]
    # The batch in flight may be there, but then all of it.
    assert seqs in [list(range(1, accepted[-1] + 1 + extra)) for extra in (0, 5)]
    assert store.depth() == (len(seqs), 20_000 * len(seqs))
    assert store.last_seqs() == {"a": seqs[-1]}


def test_a_commit_that_hangs_is_waited_for_by_whoever_takes_over(
    server: PostgresServer, connect: Connect
) -> None:
    store, reader = PostgresStore(server.url, "run", ROOMY, silent_s=1.0), connect()
    with closing(store):
        store.open("f")
        assert store._open_db is not None
        backend = store._open_db.info.backend_pid
        os.kill(backend, signal.SIGSTOP)
        try:
            with pytest.raises(errors.ServiceError, match="no answer for 1 s"):
                store.append(entries("a", 1))
        finally:
            os.kill(backend, signal.SIGCONT)
        assert store.open("f") == 2
        stored = store.read(0, 10)
        assert verdicts(store.append(entries("a", 1))) == ["duplicate" if stored else "accepted"]
        assert [record.seq for record in reader.read(0, 10)] == [1]


@pytest.mark.parametrize(
    ("change", "back", "complaint"),
    [
        (
            "ALTER ROLE tacit SET synchronous_commit = off",
            "ALTER ROLE tacit RESET synchronous_commit",
            "synchronous_commit=off confirms a message before it is on every disk",
        ),
        (
            "ALTER ROLE tacit SET synchronous_commit = remote_write",
            "ALTER ROLE tacit RESET synchronous_commit",
            "synchronous_commit=remote_write confirms",
        ),
        (
            "ALTER SYSTEM SET fsync = off",
            "ALTER SYSTEM RESET fsync",
            "fsync=off loses accepted messages",
        ),
    ],
)
def test_a_server_that_confirms_before_the_disk_is_refused(
    server: PostgresServer, connect: Connect, change: str, back: str, complaint: str
) -> None:
    reload = "SELECT pg_reload_conf()"
    store = connect()
    ask(server, change, reload)
    try:
        wait_for(lambda: _refusal(store) is not None)
        assert complaint in str(_refusal(store))
    finally:
        ask(server, back, reload)
    wait_for(lambda: _refusal(store) is None)


def _refusal(store: Store) -> errors.ConfigError | None:
    """Return what a new connection of `store` is refused with."""
    store.close()
    try:
        store.depth()
    except errors.ConfigError as error:
        return error
    return None


def test_a_writer_keeps_its_promise_where_the_setting_changes(
    server: PostgresServer, connect: Connect
) -> None:
    store = connect()
    assert isinstance(store, PostgresStore)
    store.open("f")
    ask(server, "ALTER SYSTEM SET synchronous_commit = off", "SELECT pg_reload_conf()")
    try:
        wait_for(lambda: ask(server, "SHOW synchronous_commit") == [("off",)])
        assert store._open_db is not None
        assert store._open_db.execute("SHOW synchronous_commit").fetchone() == ("on",)
    finally:
        ask(server, "ALTER SYSTEM RESET synchronous_commit", "SELECT pg_reload_conf()")
        wait_for(lambda: ask(server, "SHOW synchronous_commit") == [("on",)])


def test_large_payloads_and_states_lie_in_pieces_as_long_as_they_count(
    server: PostgresServer, connect: Connect
) -> None:
    store = connect()
    store.open("f")
    batch = [NewEntry("a", 1, LARGE), NewEntry("b", 1, b"x"), NewEntry("a", 1, LARGE)]
    assert verdicts(store.append(batch)) == ["accepted", "accepted", "duplicate"]
    assert store.depth() == (2, len(LARGE) + 1)
    assert [entry.payload for entry in store.replay(0, 1)] == [LARGE, b"x"]
    for state in (Pieces(LARGE, b"", memoryview(LARGE)), LARGE):
        store.save(Snapshot(0, state))
        assert store.snapshot() == Snapshot(0, bytes(state))
    pieces = -(-len(LARGE) // PIECE)
    assert ask(server, "SELECT count(*) FROM tacit_piece") == [(2 * pieces - 1,)]
    # A piece that is gone is noticed,
    ask(server, "DELETE FROM tacit_piece WHERE owner = 1 AND number = 1")
    with pytest.raises(errors.WireError, match="entry 1 of run 'run' was altered"):
        store.read(0, 1)
    # and a snapshot behind the entry lets the others go.
    store.save(Snapshot(1, b"small"))
    assert ask(server, "SELECT count(*) FROM tacit_piece") == [(1,)]


def test_what_a_database_has_lost_is_noticed(server: PostgresServer, connect: Connect) -> None:
    store = connect()
    store.open("f")
    store.append(entries("a", 1, 2, 3))
    ask(server, "DELETE FROM tacit_journal WHERE position = 2")
    with pytest.raises(
        errors.WireError, match="run 'run' has 2 entries behind its snapshot, 3 were accepted"
    ):
        store.open("f")
    # An older copy, put in its place under a writer:
    ask(server, "UPDATE tacit_run SET position = 2")
    with pytest.raises(errors.StoreLost, match="has lost a part"):
        store.append(entries("a", 4))


def test_tables_of_another_format_are_refused(server: PostgresServer, connect: Connect) -> None:
    connect().open("f")
    ask(server, "UPDATE tacit_format SET number = 2")
    store = connect()
    for _ in range(2):
        with pytest.raises(errors.ConfigError, match="has format 2, this tacit reads 1: a newer"):
            store.depth()


def test_a_standby_is_named() -> None:
    error = psycopg.errors.ReadOnlySqlTransaction("cannot execute INSERT")
    assert "give the address of the primary" in postgres_client.reason(error)


def test_what_is_shown_of_an_address_has_no_password() -> None:
    url = "postgresql://me:p%40ss@h1:1,h2:2/db?sslpassword=secret"
    assert postgres_client.display(url) == "postgresql://h1:1,h2:2/db"
    for url in ("postgresql://me:p@ss@h/db", "postgresql://me:secret@/db"):
        with pytest.raises(errors.ConfigError) as refusal:
            open_store(url, "run")
        assert "ss@" not in str(refusal.value)
        assert "secret" not in str(refusal.value)


def test_without_its_library_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "tacit_services.journal.store.postgres_store")
    monkeypatch.setitem(sys.modules, "psycopg", None)
    with pytest.raises(errors.ConfigError, match=r"pip install 'tacit\[postgres\]'"):
        open_store("postgresql://h/db", "run")


@pytest.mark.exhaustive
def test_a_run_ends_in_the_model_of_its_journal_whoever_is_killed(
    server: PostgresServer, tmp_path: Path, broker: Mosquitto
) -> None:
    updates = 600
    text = toml(MAPA, run={"updates": updates, "snapshot_every": 40}, edges={"count": 2})
    address = f"{broker.host}:{broker.port}"
    with deployment(tmp_path, text, address, server.url, "killed") as run:
        aggregator = run.aggregator(TACIT_JOURNAL_FILE=str(tmp_path / "journal"))
        edges = [run.edge(0), run.edge(1)]
        victims = Victims(5, aggregator=[aggregator], broker=[broker], store=[server], edge=edges)
        victims.rage("store", run.accepted, 12, kills=20)
        summary = run.ended()
        check(run, summary, journalled(run), range(2))
        assert ask(server, "SELECT count(*) FROM tacit_journal") == [(0,)]
