"""Edges that answer questions, with one defect each, and test I of all: honest ones and mutants."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np
from torch import Tensor

from tacit.audit.asked_edge import (
    AskedSubject,
    Scratch,
    anew,
    canary,
    charges,
    crowded,
    ended,
    fields,
    moves,
    noise,
    starts,
)
from tacit.audit.mutants import LessNoise, ReusedNoise, RootHalfNoise, SeededNoise
from tacit.audit.mutants_rows import LateLedger
from tacit.audit.rounding_mutants import CutToTheGrid, NearestStep, Trusting
from tacit.audit.statistics import Finding
from tacit.audit.subject import Randomness
from tacit.privacy.private_sum.clipping import Clipped
from tacit.privacy.private_sum.whole_sums import WholeSums
from tacit.privacy.release import Released, Releaser
from tacit.questions.row_parts import Entries, RowVectors
from tacit.questions.sheet import QuestionSheet

AskedTest = Callable[[AskedSubject, Randomness, Scratch], list[Finding]]

# -- how rows are counted --------------------------------------------------------------------------


class SharesBeyondOne(QuestionSheet):
    """Takes weights as they are written, whose sum is then 2 and not 1."""

    def entries(self, packed: RowVectors) -> Entries:
        """Return vectors that are up to √2 long."""
        each = super().entries(packed)
        return Entries(each.places, each.values * np.float32(math.sqrt(2)))


class CentredByRows(QuestionSheet):
    """Centres numbers by the mean of the rows at hand: one row so moves all others."""

    def entries(self, packed: RowVectors) -> Entries:
        """Return vectors less their mean."""
        vectors = super().entries(packed).dense(self.width)
        centred: RowVectors = vectors - vectors.mean(axis=0, keepdims=True)
        return Entries(np.broadcast_to(np.arange(self.width), centred.shape), centred)


# -- how they are added up -------------------------------------------------------------------------


class TrustingAnswers(Trusting, WholeSums):
    """Checks no norm."""


class NearestAnswers(NearestStep, WholeSums):
    """Rounds to the nearest step."""


class CutAnswers(CutToTheGrid, WholeSums):
    """Rounds toward zero."""


class BorderUnitTwice(WholeSums):
    """Adds the last unit of every block to the next block, too."""

    def _vectors(self) -> Iterator[Entries]:
        last: list[Entries] = []
        for block in super()._vectors():
            blocks = [*last, block]
            yield Entries(
                np.concatenate([each.places for each in blocks]),
                np.concatenate([each.values for each in blocks]),
            )
            last = [Entries(block.places[-1:], block.values[-1:])]

    @property
    def _at_a_time(self) -> int:
        return 4  # as a table of millions of rows has many blocks


# -- noise and charges -----------------------------------------------------------------------------


class OnePartBare(Releaser):
    """Adds noise to all sums but the last one."""

    def _noisy(
        self, clipped: Clipped, clip: float, paper_dims: slice | None
    ) -> tuple[Tensor, float]:
        noisy, scale = super()._noisy(clipped, clip, paper_dims)
        noisy[-1] = clipped.total[-1].to(noisy.dtype)
        return noisy, scale


class ChargedAfter(Releaser):
    """Computes, and charges what it then sends."""

    def release(
        self, clip: float, query: Callable[[], Clipped], *, paper_dims: slice | None = None
    ) -> Released:
        """Release what is computed already."""
        clipped = self.computed(query)
        return super().release(clip, lambda: clipped, paper_dims=paper_dims)


class Uncharged(Releaser):
    """Charges nothing."""

    def _charge(self, clip: float, count: int) -> None:
        self.check_clip(clip)


HONEST = AskedSubject()


def _mutant(name: str, **changes: object) -> AskedSubject:
    return replace(HONEST, name=f"MUTANT ask, {name}", honest=False).but(**changes)


TESTS: tuple[AskedTest, ...] = (
    moves, canary, crowded, noise, anew, starts, fields, charges, ended,
)  # fmt: skip
# (the test that must catch it, mutant)
MUTANTS: tuple[tuple[AskedTest, AskedSubject], ...] = (
    (moves, _mutant("rows not divided by unit_rows", divided=1)),
    (moves, _mutant("rows not divided, no norm checked", divided=1, way=TrustingAnswers)),
    (moves, _mutant("a unit counted twice", way=BorderUnitTwice)),
    (moves, _mutant("weights that sum to 2", sheet=SharesBeyondOne, way=TrustingAnswers)),
    (moves, _mutant("centred by the rows' own mean", sheet=CentredByRows)),
    (canary, _mutant("half noise", releaser=LessNoise)),
    (crowded, _mutant("rounded to nearest, unchecked", way=NearestAnswers)),
    (crowded, _mutant("cut toward zero", way=CutAnswers)),
    (noise, _mutant("noise/√2", releaser=RootHalfNoise)),
    (noise, _mutant("a sum without noise", releaser=OnePartBare)),
    (anew, _mutant("noise used again", random=ReusedNoise)),
    (starts, _mutant("seeded noise", random=SeededNoise)),
    (charges, _mutant("no charge", releaser=Uncharged)),
    (charges, _mutant("charges written later", ledger=LateLedger)),
    (ended, _mutant("charged after computing", releaser=ChargedAfter)),
)


def asked_tests(source: Randomness, scratch: Scratch, *, mutants: bool) -> Iterator[Finding]:
    """Yield what all tests find of an honest edge, and one finding for each mutant if wanted."""
    for test in TESTS:
        yield from test(HONEST, source, scratch)
    for test, subject in MUTANTS if mutants else ():
        yield max(
            test(subject, source, scratch),
            key=lambda finding: (finding.alarm, finding.measured / (finding.claim or 1.0)),
        )
