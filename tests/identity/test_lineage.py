"""The ledger goes with the data: enrolled once, then demanded, and used by one edge at a time."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from tacit_services.identity import lineage
from tacit_services.identity.folder import Identity, acquire
from tacit_services.worker.outbox import Outbox

from tacit.errors import PrivacyError
from tacit.privacy.ledger import Ledger


@pytest.fixture
def identity(tmp_path: Path) -> Iterator[Identity]:
    yield from taken(tmp_path / "identities")


def taken(root: Path) -> Iterator[Identity]:
    found = acquire(root, 2, None, threading.Event())
    assert found is not None
    with closing(found):
        yield found


def charged(
    identity: Identity, setting: str | None = None, dataset: str = "digits", times: int = 1
) -> int:
    """Charge `times`; how far the ledger has come."""
    with lineage.ledger(identity, setting, dataset) as ledger:
        for _ in range(times):
            ledger.charge(0.1, 1.5, "gaussian", secret=True)
        return ledger.charged().count


def refusal(identity: Identity, setting: str | None = None, dataset: str = "digits") -> str:
    with pytest.raises(PrivacyError) as refused, lineage.ledger(identity, setting, dataset):
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
    for another in taken(tmp_path / "a new container"):
        assert charged(another, setting) == 4


@pytest.mark.parametrize("loss", ["deleted", "empty", "new"])
def test_a_ledger_that_is_gone_is_noticed(identity: Identity, tmp_path: Path, loss: str) -> None:
    charged(identity)
    path = identity.path / "ledger.db"
    path.unlink()
    if loss == "empty":
        path.touch()
    if loss == "new":
        for another in taken(tmp_path / "others"):
            charged(another)
            shutil.copy(another.path / "ledger.db", path)
    said = refusal(identity)
    assert said.startswith(f"ledger {path}: is ")
    assert said.endswith("refusing to train without its history")
    assert refusal(identity) == said  # and nothing was made that would pass the next time


def test_it_is_noticed_although_nothing_was_ever_charged_and_the_marker_is_all_there_is(
    identity: Identity,
) -> None:
    charged(identity, times=0)
    (identity.path / "ledger.db").unlink()
    assert "is missing or empty" in refusal(identity)


def test_an_identity_from_before_the_marker_is_known_by_its_outbox(identity: Identity) -> None:
    with closing(Outbox(identity.path / "outbox.db", "run")) as outbox:
        outbox.put(1, b"hello")
    assert "edge-0 has sent messages before" in refusal(identity)
    # One that still has its ledger is enrolled as it is.
    with (
        closing(Outbox(identity.path / "outbox.db", "run")),
        closing(Ledger(identity.path / "l.db", "digits")),
    ):
        pass
    assert charged(identity, str(identity.path / "l.db")) == 1
    (identity.path / "l.db").unlink()
    assert "is missing or empty" in refusal(identity, str(identity.path / "l.db"))


def test_another_dataset_has_a_ledger_of_its_own(identity: Identity, tmp_path: Path) -> None:
    assert charged(identity, times=3) == 3
    assert charged(identity, dataset="mnist") == 1  # in the same file
    assert charged(identity, str(tmp_path / "usps.db"), "usps") == 1  # or elsewhere
    assert charged(identity, times=0) == 3


def test_two_edges_on_one_ledger_are_refused(identity: Identity, tmp_path: Path) -> None:
    setting = str(tmp_path / "ledger.db")
    for another in taken(tmp_path / "others"):
        with lineage.ledger(another, setting, "digits"):
            assert "an edge is using it, and two would spend one budget" in refusal(
                identity, setting
            )
        assert charged(identity, setting) == 1


def test_a_marker_that_cannot_be_read_is_refused(identity: Identity) -> None:
    charged(identity)
    for content in (b"", b"[]", b'{"digits": 3}', b'{"digits": "xyz"}', b"\xff"):
        (identity.path / "enrolled.json").write_bytes(content)
        assert "enrolled.json" in refusal(identity)


def test_a_place_that_does_not_exist_is_refused(identity: Identity, tmp_path: Path) -> None:
    assert "an edge needs a durable place" in refusal(
        identity, str(tmp_path / "missing" / "ledger.db")
    )


@pytest.mark.parametrize("marker", ["exchanged too", "deleted", "without the dataset"])
def test_a_ledger_that_is_exchanged_with_its_marker_is_noticed_by_the_outbox(
    identity: Identity, tmp_path: Path, marker: str
) -> None:
    # Given an identity whose ledger has paid for a message,
    with (
        lineage.ledger(identity, None, "digits") as ledger,
        closing(Outbox(identity.path / "outbox.db", "r")) as outbox,
    ):
        ledger.charge(0.1, 1.5, "gaussian", secret=True)
        outbox.put(1, b"update", ledger)
    assert charged(identity, times=0) == 1
    # when somebody puts another ledger, with less on it, in its place, and the marker to it,
    for another in taken(tmp_path / "others"):
        charged(another)
        shutil.copy(another.path / "ledger.db", identity.path / "ledger.db")
        shutil.copy(another.path / "enrolled.json", identity.path / "enrolled.json")
    if marker == "deleted":
        (identity.path / "enrolled.json").unlink()
    if marker == "without the dataset":
        (identity.path / "enrolled.json").write_text("{}")
    # then the outbox knows who has paid.
    assert "it was exchanged, refusing to train" in refusal(identity)
    assert "it was exchanged, refusing to train" in refusal(identity)
