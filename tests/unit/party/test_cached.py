"""A party in mode `cached` that is killed by SIGKILL at any point after its one release: the same
bytes, one charge.

The party is forked from this process, and dies around a durable write; the test goes on from what
lies on disk.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import pytest
import torch
from tacit_services.party.kept import KeptEmbeddings
from tacit_services.party.party_loop import restore, state_to_keep
from tacit_services.transport.mqtt import Connection
from tacit_services.worker.contract import LoopSettings
from tacit_services.worker.outbox import Outbox
from tacit_services.worker.session import Session

from tacit import datasets
from tacit.algorithms.vafl import vafl_algorithm
from tacit.algorithms.vafl.vertical_settings import vertical
from tacit.config import RunFile
from tacit.errors import PrivacyError
from tacit.privacy.ledger import Ledger
from tacit.privacy.noise.randomness import Random
from tacit.protocol import wire, wire_up
from tacit.protocol.messages import Update
from tacit.protocol.vertical import Feedback, Request, Roster
from tests.helpers.run_files import Layer, definition_text, run_file

SALT = b"salt"
RUN: Layer = {
    "run": {"updates": 20},
    "algorithm": {"name": "vafl", "width": 4, "combine": "concat"},
    "privacy": {"mechanism": "gaussian", "epsilon": 10.0, "pushes": 1, "clip": 1.0, "batch": 64},
    "edges": {"count": 2},
}


def roster(run: RunFile) -> Roster:
    labelled_records = vafl_algorithm.labelled_records(datasets.splits("digits", None), SALT)
    return Roster(labelled_records.names, labelled_records.records)


class Disk:
    """One party's identity directory.

    Every call is a process of its own, as far as files can tell.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def table(self, run: RunFile, run_id: str) -> bytes | None:
        """Return the bytes of the table that the party sends; None where it retires instead."""
        with ExitStack() as end:
            ledger = end.enter_context(closing(Ledger(self.folder / "ledger.db", "digits")))
            outbox = Outbox(ledger, run_id)
            embeddings, splits = (
                KeptEmbeddings(self.folder / "released"),
                datasets.splits("digits", None),
            )
            role = vafl_algorithm.party(
                vertical(run.define()), "edge-0", 0, splits, SALT, ledger, Random(), embeddings
            )
            restore(role, outbox)
            schema, definition = run.build_model().schema_hash(), definition_text(run)
            settings = LoopSettings(run_id, schema, 650, 1 << 18, 5.0, definition)
            connection = Connection(
                "127.0.0.1:1", "test", [], lambda inbound: None
            )  # never started
            session = Session(
                role, outbox, settings, connection, lambda state: None, lambda: state_to_keep(role)
            )
            if outbox.oldest() is None:
                session.post(role.on_message(roster(run)))
            pending = outbox.oldest()
            assert pending is not None
            message = wire_up.read_up(wire.decode(bytearray(pending[1])), settings.schema, 1 << 20)
            return message.vector.numpy().tobytes() if isinstance(message, Update) else None

    def killed(
        self, kind: type, name: str, run: RunFile, run_id: str, *, before: bool = False
    ) -> None:
        """Run a process that dies around `kind`'s function `name`."""
        child = os.fork()
        if child == 0:
            usual: Callable[..., Any] = getattr(kind, name)

            def dying(*arguments: Any, **options: Any) -> None:
                if not before:
                    usual(*arguments, **options)
                os.kill(os.getpid(), signal.SIGKILL)

            setattr(kind, name, dying)
            self.table(run, run_id)
            os._exit(1)  # it should not have come so far
        _, status = os.waitpid(child, 0)
        assert os.WIFSIGNALED(status)
        assert os.WTERMSIG(status) == signal.SIGKILL

    def charged(self) -> int:
        with closing(Ledger(self.folder / "ledger.db", "digits")) as ledger:
            return ledger.charged().count


@pytest.fixture
def disk(tmp_path: Path) -> Disk:
    torch.set_num_threads(1)
    return Disk(tmp_path)


def parsed(seed: int = 1) -> RunFile:
    return run_file(RUN, run={"seed": seed})


def test_a_party_killed_after_its_one_release_sends_the_same_bytes_and_pays_nothing(
    disk: Disk,
) -> None:
    run = parsed()
    disk.killed(Ledger, "charge", run, "a", before=True)
    assert disk.charged() == 0
    disk.killed(KeptEmbeddings, "put", run, "a")
    (file,) = (disk.folder / "released").iterdir()
    stored = file.read_bytes()
    disk.killed(Outbox, "put", run, "a", before=True)
    disk.killed(Outbox, "put", run, "a")
    table = disk.table(run, "a")
    assert table is not None
    assert stored.endswith(table)
    assert disk.charged() == 1
    # Another run on the same records: still the same bytes. With another embedding it is another
    # release, unpaid for.
    assert disk.table(run, "b") == table
    assert disk.charged() == 1
    assert disk.table(parsed(seed=2), "c") is None
    assert disk.charged() == 1
    file.write_bytes(stored[:-1])
    with pytest.raises(PrivacyError, match="paid for anew"):
        disk.table(run, "d")


def test_what_is_spent_between_charge_and_disk_stays_spent(disk: Disk) -> None:
    disk.killed(KeptEmbeddings, "put", parsed(), "a", before=True)
    assert disk.charged() == 1
    assert disk.table(parsed(), "a") is None  # no refund: plan one release more to survive this


def test_no_request_makes_a_party_release_its_table_a_second_time(disk: Disk) -> None:
    run = parsed()
    ledger, splits = Ledger(":memory:", "digits"), datasets.splits("digits", None)
    role = vafl_algorithm.party(vertical(run.define()), "edge-0", 0, splits, SALT, ledger, Random())
    rows = torch.arange(5)
    assert role.on_message(Request(1, rows)) == []  # before there is a table
    role.on_message(roster(run))
    for message in (Request(2, rows), Feedback(0, 0, None), Request(3, rows)):
        (out,) = role.on_message(message)
        assert out.message.released is None  # type: ignore[union-attr]
    assert ledger.charged().count == 1
