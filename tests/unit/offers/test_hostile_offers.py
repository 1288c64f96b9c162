"""Offers that a hostile researcher has signed: each is refused in words, and none ends a member."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tacit_services.member.consent import KeyStanding
from tacit_services.member.judging import judged
from tacit_services.member.looking import Looked, look
from tacit_services.member.screen import Screen
from tacit_services.member.verdict import PolicyWord
from tacit_services.offers.offer import Offer

from tacit.config.site import Site
from tacit.errors import WireError
from tacit.privacy.policy import Policy
from tests.helpers.offered import changed, fetched
from tests.unit.offers.test_packing import KINDS, offered
from tests.unit.offers.test_screen import text

_LEAF = (
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=12)
    | st.sampled_from(["python", "graph", "../x", "/etc/passwd", "os:system", "{edge}", "\x1b[2J"])
    | st.lists(st.integers(-5, 5), max_size=3)
    | st.dictionaries(st.text(max_size=5), st.integers(), max_size=2)
)


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Return the way to every value inside."""
    inside: list[tuple[Any, ...]] = [path] if path else []
    if isinstance(value, dict):
        for key, each in value.items():
            inside += places(each, (*path, key))
    elif isinstance(value, list):
        for number, each in enumerate(value):
            inside += places(each, (*path, number))
    return inside


def with_value(tree: dict[str, Any], path: tuple[Any, ...], value: Any) -> dict[str, Any]:
    """Return `tree` with another value at `path`."""
    other = copy.deepcopy(tree)
    place: Any = other
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = value
    return other


@pytest.fixture(scope="module", params=["a table", "a module", "a text", "a front", "arrays"])
def honest(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Offer, Path, Path]:
    """An honest offer, a member's folder with its files, and the member's rows."""
    folder = tmp_path_factory.mktemp("offer")
    packed = offered(request.param, folder)
    rows = KINDS[request.param].rows(folder)
    return packed.offer, fetched(packed, folder / "member"), rows


@settings(
    max_examples=60, deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)  # fmt: skip
@given(data=st.data())
def test_any_value_anywhere_is_read_or_refused_in_words(
    honest: tuple[Offer, Path, Path], data: st.DataObject
) -> None:
    # Given
    offer, folder, rows = honest
    path = data.draw(st.sampled_from(places(offer.file)))
    file = with_value(offer.file, path, data.draw(_LEAF))
    try:
        hostile = Offer.parse(changed(offer, file=file).content())
    except (WireError, ValueError):  # it is no offer at all
        return
    # When
    seen: Looked = look(hostile, folder, Site(3, rows), KeyStanding.NEW)
    verdict = judged(seen, Policy())
    # Then: there are words for it, and a screen that a terminal shows
    assert (seen.trouble is None) == (verdict.answer is not PolicyWord.REFUSE)
    shown = text(Screen(seen).sections())
    assert all(letter.isprintable() or letter == "\n" for letter in shown)
