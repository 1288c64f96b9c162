"""Rows of a data set that was saved to disk: counts of words, and a label."""

from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np
from datasets import load_from_disk


class Notes:
    """Notes as (counts, label), by number; a map-style data set."""

    def __init__(self, path: Path, places: int) -> None:
        self.rows, self.places = load_from_disk(str(path)), places

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, number: int) -> tuple[np.ndarray, int]:
        row = self.rows[number]
        return counts(row["text"], self.places), row["label"]


def counts(text: str, places: int) -> np.ndarray:
    """How often words fall to each of so many places."""
    found = np.zeros(places, np.float32)
    for word in text.lower().split():
        digest = hashlib.blake2b(word.encode(), digest_size=4).digest()
        found[int.from_bytes(digest, "little") % places] += 1
    return found
