"""Values that nobody has stated, spelled: each with length 1, and none read that is not there."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tacit.questions.row_parts import RawCells
from tacit.questions.spelling import (
    BUCKETS,
    LENGTHS,
    MOST_BYTES,
    POSITIONS,
    SYMBOLS,
    Spelled,
    positions,
    read,
    spell,
)

PART = Spelled("job")
TEXTS = st.one_of(st.none(), st.text(max_size=40))


def cells(*texts: str | None) -> RawCells:
    return RawCells(len(texts), {}, {"job": np.array(texts, object)})


@given(first=TEXTS, other=TEXTS)
def test_every_value_has_a_vector_of_length_1_that_depends_on_no_other_row(
    first: str | None, other: str | None
) -> None:
    entries = PART.entries(PART.packed(cells(first, other)))
    assert entries.places.shape == entries.values.shape == (2, PART.support)
    assert (np.diff(entries.places, axis=1) > 0).all()
    assert entries.places.max() < PART.width
    vectors = entries.dense(PART.width)
    assert np.linalg.norm(vectors.astype(np.float64), axis=1) == pytest.approx(1, abs=1e-6)
    (alone,) = PART.entries(PART.packed(cells(first))).dense(PART.width)
    assert np.array_equal(vectors[0], alone)


@given(stored=st.lists(st.floats(width=32), min_size=PART.stored, max_size=PART.stored))
def test_whatever_is_stored_is_a_vector_that_is_no_longer(stored: list[float]) -> None:
    entries = PART.entries(np.array([stored], np.float32))
    assert (np.diff(entries.places, axis=1) > 0).all()
    vector = entries.dense(PART.width).astype(np.float64)
    assert np.linalg.norm(vector) <= 1 + 1e-6
    assert not PART.entries(np.zeros((1, PART.stored), np.float32)).values.any()


@given(text=st.text(min_size=1, max_size=12).filter(str.isprintable))
def test_what_is_spelled_is_read_again_and_a_long_text_is_cut(text: str) -> None:
    word = spell("job", text)
    assert len(word.symbols) == positions(word.length)
    back = read("job", word.bucket, word.length, word.symbols[None])
    assert back is not None
    content = text.encode()
    expected = text if len(content) <= MOST_BYTES else content[:24].decode(errors="ignore") + "…"
    assert back[0] == expected


def test_a_value_and_a_longer_one_that_begins_with_it_are_told_apart() -> None:
    short = "x" * MOST_BYTES
    for text, label in ((short, short), (short + "y", short + "…")):
        word = spell("job", text)
        read_again = read("job", word.bucket, word.length, word.symbols[None])
        assert read_again is not None
        assert read_again[0] == label


def test_nothing_is_read_of_another_bucket_column_or_symbol_and_nothing_that_cannot_be_shown() -> (
    None
):
    word = spell("job", "nurse")
    assert read("job", word.bucket, word.length, word.symbols[None]) is not None
    assert read("job", (word.bucket + 1) % BUCKETS, word.length, word.symbols[None]) is None
    assert read("town", word.bucket, word.length, word.symbols[None]) is None
    for place in range(len(word.symbols)):
        changed = word.symbols.copy()
        changed[place] = (changed[place] + 1) % SYMBOLS
        assert read("job", word.bucket, word.length, changed[None]) is None
    for text in ("", "a\tb"):
        hidden = spell("job", text)
        assert read("job", hidden.bucket, hidden.length, hidden.symbols[None]) is None


def test_of_random_symbols_none_is_a_value() -> None:
    random = np.random.default_rng(1)
    for length in range(1, LENGTHS):
        symbols = random.integers(0, SYMBOLS, (2_000, positions(length)))
        assert read("job", int(random.integers(BUCKETS)), length, symbols) is None


def test_like_values_of_a_bucket_agree_no_more_than_by_chance() -> None:
    words = [spell("job", f"ward number {number:02}").symbols for number in range(100)]
    agreeing = np.mean(
        [(first == second).mean() for first in words for second in words if first is not second]
    )
    assert 0.055 < agreeing < 0.07  # 1/16; without the pad, 3 of 5


def test_a_row_without_a_value_counts_in_a_place_of_its_own() -> None:
    vector = PART.entries(PART.packed(cells(None))).dense(PART.width)[0]
    assert vector[0] == 1
    assert np.count_nonzero(vector) == 1
    assert PART.entries(PART.packed(cells("x"))).dense(PART.width)[0, 0] == 0
    assert PART.width == 1 + BUCKETS * POSITIONS * SYMBOLS
