"""The ledger goes with the data: enrolled once, then demanded, and used by one edge at a time."""

from __future__ import annotations

import json
import shutil
import signal
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tacit_services.identity import lineage
from tacit_services.identity.folder import Identities, Identity

from tacit.errors import PrivacyError
from tacit.privacy.ledger import Ledger, read_chains
from tacit.privacy.ledger.chain import Charge
from tests.helpers import forked


@pytest.fixture
def identity(tmp_path: Path) -> Iterator[Identity]:
    yield from acquired_identity(tmp_path / "identities")


def acquired_identity(root: Path) -> Iterator[Identity]:
    acquired = Identities(root).acquire(2, threading.Event())
    assert acquired is not None
    with closing(acquired):
        yield acquired


def opened(
    identity: Identity, setting: str | None = None, dataset: str = "digits"
) -> AbstractContextManager[Ledger]:
    """Open the identity's ledger, where TACIT_LEDGER is `setting`."""
    return lineage.ledger(identity, replace(identity, ledger=setting).ledger_place, dataset)


def charged(
    identity: Identity, setting: str | None = None, dataset: str = "digits", times: int = 1
) -> int:
    """Charge `times`, and return how far the ledger has come."""
    with opened(identity, setting, dataset) as ledger:
        for _ in range(times):
            ledger.charge(0.1, 1.5, "gaussian", secret=True)
        return ledger.charged().count


def refusal(identity: Identity, setting: str | None = None, dataset: str = "digits") -> str:
    with pytest.raises(PrivacyError) as refused, opened(identity, setting, dataset):
        pass
    assert "\n" not in str(refused.value)
    return str(refused.value)


def test_it_lies_with_the_identity_and_goes_on(identity: Identity) -> None:
    assert [charged(identity), charged(identity)] == [1, 2]
    assert (identity.path / "ledger.db").is_file()


@pytest.mark.parametrize("setting", [":memory:", "/dev/null", "/"])
def test_it_needs_a_file(identity: Identity, setting: str) -> None:
    assert (
        refusal(identity, setting)
        == f"ledger {setting}: not a file; an edge needs a durable place for it"
    )
    assert not Path(f"{setting}.lock").exists()


def test_it_may_lie_beside_the_data_and_be_taken_over_by_another_identity(
    identity: Identity, tmp_path: Path
) -> None:
    (tmp_path / "data").mkdir()
    setting = str(tmp_path / "data" / "ledger-{n}.db")
    assert charged(identity, setting, times=3) == 3
    assert (tmp_path / "data" / "ledger-0.db").is_file()
    assert not (identity.path / "ledger.db").exists()
    for another in acquired_identity(tmp_path / "a new container"):
        assert charged(another, setting) == 4


@pytest.mark.parametrize("loss", ["deleted", "empty", "new"])
def test_a_ledger_that_is_gone_is_noticed(identity: Identity, tmp_path: Path, loss: str) -> None:
    charged(identity)
    path = identity.path / "ledger.db"
    path.unlink()
    if loss == "empty":
        path.touch()
    if loss == "new":
        for another in acquired_identity(tmp_path / "others"):
            charged(another)
            shutil.copy(another.path / "ledger.db", path)
    message = refusal(identity)
    assert message.startswith(f"ledger {path}: is ")
    assert message.endswith("refusing to train without its history")
    assert refusal(identity) == message  # and nothing was made that would pass the next time


def test_it_is_noticed_although_nothing_was_ever_charged_and_the_marker_is_all_there_is(
    identity: Identity,
) -> None:
    charged(identity, times=0)
    (identity.path / "ledger.db").unlink()
    assert "is missing or empty" in refusal(identity)


def test_another_dataset_has_a_ledger_of_its_own(identity: Identity, tmp_path: Path) -> None:
    assert charged(identity, times=3) == 3
    assert charged(identity, dataset="mnist") == 1  # in the same file
    assert charged(identity, str(tmp_path / "usps.db"), "usps") == 1  # or elsewhere
    assert charged(identity, times=0) == 3


