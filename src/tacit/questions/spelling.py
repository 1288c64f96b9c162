"""Values of a category that nobody has stated, spelled so that their sum can be read again.

Idea. A value goes to one of 32 buckets, by a public hash. There it is spelled in positions: eight
nibbles of a checksum, and after them two for each byte of its text. In each position it counts in
one of 16 places. So a frequent value stands out in every position of its bucket, and the checksum
says that what is read there belongs together (`tacit.questions.spelled_values`).

All of it is scaled to length 1, of a short value and of a long one. The text's nibbles are moved by
a pad that follows from the checksum: two values of one bucket have nothing in common, however alike
they are.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from tacit.questions.row_parts import Entries, Part, RawCells, RowVectors, whole_numbers

BUCKETS = 32
SYMBOLS = 16
CHECKS = 8  # nibbles of a checksum
MOST_BYTES = 24  # of a value's text; what is longer is cut
LENGTHS = MOST_BYTES + 2  # in bytes; the last one says that the text is cut
POSITIONS = CHECKS + 2 * MOST_BYTES
_NIBBLES = 6  # of a stored number, which has 24 bits
_WORDS = -(-POSITIONS // _NIBBLES)
_SHIFTS = 4 * np.arange(_NIBBLES)
CUT = "…"  # after a value whose text was cut

Nibbles = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class SpelledWord:
    """A value as it is spelled. symbols: (P,), of its positions."""

    bucket: int
    length: int
    symbols: Nibbles


def positions(length: int) -> int:
    """Return P of a value of this length."""
    return CHECKS + 2 * min(length, MOST_BYTES)


def spell(column: str, text: str) -> SpelledWord:
    """Return a value of a column as it is spelled."""
    content = text.encode(errors="replace")
    length = min(len(content), LENGTHS - 1)
    if length > MOST_BYTES:
        content = _cut(content).ljust(MOST_BYTES, b"\0")
    bucket, check = _hashed(column, length, content)
    symbols = (_nibbles(content) + _pad(column, check)[: 2 * len(content)]) % SYMBOLS
    return SpelledWord(bucket, length, np.concatenate([_nibbles(check), symbols]))


def read(column: str, bucket: int, length: int, symbols: Nibbles) -> tuple[str, Nibbles] | None:
    """Return the first value that is spelled by one of several rows of symbols (T, P), and its row.

    None: none of them is a value. Of symbols drawn at random, one row of 2^37 is one: its 32 bits
    of checksum and 5 of bucket fit. A value that was cut ends with "…".
    """
    checks, pads = _pads(column, symbols[:, :CHECKS])
    contents = _octets((symbols[:, CHECKS:] - pads[:, : symbols.shape[1] - CHECKS]) % SYMBOLS)
    for row, check, octets in zip(symbols, checks, contents, strict=True):
        content = octets.tobytes()
        text = _text(content, length)
        if text and _hashed(column, length, content) == (bucket, check):
            return text, row
    return None


def _text(content: bytes, length: int) -> str:
    """Return what can be shown of a value; nothing of what is no text."""
    try:
        text = content.decode() if length <= MOST_BYTES else content.rstrip(b"\0").decode() + CUT
    except UnicodeDecodeError:
        return ""
    return text if text.isprintable() else ""


@dataclass(frozen=True, slots=True)
class Spelled(Part):
    """A row counts as its value in `column`, spelled. One without a value has a place of its own.

    The first place is of no value, and after it come buckets, of each its positions, of each its
    symbols. A row's bucket and length are stored, and its symbols, six in a number.
    """

    column: str

    @property
    def width(self) -> int:
        """A number for each symbol of each position of each bucket, and one."""
        return 1 + BUCKETS * POSITIONS * SYMBOLS

    @property
    def stored(self) -> int:
        """The bucket with the length, and the symbols."""
        return 1 + _WORDS

    @property
    def support(self) -> int:
        """A symbol of each position, and the place of no value."""
        return 1 + POSITIONS

    def packed(self, cells: RawCells) -> RowVectors:
        """Return bucket, length and symbols of each row's value."""
        texts = cells.texts[self.column]
        row = {text: number for number, text in enumerate(dict.fromkeys(texts))}
        packed = np.zeros((len(row), self.stored), np.float32)
        for text, number in row.items():
            packed[number] = 0
            packed[number, 0] = 1
            if text is not None:
                packed[number] = _stored(spell(self.column, text))
        return packed[[row[text] for text in texts]]

    def entries(self, packed: RowVectors) -> Entries:
        """Return each value's symbols, equal and of length 1 together."""
        head = whole_numbers(packed[:, 0], 1 + BUCKETS * LENGTHS)
        bucket, length = np.divmod(np.maximum(head - 2, 0), LENGTHS)
        words = whole_numbers(packed[:, 1:], 2 ** (4 * _NIBBLES) - 1)
        symbols = (words[:, :, None] >> _SHIFTS) % SYMBOLS
        symbols = symbols.reshape(len(packed), -1)[:, :POSITIONS]
        position = np.arange(POSITIONS)
        places = 1 + (bucket[:, None] * POSITIONS + position) * SYMBOLS + symbols
        count = CHECKS + 2 * np.minimum(length, MOST_BYTES)
        written = (position < count[:, None]) & (head >= 2)[:, None]
        values = np.where(written, 1 / np.sqrt(count)[:, None], 0.0)
        missing = (head == 1)[:, None].astype(np.float32)
        return Entries(
            np.concatenate([np.zeros_like(places[:, :1]), places], axis=1),
            np.concatenate([missing, values.astype(np.float32)], axis=1),
        )


