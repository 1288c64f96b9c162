"""Records found again by their salted names, in whatever order a party has them."""

from __future__ import annotations

import hashlib
import hmac

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tacit.datasets.alignment import align, names
from tacit.errors import DataError


@given(order=st.permutations(list(range(12))), size=st.integers(1, 12))
def test_every_row_of_the_roster_is_found(order: list[int], size: int) -> None:
    roster = names((f"id-{row}" for row in range(size)), b"salt", "server")
    mine = names((f"id-{row}" for row in order), b"salt", "party")
    places = align(roster, mine, "party")
    assert [order[place] for place in places] == list(range(size))


def test_a_name_is_a_keyed_hash() -> None:
    (name,) = names(["alice"], b"salt", "server")
    assert name == int.from_bytes(
        hmac.new(b"salt", b"alice", hashlib.sha256).digest()[:8], "little"
    )
    assert name != names(["alice"], b"pepper", "server")[0]
    assert name != names(["bob"], b"salt", "server")[0]


def test_missing_records_are_counted_and_named() -> None:
    roster = names(["a", "b", "c", "d", "e"], b"salt", "server")
    mine = names(["e", "a", "x"], b"salt", "party-2")
    with pytest.raises(
        DataError, match="party-2: 3 of the run's 5 records are not among its 3"
    ) as error:
        align(roster, mine, "party-2")
    assert all(f"{name:016x}" in str(error.value) for name in roster[1:4])


def test_another_salt_finds_nobody() -> None:
    ids = ["a", "b"]
    with pytest.raises(DataError, match="2 of the run's 2 records"):
        align(names(ids, b"salt", "server"), names(ids, b"other", "party-1"), "party-1")


def test_a_party_without_records_says_so() -> None:
    nobody = names([], b"salt", "party-1")
    with pytest.raises(DataError, match="1 of the run's 1 records are not among its 0"):
        align(names(["a"], b"salt", "server"), nobody, "party-1")
    assert len(align(nobody, nobody, "party-1")) == 0


def test_an_id_that_occurs_twice_is_refused() -> None:
    with pytest.raises(DataError, match="party-1: an id occurs twice among its 3 records"):
        names(["a", "b", "a"], b"salt", "party-1")


def test_names_are_64_bits() -> None:
    assert names(["a"], b"salt", "server").dtype == np.dtype("<u8")


def test_a_roster_that_names_a_record_twice_is_refused() -> None:
    """Else a server could have one record released as often as it likes, at the price of once."""
    mine = names(["a", "b", "c"], b"salt", "party-1")
    with pytest.raises(
        DataError, match="party-1: the run's roster of 3 names a record more than once"
    ):
        align(mine[[0, 1, 0]], mine, "party-1")