def test_two_edges_on_one_ledger_are_refused(identity: Identity, tmp_path: Path) -> None:
    setting = str(tmp_path / "ledger.db")
    for another in acquired_identity(tmp_path / "others"):
        with opened(another, setting):
            assert "an edge is using it, and two would spend one budget" in refusal(
                identity, setting
            )
        assert charged(identity, setting) == 1


def test_a_marker_that_cannot_be_read_is_refused(identity: Identity) -> None:
    charged(identity)
    for content in (
        b"",
        b"[]",
        b'{"digits": 3}',
        b'{"digits": "xyz"}',
        b"\xff",
        b'{"format": 2, "ledgers": {}}',
        b'{"format": 2, "owner": "00", "ledgers": {"digits": {"lineage": "00"}}}',
    ):
        (identity.path / "enrolled.json").write_bytes(content)
        assert "enrolled.json" in refusal(identity)


def test_a_place_that_does_not_exist_is_refused(identity: Identity, tmp_path: Path) -> None:
    assert "an edge needs a durable place" in refusal(
        identity, str(tmp_path / "missing" / "ledger.db")
    )


def test_it_remembers_how_far_the_ledger_had_come(identity: Identity, tmp_path: Path) -> None:
    path = identity.path / "ledger.db"
    charged(identity, times=2)
    shutil.copy(path, tmp_path / "backup.db")
    last = enrolled(identity)["digits"]
    assert (last["count"], last["head"]) == (2, read_chains(path)[0].head.hex())
    # An older copy than the last opening is refused, and one that goes on from it is, too.
    charged(identity)
    shutil.copy(tmp_path / "backup.db", path)
    for more in (0, 1, 2):
        with closing(Ledger(path, "digits")) as copy:
            for _ in range(min(more, 1)):
                copy.charge(0.1, 1.5, "gaussian", secret=True)
        message = refusal(identity)
        assert message.startswith(f"ledger {path}: it")
        assert message.endswith("copy was put back, refusing to train")


def test_it_is_remembered_at_an_opening_and_at_a_close_and_never_ahead_of_the_ledger(
    identity: Identity,
) -> None:
    counts = []
    with opened(identity) as ledger:
        counts.append(enrolled(identity)["digits"]["count"])
        ledger.charge(0.1, 1.5, "gaussian", secret=True)
        with ledger.transaction(Charge(0.1, 1.5, "gaussian", secret=True, count=5)):
            pass
        counts.append(enrolled(identity)["digits"]["count"])
    counts.append(enrolled(identity)["digits"]["count"])
    assert counts == [0, 0, 1]  # what was charged ahead is taken back
    assert charged(identity) == 2


def test_a_killed_process_leaves_what_was_known_when_it_began(
    identity: Identity, tmp_path: Path
) -> None:
    charged(identity, times=3)
    process = forked.finished(OPEN_AND_DIE, identity.path.parent)
    assert process.returncode == -signal.SIGKILL
    assert enrolled(identity)["digits"]["count"] == 3
    assert charged(identity, times=0) == 5


OPEN_AND_DIE = """
import os, signal, sys, threading
from pathlib import Path
from tacit_services.identity import lineage
from tacit_services.identity.folder import Identities
identity = Identities(Path(sys.argv[1]), 1).acquire(2, threading.Event())
object.__setattr__(identity, "path", Path(sys.argv[1], "0"))
with lineage.ledger(identity, identity.ledger_place, "digits") as ledger:
    ledger.charge(0.1, 1.5, "gaussian", secret=True, count=2)
    os.kill(os.getpid(), signal.SIGKILL)
"""


def enrolled(identity: Identity) -> dict[str, Any]:
    content = json.loads((identity.path / "enrolled.json").read_bytes())
    assert (content["format"], len(content["owner"])) == (2, 32)
    ledgers: dict[str, Any] = content["ledgers"]
    return ledgers


def test_an_identity_keeps_its_id(identity: Identity, tmp_path: Path) -> None:
    charged(identity)
    owner = identity.enrolment().owner
    charged(identity, dataset="mnist")
    assert identity.enrolment().owner == owner
    for another in acquired_identity(tmp_path / "others"):
        charged(another)
        assert another.enrolment().owner != owner
