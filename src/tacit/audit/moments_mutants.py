"""Edges that release second moments, with one defect each, and test J of all."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from tacit.audit.moments_attack import (
    HONEST,
    TESTS,
    MomentsSubject,
    MomentsTest,
    canary,
    charges,
    moves,
    noise,
)
from tacit.audit.mutants import LessNoise, RootHalfNoise
from tacit.audit.mutants_rows import LateLedger
from tacit.audit.statistics import Finding
from tacit.audit.subject import Randomness
from tacit.privacy.private_sum.moment_sums import MomentBlock, MomentSums, Wholes


class _Unchecked(MomentSums):
    """Checks no unit's length."""

    def fits(self, x: Wholes, y: Wholes, rows: int) -> NDArray[np.bool_]:
        """Return that all fit."""
        return np.ones(len(x) // rows, dtype=bool)


class BothHalves(MomentSums):
    """Sends XᵀX whole, so that what is beside the diagonal is there twice."""

    def _added(self, blocks: Iterator[MomentBlock], scale: float) -> tuple[Any, Any]:
        square, cross = super()._added(blocks, scale)
        diagonal = np.diagonal(square).copy()
        square = 2 * square
        np.fill_diagonal(square, diagonal)
        return square, cross


class WithoutItsScale(MomentSums):
    """Sends the upper half as it is: less than a row may show, and another matrix is read."""

    def _added(self, blocks: Iterator[MomentBlock], scale: float) -> tuple[Any, Any]:
        square, cross = super()._added(blocks, scale)
        diagonal = np.diagonal(square).copy()
        square = square * 29 // 41
        np.fill_diagonal(square, diagonal)
        return square, cross


class ClipForgotten(_Unchecked):
    """Takes rows as long as they are."""

    def whole(self, block: MomentBlock, scale: float) -> tuple[Wholes, Wholes]:
        """Return the rows without the division by their length."""
        x, _, _ = block
        scaled, targets = super().whole(block, scale)
        norms = np.sqrt(np.square(x.reshape(-1, x.shape[-1])).sum(axis=1) + 1)[:, None]
        longer = np.clip(np.nan_to_num(norms, nan=1.0), 1.0, 10.0)
        return np.trunc(scaled * longer), targets


class CapForgotten(_Unchecked):
    """Lets each of a person's rows weigh as a person."""

    def _units(self) -> Iterator[MomentBlock]:
        units = self.data.units
        for x, y, weights in super()._units():
            yield x, y, weights if units is None else weights * units.limit


class OtherTargets(_Unchecked):
    """Forgets that XᵀX and Xᵀy are seen together: each of them has a whole budget."""

    def whole(self, block: MomentBlock, scale: float) -> tuple[Wholes, Wholes]:
        """Return rows that are 2^¼ too long."""
        return super().whole(block, scale * 2**0.25)


def _mutant(name: str, **changes: object) -> MomentsSubject:
    named = replace(HONEST, name=f"MUTANT least-squares, {name}", honest=False)
    return replace(named, **changes)  # type: ignore[arg-type]


# (the test that must catch it, mutant)
MUTANTS: tuple[tuple[MomentsTest, MomentsSubject], ...] = (
    (moves, _mutant("both halves of XᵀX", sums=BothHalves)),
    (moves, _mutant("a half without its scale", sums=WithoutItsScale)),
    (moves, _mutant("clip forgotten", sums=ClipForgotten)),
    (moves, _mutant("a person's cap forgotten", sums=CapForgotten)),
    (moves, _mutant("a budget for each part", sums=OtherTargets)),
    (canary, _mutant("half noise", releaser=LessNoise)),
    (canary, _mutant("a person's cap forgotten, noisy", sums=CapForgotten)),
    (noise, _mutant("noise/√2", releaser=RootHalfNoise)),
)
LATE: MomentsSubject = _mutant("charges written later", ledger=LateLedger)


class FolderOpener(Protocol):
    """What opens a folder for as long as it is needed."""

    def __call__(self) -> AbstractContextManager[str]: ...


def moments_tests(source: Randomness, scratch: FolderOpener, *, mutants: bool) -> Iterator[Finding]:
    """Yield what all tests find of an honest edge, and one finding for each mutant if wanted."""
    for test in TESTS:
        yield from test(HONEST, source)
    for subject in (HONEST, LATE) if mutants else (HONEST,):
        with scratch() as folder:
            yield from charges(subject, source, Path(folder) / "ledger.db")
    for test, subject in MUTANTS if mutants else ():
        yield max(
            test(subject, source),
            key=lambda finding: (finding.alarm, finding.measured / (finding.claim or 1.0)),
        )
