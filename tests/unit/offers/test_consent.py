"""An owner's answers are kept by the offer's fingerprint, and researchers by their keys."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

import pytest
from tacit_services.member.consent import Consents, KeyStanding
from tacit_services.offers.offer import Offer

from tacit.errors import ConfigError, PrivacyError
from tests.helpers.offered import changed, key

AT = datetime(2026, 12, 1, 9, 30, tzinfo=UTC)


def offer(
    name: str = "Dr. Ada Weiß",
    seed: int = 1,
    updates: int = 60,
    signed_by: Literal["host"] | None = None,
) -> Offer:
    by = key(name, seed, signed_by)
    file = {"run": {"name": "doses", "updates": updates}}
    return by.signed(Offer(run="doses-1", file=file, researcher=by.public()))


def test_an_answer_outlives_the_process(tmp_path: Path) -> None:
    Consents(tmp_path / "consents.json").record(offer(), "accepted", at=AT)
    again = Consents(tmp_path / "consents.json").to(offer())
    assert again is not None
    assert again.holds
    assert (again.at, again.key) == (AT, offer().researcher.fingerprint)


def test_consent_is_to_one_fingerprint_and_a_replayed_offer_is_asked_for_again(
    tmp_path: Path,
) -> None:
    consents = Consents(tmp_path / "consents.json")
    older, newer = offer(updates=60), offer(updates=61)
    consents.record(newer, "accepted")
    assert consents.to(older) is None
    earlier = consents.earlier(older)
    assert earlier is not None
    assert earlier.fingerprint == newer.fingerprint
    assert consents.to(changed(newer, run="doses-2")) is None


def test_the_latest_answer_counts(tmp_path: Path) -> None:
    consents = Consents(tmp_path / "consents.json")
    consents.record(offer(), "declined")
    assert [each.holds for each in consents.all()] == [False]
    consents.record(offer(), "accepted")
    latest = consents.to(offer())
    assert latest is not None
    assert latest.holds


def test_a_name_that_comes_with_another_key_is_refused_until_its_owner_confirms_it(
    tmp_path: Path,
) -> None:
    # Given
    path = tmp_path / "consents.json"
    ours, theirs = offer(), offer(seed=2)
    assert Consents(path).standing(ours) is KeyStanding.NEW
    Consents(path).record(ours, "accepted")
    assert Consents(path).standing(ours) is KeyStanding.KNOWN
    # When
    assert Consents(path).standing(theirs) is KeyStanding.OTHER_KEY
    with pytest.raises(ConfigError, match=r"another key.*`tacit offers accept doses-1 --new-key`"):
        Consents(path).record(theirs, "accepted")
    assert Consents(path).to(theirs) is None
    # Then
    Consents(path).confirm(theirs)
    Consents(path).record(theirs, "accepted")
    assert Consents(path).standing(ours) is KeyStanding.OTHER_KEY


@pytest.mark.parametrize("first", [None, "host"])
def test_a_person_and_the_host_that_signs_for_them_are_known_by_two_keys(
    tmp_path: Path, first: Literal["host"] | None
) -> None:
    # Given: a name that is known by the person's own key, or by the host's
    other: Literal["host"] | None = None if first == "host" else "host"
    consents = Consents(tmp_path / "consents.json")
    earlier, later = offer(signed_by=first), offer(seed=2, signed_by=other)
    consents.record(earlier, "accepted")
    # When it comes with the other one, then its owner is asked, once
    assert consents.standing(later) is KeyStanding.OTHER_KEY
    with pytest.raises(ConfigError, match="another key"):
        consents.record(later, "accepted")
    consents.confirm(later)
    consents.record(later, "accepted")
    again = Consents(tmp_path / "consents.json")
    assert again.standing(earlier) is again.standing(later) is KeyStanding.KNOWN
    # And the host's key is not taken for the person's, nor another one for the host's.
    assert again.standing(offer(seed=2, signed_by=first)) is KeyStanding.OTHER_KEY
    assert again.standing(offer(seed=3, signed_by=other)) is KeyStanding.OTHER_KEY


def test_an_offer_that_is_declined_confirms_no_key(tmp_path: Path) -> None:
    consents = Consents(tmp_path / "consents.json")
    consents.record(offer(), "declined")
    assert consents.standing(offer()) is KeyStanding.NEW


def test_what_is_withdrawn_holds_no_more_and_says_when(tmp_path: Path) -> None:
    path = tmp_path / "consents.json"
    Consents(path).record(offer(), "accepted")
    (taken,) = Consents(path).withdraw("doses-1", AT)
    assert taken.withdrawn == AT
    again = Consents(path).to(offer())
    assert again is not None
    assert not again.holds
    assert Consents(path).withdraw("doses-1") == []


@pytest.mark.parametrize("content", [b"", b"{}x", b'{"format": 2}', b"[" * 10_000, b"\xff"])
def test_answers_that_cannot_be_read_are_no_answers(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "consents.json").write_bytes(content)
    with pytest.raises(PrivacyError, match=r"consents\.json"):
        Consents(tmp_path / "consents.json")


def test_only_its_user_reads_the_file(tmp_path: Path) -> None:
    Consents(tmp_path / "consents.json").record(offer(), "accepted")
    assert (tmp_path / "consents.json").stat().st_mode & 0o777 == 0o600