def _stored(word: SpelledWord) -> RowVectors:
    symbols = np.zeros(_WORDS * _NIBBLES, np.int64)
    symbols[: len(word.symbols)] = word.symbols
    words = (symbols.reshape(_WORDS, _NIBBLES) << _SHIFTS).sum(axis=1)
    return np.concatenate([[2 + word.bucket * LENGTHS + word.length], words]).astype(np.float32)


def _hashed(column: str, length: int, content: bytes) -> tuple[int, bytes]:
    """Return the bucket and the checksum of a value."""
    digest = _digest(column, b"value", bytes([length]) + content, 1 + CHECKS // 2)
    return digest[0] % BUCKETS, digest[1:]


def _pads(column: str, symbols: Nibbles) -> tuple[list[bytes], Nibbles]:
    """Return each row's checksum, of its symbols (T, 8), and the pad that follows from it."""
    checks = [octets.tobytes() for octets in _octets(symbols)]
    pads = {check: _pad(column, check) for check in dict.fromkeys(checks)}
    return checks, np.stack([pads[check] for check in checks])


def _pad(column: str, check: bytes) -> Nibbles:
    return _nibbles(_digest(column, b"pad", check, MOST_BYTES))


def _digest(column: str, purpose: bytes, content: bytes, size: int) -> bytes:
    return hashlib.blake2b(content, digest_size=size, key=_key(column), person=purpose).digest()


@lru_cache
def _key(column: str) -> bytes:
    return hashlib.blake2b(column.encode(errors="replace"), digest_size=32).digest()


def _cut(content: bytes) -> bytes:
    """Return the characters of which all bytes are among the first 24."""
    return content[:MOST_BYTES].decode(errors="ignore").encode()


def _nibbles(content: bytes) -> Nibbles:
    octets = np.frombuffer(content, np.uint8).astype(np.int64)
    return np.stack([octets >> 4, octets & 15], axis=1).ravel()


def _octets(nibbles: Nibbles) -> npt.NDArray[np.uint8]:
    """Return bytes (T, n) of nibbles (T, 2n)."""
    return (nibbles[:, ::2] * SYMBOLS + nibbles[:, 1::2]).astype(np.uint8)
