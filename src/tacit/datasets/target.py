"""The target y of a data set, in the words of its file: its kind, and what else follows from it.

y is one number a row, or of each place of a row, float32 of a "number" and int64 of all others:

    "classes"  the place of the class among `names`
    "labels"   of several labels at once, bit j is label j of `names`
    "counts"   the count itself, from 0 to `high`, which larger ones count as
    "event"    2s + e: s of the intervals between `low` and the last of `cuts` passed without the
               event, and e is 1 where it came in the next one
    "text"     the next word of each of the `length` words (n, length)
    "tokens"   one of `tokens` numbers for each of the example's `length` places (n, length), and
               NOT_LEARNT where nothing is learnt

The loss, metrics and best constant answer of labels, counts, events and tokens are in
`tacit.models.objectives`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch

TargetKind = Literal["classes", "number", "text", "labels", "counts", "event", "tokens"]
NOT_LEARNT = -100  # at a place of tokens: as torch's own cross-entropy has it
MOST_COUNTED = 1_000_000
MOST_LABELS = 62  # bits of an int64 below its sign, and one more to draw below 2**62


@dataclass(frozen=True, slots=True)
class Target:
    """The target y, in the words of the file.

    kind: as above; a "number" is low + span·y. names: of classes, of labels, or of the event. high:
    the largest count. cuts: where an event's intervals end, the first of which begins at `low`.
    tokens: how many different ones, of tokens and of a text. length: the places of an example.
    """

    kind: TargetKind
    names: tuple[str, ...] = ()
    low: float = 0.0
    span: float = 1.0
    high: int = 0
    cuts: tuple[float, ...] = ()
    tokens: int = 0
    length: int = 0

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of one row's y: (), or (length,)."""
        return (self.length,) if self.length else ()

    @property
    def codes(self) -> int:
        """How many different y there are, from 0 on; 0 of a number."""
        if self.kind == "labels":
            return 1 << len(self.names)
        if self.kind == "counts":
            return self.high + 1
        if self.kind == "event":
            return 2 * len(self.cuts) + 1
        if self.tokens:
            return self.tokens
        return len(self.names)

    @property
    def outputs(self) -> int:
        """How many numbers a model gives for a row, or for each place of one; 0: of a number."""
        if self.kind == "counts":
            return 1
        if self.kind == "event":
            return len(self.cuts)
        if self.tokens:
            return self.tokens
        return len(self.names)

    @property
    def shares(self) -> tuple[str, ...]:
        """What a prediction gives a probability of: classes, labels, the event by each cut."""
        if self.kind == "event":
            ends = (repr(cut).removesuffix(".0") for cut in self.cuts)  # different ones differ
            return tuple(f"{self.names[0]} by {end}" for end in ends)
        return self.names

    @property
    def words(self) -> str:
        """What is learnt, in words; names are as the file has them."""
        names = ", ".join(self.names)
        if self.kind == "classes":
            return f"classes: {names}"
        if self.kind == "labels":
            return f"several labels at once: {names}"
        if self.kind == "counts":
            return f"a count from 0 to {self.high:,}"
        if self.kind == "event":
            return f"the time to an event, {names}, from {self.low:g} to {self.cuts[-1]:g}"
        if self.kind == "number":
            return "a number"
        if self.kind == "tokens":
            return f"one of {self.tokens:,} tokens at each of {self.length} places"
        return "the next word"

    def unscaled(self, y: torch.Tensor) -> torch.Tensor:
        """Return numbers (float64) in the unit of the file."""
        return self.low + self.span * y.double()
