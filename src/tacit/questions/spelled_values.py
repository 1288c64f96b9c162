"""Values read from noisy sums of spelled ones, each with how many rows have it.

A value is read where its symbol is the largest of each of its positions, or the second of a few:
then its checksum fits. It is taken away, and the bucket is read again, for a value that it hid.

Nothing is invented, but by a rare chance. A bucket is read at most 9 times, each at 25 lengths and
with at most 256 changes of symbols. What is read must be printable: of n random bytes a part p(n)
is, of one 95/256, and Σ_n p(n) < 0.7. So of noise alone a value is read with a probability below
32 · 9 · 256 · 0.7 / 2^37 < 4e-7 (`tacit.questions.spelling.read`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from tacit.questions.row_parts import Reals
from tacit.questions.spelling import BUCKETS, LENGTHS, POSITIONS, SYMBOLS, Nibbles, positions, read

STANDS_OUT = 4.0  # standard deviations of its count that a value is shown from
_VALUES = 8  # of a bucket, at most
_DOUBTFUL = 8  # positions of which the second symbol is tried, too
# The largest of 16 normal numbers: its mean, and its standard deviation. A word is looked for where
# its symbols are larger than those of noise, by so many deviations of their sum.
_MEAN_OF_LARGEST, _DEVIATION_OF_LARGEST = 1.766, 0.53
_GATE = 1.5


@dataclass(frozen=True, slots=True)
class SpelledCount:
    """A value, how many rows have it, and the standard deviation of that."""

    text: str
    count: float
    deviation: float


def counted(column: str, sums: Reals, noise: float) -> list[SpelledCount]:
    """Return the values that stand out, the most frequent first.

    sums: of all rows' vectors of a `Spelled` part, without the place of no value. noise: its
    standard deviation in each.
    """
    buckets = sums.reshape(BUCKETS, POSITIONS, SYMBOLS)
    centred = buckets - buckets.mean(axis=2, keepdims=True)
    counts = [
        each
        for number, bucket in enumerate(centred)
        for each in _of_bucket(column, number, bucket, noise)
        if each.count >= STANDS_OUT * each.deviation
    ]
    return sorted(counts, key=lambda each: -each.count)


def _of_bucket(column: str, number: int, centred: Reals, noise: float) -> list[SpelledCount]:
    """Return all values that can be read in a bucket (positions, symbols)."""
    texts: list[str] = []
    codes: list[Reals] = []
    counts: Reals = np.zeros(0)
    residual = centred
    while len(codes) < _VALUES:
        word = _word(column, number, residual, noise)
        if word is None or word[0] in texts:
            break
        texts.append(word[0])
        codes.append(_code(word[1]))
        matrix = np.stack([code.ravel() for code in codes], axis=1)
        counts = np.linalg.lstsq(matrix, centred.ravel(), rcond=None)[0].astype(np.float64)
        residual = centred - (matrix @ counts).reshape(centred.shape)
    if not codes:
        return []
    variances = np.diag(np.linalg.inv(matrix.T @ matrix)) * noise**2
    unread = _unread(residual, noise)
    return [
        SpelledCount(text, float(count), math.sqrt(variance + unread * _overlap(code)))
        for text, code, count, variance in zip(texts, codes, counts, variances, strict=True)
    ]


def _unread(residual: Reals, noise: float) -> float:
    """Return a bound on the sum of squares of the counts of what was not read in a bucket.

    It is what the residual has beyond noise, and a standard deviation of that.
    """
    free = POSITIONS * (SYMBOLS - 1)
    beyond = float(np.square(residual).sum()) - free * noise**2
    return max(0.0, beyond) + math.sqrt(2 * free) * noise**2


def _overlap(code: Reals) -> float:
    """Return the variance of the inner product of a code and another one, which the pad draws.

    The two agree in a position with a probability of 1/16.
    """
    count = int(np.count_nonzero(code.any(axis=1)))
    return (SYMBOLS - 1) / SYMBOLS**2 / count


def _word(column: str, bucket: int, residual: Reals, noise: float) -> tuple[str, Nibbles] | None:
    """Return a value that can be read in a bucket, of the clearest length, and its symbols."""
    order = np.argsort(residual, axis=1)
    best, second = order[:, -1], order[:, -2]
    largest, next_one = (
        np.take_along_axis(residual, at[:, None], axis=1)[:, 0] for at in (best, second)
    )
    counts = [positions(length) for length in range(LENGTHS)]
    clear = [
        math.sqrt(count) * (largest[:count].mean() / noise - _MEAN_OF_LARGEST) for count in counts
    ]
    for length in sorted(range(1, LENGTHS), key=lambda length: -clear[length]):
        if clear[length] < _GATE * _DEVIATION_OF_LARGEST:
            return None
        count = counts[length]
        tries = _tries(best[:count], second[:count], (largest - next_one)[:count])
        word = read(column, bucket, length, tries)
        if word is not None:
            return word
    return None


def _tries(best: Nibbles, second: Nibbles, margins: Reals) -> Nibbles:
    """Return rows of symbols: the best, and after them others, with the second best where near."""
    doubtful = np.argsort(margins)[:_DOUBTFUL]
    choices = (np.arange(2 ** len(doubtful))[:, None] >> np.arange(len(doubtful))) & 1
    choices = choices[np.argsort(choices @ margins[doubtful], kind="stable")]
    rows = np.tile(best, (len(choices), 1))
    rows[:, doubtful] = np.where(choices == 1, second[doubtful], best[doubtful])
    return rows


def _code(symbols: Nibbles) -> Reals:
    """Return the centred code (positions, symbols) of what is spelled by these symbols."""
    count = len(symbols)
    code = np.zeros((POSITIONS, SYMBOLS))
    code[:count] = -1 / SYMBOLS
    code[np.arange(count), symbols] += 1
    return code / math.sqrt(count)
