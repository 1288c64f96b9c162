"""An older copy is put back at a member between two runs: what the member itself notices."""

from __future__ import annotations

import json
import shutil
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
from tacit_services.identity.folder import Identities
from tacit_services.identity.ledger_loan import LifetimeBound
from tacit_services.member import run_spending
from tacit_services.member.data_ledger import DataLedger
from tacit_services.member.member_state import Membership, MemberState

from tacit.errors import PrivacyError
from tacit.known_data.owned import Owned

OWNED = Owned("rows.csv", "aa", "row", "")


@contextmanager
def ledger(folder: Path) -> Iterator[DataLedger]:
    """Yield the ledger of a member whose state, and whose data folder, are in `folder`."""
    identity = Identities(folder / "state" / "identities", 0).acquire(1, threading.Event())
    assert identity is not None
    with closing(identity):
        data = DataLedger(identity, folder / "home", LifetimeBound(4.0, 1e-5))
        try:
            yield data
        finally:
            data.release()


def train(folder: Path, run: str, releases: int) -> Path:
    """Let a run release, and end; returns the ledger's file."""
    with ledger(folder) as data:
        loan = data.loan(OWNED)
        with closing(loan.opened(run)) as opened:
            opened.charge(0.1, 2.0, "gaussian", secret=True, count=releases)
    return loan.path


def test_a_ledger_of_before_the_last_run_pays_for_no_other_run(tmp_path: Path) -> None:
    path = train(tmp_path, "first", 3)
    older = path.read_bytes()
    train(tmp_path, "second", 5)
    path.write_bytes(older)
    with (
        pytest.raises(PrivacyError, match="it has 3 releases, there were 8 before"),
        ledger(tmp_path) as data,
    ):
        data.loan(OWNED)


def test_a_ledger_that_was_deleted_begins_no_new_one(tmp_path: Path) -> None:
    shutil.rmtree(train(tmp_path, "first", 3).parent)
    with pytest.raises(PrivacyError), ledger(tmp_path) as data:
        data.loan(OWNED)


def test_an_older_membership_goes_on_under_the_ledger_of_its_data(tmp_path: Path) -> None:
    # Given: member.json of before the data's second run
    state = MemberState(tmp_path / "state")
    state.keep(Membership("https://host:1", "edge-3", "St. Mary's", "rows.csv", OWNED.name))
    older = (state.folder / "member.json").read_bytes()
    train(tmp_path, "first", 3)
    state.keep(Membership("https://host:1", "edge-3", "St. Mary's", "rows.csv", OWNED.name, 500))
    # When: it is put back
    (state.folder / "member.json").write_bytes(older)
    train(tmp_path, "second", 5)
    # Then: what it forgets is not what was spent
    known = state.membership()
    assert known is not None
    assert json.loads(older)["rows"] is known.rows is None
    spent = run_spending.histories(known.dataset, tmp_path / "home")
    assert {run: sum(each.count for each in rows) for run, rows in spent.items()} == {
        "first": 3,
        "second": 5,
    }
    lines = run_spending.memory_lines(known.dataset, spent, {"first": "retina"})
    assert lines[1].startswith("  retina: ε ")
    assert lines[2].startswith("  another member's run, second: ε ")
    assert lines[3].endswith("8 releases")


def test_ledger_and_state_that_are_put_back_together_are_not_noticed_here(tmp_path: Path) -> None:
    # The run's aggregator notices it, of the same run (tests/system/aggregator/test_rollback.py).
    train(tmp_path / "site", "first", 3)
    shutil.copytree(tmp_path / "site", tmp_path / "older")
    train(tmp_path / "site", "second", 5)
    with ledger(tmp_path / "older") as data:
        assert data.loan(OWNED).path.exists()
