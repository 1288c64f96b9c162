"""Identities: one process each, the first free one, given back by any death."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest
from tacit_services.identity.folder import Identities, Identity

from tacit.errors import ConfigError, PrivacyError
from tests.helpers.forked import Forked
from tests.helpers.servers import PATIENCE

HOLDER = """
import sys, threading
from pathlib import Path
from tacit_services.identity.folder import Identities
identity = Identities(Path(sys.argv[1])).acquire(2, threading.Event())
print(identity.number, flush=True)
sys.stdin.read()
"""
NEVER = threading.Event()


def acquired_identity(root: Path, count: int = 3, only: int | None = None) -> Identity:
    identity = Identities(root, only).acquire(count, NEVER)
    assert identity is not None
    return identity


def nobody(root: Path, count: int, only: int | None = None) -> bool:
    """Check whether no identity is free."""
    stop = threading.Event()
    stop.set()
    return Identities(root, only).acquire(count, stop) is None


def test_each_gets_the_first_free_one(tmp_path: Path) -> None:
    identities = [acquired_identity(tmp_path) for _ in range(3)]
    assert [identity.number for identity in identities] == [0, 1, 2]
    assert [identity.edge for identity in identities] == ["edge-0", "edge-1", "edge-2"]
    assert all(identity.path.is_dir() for identity in identities)
    assert nobody(tmp_path, 3)
    identities[1].close()
    identities[1] = acquired_identity(tmp_path)
    assert identities[1].number == 1
    for identity in identities:
        identity.close()


def test_a_named_one_is_taken_or_waited_for(tmp_path: Path) -> None:
    identity = acquired_identity(tmp_path, only=2)
    assert identity.number == 2
    assert nobody(tmp_path, 3, only=2)
    identity.close()
    again = acquired_identity(tmp_path, only=2)
    assert again.number == 2
    again.close()


def test_one_that_the_data_was_not_dealt_to_is_refused(tmp_path: Path) -> None:
    with pytest.raises(
        ConfigError, match=r"TACIT_IDENTITY=3: the run deals its data to 3 identities \(0 to 2\)"
    ):
        Identities(tmp_path, 3).acquire(3, NEVER)
    assert list(tmp_path.iterdir()) == []


def test_a_standby_takes_over_what_kill_9_has_freed(tmp_path: Path) -> None:
    # Given both identities in other processes, and a standby in this one,
    holders = [Forked(HOLDER, tmp_path) for _ in range(2)]
    numbers = {int(holder.stdout.readline()): holder for holder in holders}
    assert sorted(numbers) == [0, 1]
    acquired: list[Identity | None] = []
    standby = threading.Thread(
        target=lambda: acquired.append(Identities(tmp_path).acquire(2, NEVER))
    )
    standby.start()
    # when one dies, then the standby has its identity, with all that lies there.
    (tmp_path / "1" / "ledger.db").write_text("spent")
    numbers[1].kill()
    standby.join(PATIENCE)
    assert [identity.number for identity in acquired if identity] == [1]
    assert (tmp_path / "1" / "ledger.db").read_text() == "spent"
    for identity in acquired:
        assert identity is not None
        identity.close()
    for holder in holders:
        holder.close()


def test_a_standby_leaves_when_told_to(tmp_path: Path) -> None:
    identity = acquired_identity(tmp_path, count=1)
    stop = threading.Event()
    acquired: list[Identity | None] = []
    standby = threading.Thread(
        target=lambda: acquired.append(Identities(tmp_path).acquire(1, stop))
    )
    standby.start()
    stop.set()
    standby.join(PATIENCE)
    assert acquired == [None]
    identity.close()


def test_a_place_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(PrivacyError, match="an edge needs a durable place for its ledger"):
        acquired_identity(tmp_path / "file")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_read_only_folder_is_refused(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    with pytest.raises(PrivacyError, match="Permission denied"):
        acquired_identity(tmp_path)
