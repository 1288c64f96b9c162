"""Randomness and Poisson sampling, one property at a time.

The distributions are in test_sampling_statistics.py.
"""

from __future__ import annotations

import os
from collections import Counter
from fractions import Fraction
from math import comb

import numpy as np
import pytest
from scipy.stats import chisquare

from tacit.privacy.accounting import TAIL
from tacit.privacy.noise.randomness import Random
from tacit.privacy.plan import padded_size
from tacit.privacy.private_sum.sampling import poisson


def exact_tail(records: int, rate: float, above: int) -> Fraction:
    """Return P(Binomial(records, rate) > above) in exact arithmetic."""
    q = Fraction(rate)
    inside = sum(
        comb(records, k) * q**k * (1 - q) ** (records - k) for k in range(min(above, records) + 1)
    )
    return Fraction(1) - inside


@pytest.mark.parametrize(
    ("records", "rate"),
    [(40, 0.01), (40, 0.5), (40, 0.999), (300, 0.05), (300, 0.25), (1, 0.5), (60, 1e-12)],
)
def test_a_batch_outgrows_its_padding_less_than_once_in_1e15_pushes(
    records: int, rate: float
) -> None:
    size = padded_size(records, rate)
    assert 1 <= size <= records
    assert exact_tail(records, rate, size) <= TAIL


@pytest.mark.parametrize(("records", "rate"), [(300, 0.05), (12_000, 0.004)])
def test_the_padding_is_not_larger_than_it_needs_to_be(records: int, rate: float) -> None:
    size = padded_size(records, rate)
    assert size % 16 == 0
    assert exact_tail(300, 0.05, padded_size(300, 0.05) - 17) > TAIL
    assert size < 3 * records * rate + 60


def test_rate_one_takes_every_record() -> None:
    batch = poisson(37, 1.0, padded_size(37, 1.0), Random(1))
    assert sorted(batch.index.tolist()) == list(range(37))
    assert bool(batch.mask.all())


def test_a_batch_holds_each_record_at_most_once_and_empty_slots_name_the_public_row() -> None:
    for seed in range(50):
        batch = poisson(200, 0.1, 64, Random(seed))
        drawn_rows = batch.index[batch.mask].tolist()
        assert len(drawn_rows) == len(set(drawn_rows))
        assert all(0 <= row < 200 for row in drawn_rows)
        assert batch.index[~batch.mask].tolist() == [200] * (64 - len(drawn_rows))


def slots(records: int, rows: tuple[int, ...], count: int = 24_000) -> Counter[tuple[int, ...]]:
    """Count in which slots of 4 `rows` of `records` stand, all drawn, in `count` batches."""
    random, counts = Random(records), Counter[tuple[int, ...]]()
    for _ in range(count):
        index = poisson(records, 1.0, 4, random).index.tolist()
        counts[tuple(index.index(row) for row in rows)] += 1
    return counts


@pytest.mark.parametrize("records", [2, 3, 4])
def test_where_two_rows_stand_does_not_depend_on_who_else_was_drawn(records: int) -> None:
    """Any two slots with probability 1/12, with no other row, with one and with two."""
    counts = slots(records, (0, 1))
    assert len(counts) == 12
    assert chisquare(list(counts.values())).pvalue > 1e-3


def test_a_permutation_is_drawn_again_where_two_words_are_equal(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    words = iter([[5, 5, 1], [9, 2, 4]])
    random = Random(1)
    monkeypatch.setattr(random, "words", lambda count: np.array(next(words), dtype=np.uint64))
    assert random.permutation(3).tolist() == [1, 2, 0]


def test_every_release_has_a_key_of_its_own_and_a_seeded_stream_goes_on() -> None:
    secret, seeded, again = Random(), Random(1), Random(1)
    copied = secret._stream  # what a copy of the machine would go on with
    secret.renew()
    assert secret.bytes(32) != copied.update(bytes(32))
    seeded.renew()
    assert seeded.bytes(32) == again.bytes(32)


def test_a_key_has_256_bits_from_the_operating_system(monkeypatch: pytest.MonkeyPatch) -> None:
    lengths: list[int] = []

    def drawn(count: int) -> bytes:
        lengths.append(count)
        return os.urandom(count)

    monkeypatch.setattr("tacit.privacy.noise.randomness.secrets.token_bytes", drawn)
    random = Random()
    random.renew()
    assert lengths == [32, 32]


@pytest.mark.parametrize("rate", [1e-9, 0.03, 0.9])
def test_the_shape_does_not_depend_on_the_draw(rate: float) -> None:
    shapes = {tuple(poisson(100, rate, 100, Random(seed)).index.shape) for seed in range(20)}
    assert shapes == {(100,)}


def test_an_empty_draw_is_all_padding() -> None:
    batch = poisson(100, 1e-12, 16, Random(1))
    assert not bool(batch.mask.any())


def test_a_draw_above_the_size_is_cut_to_a_random_part_of_it() -> None:
    random = Random(1)
    counts = [0] * 60
    for _ in range(600):
        batch = poisson(60, 0.99, 12, random)
        assert bool(batch.mask.all())
        assert len(set(batch.index.tolist())) == 12
        for row in batch.index.tolist():
            counts[row] += 1
    assert min(counts) > 70  # each row is in 12 of 60: mean 120, standard deviation 10
    assert max(counts) < 170


@pytest.mark.parametrize(
    ("rate", "size"), [(0.0, 4), (-0.1, 4), (1.1, 4), (float("nan"), 4), (0.5, 0)]
)
def test_an_impossible_rate_or_size_is_refused(rate: float, size: int) -> None:
    with pytest.raises(ValueError, match="rate="):
        poisson(10, rate, size, Random(1))


def test_two_secret_streams_differ() -> None:
    assert Random().secret
    assert Random().bytes(32) != Random().bytes(32)


def test_a_seeded_stream_comes_again_and_is_not_secret() -> None:
    first, second = Random(7), Random(7)
    assert not first.secret
    assert first.bytes(5) + first.bytes(59) == second.bytes(64)
    assert first.bytes(64) != second.bytes(63) + b"?"
    assert Random(7).bytes(64) != Random(8).bytes(64)


def test_a_stream_never_repeats_itself() -> None:
    random = Random(7)
    assert len({random.bytes(16) for _ in range(1000)}) == 1000


def in_fork(random: Random) -> bytes:
    """Return 32 bytes that a forked child draws from its copy of `random`."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(writer, random.bytes(32))
        os._exit(0)
    os.close(writer)
    drawn = os.read(reader, 32)
    os.close(reader)
    os.waitpid(child, 0)
    return drawn


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_forked_children_and_their_parent_draw_different_bytes() -> None:
    random = Random()
    random.bytes(10)
    drawn = {in_fork(random), in_fork(random), random.bytes(32)}
    assert len(drawn) == 3
    assert all(len(part) == 32 for part in drawn)


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_the_parents_stream_goes_on_after_a_fork() -> None:
    random = Random(3)
    in_fork(random)
    assert random.bytes(32) == Random(3).bytes(32)


def test_a_key_has_more_than_a_few_random_bytes() -> None:
    # 2^16 keys would give some 120 pairs of equal streams among 4,000; and one stream, as many
    # releases.
    assert len({Random().bytes(16) for _ in range(4000)}) == 4000
    stream, prefixes = Random(), set()
    for _ in range(4000):
        stream.renew()
        prefixes.add(stream.bytes(16))
    assert len(prefixes) == 4000
