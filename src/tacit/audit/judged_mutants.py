"""Edges that judge, with one defect each, and the audit of looks: an honest edge and mutants."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from tacit.audit.asked_edge import Scratch
from tacit.audit.asked_mutants import ChargedAfter, OnePartBare, Uncharged
from tacit.audit.judged_edge import (
    JudgedSubject,
    divided,
    judged_anew,
    judged_canary,
    judged_charges,
    judged_ended,
    judged_fields,
    judged_moves,
    judged_noise,
    judged_starts,
    untrained,
)
from tacit.audit.judged_worlds import NUMBER, THREE, TWO, JudgedWorld
from tacit.audit.mutants import LessNoise, ReusedNoise, SeededNoise
from tacit.audit.mutants_rows import LateLedger
from tacit.audit.rounding_mutants import Trusting
from tacit.audit.statistics import Finding
from tacit.audit.subject import Randomness
from tacit.datasets.held_out import Sides, UnitSplit
from tacit.datasets.source import EdgePart, Source
from tacit.judging.look_sheet import CELLS, LookPart, LookSheet, Vectors
from tacit.privacy.private_sum.judged_sums import JudgedSums
from tacit.privacy.release import Releaser

JudgedTest = Callable[[JudgedSubject, Randomness, Scratch], list[Finding]]

# -- how a row is counted --------------------------------------------------------------------------


class ScoresBeyondBins(LookSheet):
    """Gives a probability of 1 the cell after the last one, which is another's."""

    def _of_classes(self, answers: Tensor, y: Tensor) -> dict[str, Vectors]:
        counted = LookSheet._of_classes(self, answers, y)
        surest = answers[:, 1] if len(self.target.names) == 2 else answers.max(1).values
        beyond = (surest >= 1).numpy()
        counted["scores"][beyond] = np.roll(counted["scores"][beyond], 1, axis=1)
        return counted


class CellsByRank(LookSheet):
    """Counts cells by the ranks of the rows at hand: one row so moves all others."""

    def _of_classes(self, answers: Tensor, y: Tensor) -> dict[str, Vectors]:
        counted = LookSheet._of_classes(self, answers, y)
        ranks = answers[:, -1].argsort().argsort() * CELLS // len(answers)
        scores = np.zeros_like(counted["scores"])
        scores[np.arange(len(ranks)), ranks.numpy()] = 1
        return counted | {"scores": scores}


class ErrorsUncut(LookSheet):
    """Takes an error as it is, however large."""

    def _of_number(self, answers: Tensor, y: Tensor) -> dict[str, Vectors]:
        counted = LookSheet._of_number(self, answers, y)
        assert self.bounds is not None
        u = ((answers.double() - y.double()) / self.bounds.reach).abs()
        moments = torch.stack((torch.ones_like(u), u, u * u), 1).div(3**0.5)
        return counted | {"errors": moments.float().numpy()}


def _copied(kind: type[LookSheet]) -> Callable[[LookSheet], LookSheet]:
    return lambda sheet: kind(sheet.target, sheet.parts, sheet.width, sheet.bounds)


def _without_shares(sheet: LookSheet) -> LookSheet:
    """Return the sheet without the roots of shares: a row is as long as it has parts."""
    parts = {name: LookPart(part.place, 1.0) for name, part in sheet.parts.items()}
    return replace(sheet, parts=parts)


# -- how units are counted -------------------------------------------------------------------------


class TrustingLooks(Trusting, JudgedSums):
    """Checks no norm."""


class EachRowAUnit(JudgedSums):
    """Counts all rows of a unit, each as a unit of its own."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.units = None
        self.records = len(self.y) - 1


class RowsAdded(TrustingLooks):
    """Adds the rows of a unit that count, where their mean is due, and checks no norm."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        if self.units is not None:
            self.units = replace(self.units, mean=False)


# -- who is held out -------------------------------------------------------------------------------


class SplitByPlace(UnitSplit):
    """Holds out every other unit, as they come in the file."""

    def held(self, units: Iterable[bytes]) -> Sides:
        """Return for each row whether its unit is held out."""
        rows = list(units)
        places = {unit: place for place, unit in enumerate(dict.fromkeys(rows))}
        return np.fromiter((places[unit] % 2 == 0 for unit in rows), np.bool_)


class SplitByRank(UnitSplit):
    """Holds out an exact share: the units of the lowest hashes."""

    def held(self, units: Iterable[bytes]) -> Sides:
        """Return for each row whether its unit is held out."""
        rows = list(units)
        ordered = sorted(set(rows))
        lowest = set(ordered[: int(self.share * len(ordered) + 0.5)])
        return np.fromiter((unit in lowest for unit in rows), np.bool_)


def trained_on_all(source: Source, split: UnitSplit, folder: Path) -> EdgePart:
    """Return all rows for training, those that are held out among them."""
    return replace(divided(source, split, folder), rows=source.edge(0, None, folder / "all").rows)


def judged_on_all(source: Source, split: UnitSplit, folder: Path) -> EdgePart:
    """Return all rows for looks, those that are trained on among them."""
    every = source.edge(0, None, folder / "all").rows
    return replace(divided(source, split, folder), held_out=every)


# -- noise and charges -----------------------------------------------------------------------------


class WrongSide(Releaser):
    """Charges looks as training, to the side that is trained on."""

    def __init__(self, *arguments: Any, **others: Any) -> None:
        super().__init__(*arguments, **others)
        self._purpose = "training"
        self._side = "training"


class TwoThirdsNoise(LessNoise):
    """Adds two thirds of the noise that it charges."""

    factor = 2 / 3


class ThreeHalvesNoise(LessNoise):
    """Adds more noise than it says, so that intervals are too narrow."""

    factor = 3 / 2


JUDGED_HONEST = JudgedSubject()


def _mutant(name: str, world: JudgedWorld = TWO, **changes: object) -> JudgedSubject:
    """Return a broken edge, which is caught in one world."""
    mutant = replace(JUDGED_HONEST, name=f"MUTANT looks, {name}", honest=False, worlds=(world,))
    return mutant.but(**changes)


JUDGED_TESTS: tuple[JudgedTest, ...] = (
    judged_moves, untrained, judged_canary, judged_noise, judged_anew, judged_starts,
    judged_fields, judged_charges, judged_ended,
)  # fmt: skip
# (the test that must catch it, mutant)
JUDGED_MUTANTS: tuple[tuple[JudgedTest, JudgedSubject], ...] = (
    (judged_moves, _mutant("a unit's rows are units", way=EachRowAUnit)),
    (judged_moves, _mutant("a unit's rows added, no norm checked", way=RowsAdded)),
    (judged_moves, _mutant("a score outside the bins", sheet=_copied(ScoresBeyondBins))),
    (judged_moves, _mutant("a guess outside the bins", THREE, sheet=_copied(ScoresBeyondBins))),
    (judged_moves, _mutant("cells by rank", sheet=_copied(CellsByRank))),
    (judged_moves, _mutant("an error not cut", NUMBER, sheet=_copied(ErrorsUncut))),
    (
        judged_moves,
        _mutant("an error of any length", NUMBER, sheet=_copied(ErrorsUncut), way=TrustingLooks),
    ),
    (
        judged_moves,
        _mutant("shares without roots", THREE, sheet=_without_shares, way=TrustingLooks),
    ),
    (judged_moves, _mutant("split by place", split=SplitByPlace)),
    (judged_moves, _mutant("an exact share", split=SplitByRank)),
    (judged_moves, _mutant("judged on all rows", divide=judged_on_all)),
    (untrained, _mutant("trained on all rows", divide=trained_on_all)),
    (judged_canary, _mutant("half noise", releaser=LessNoise)),
    (judged_noise, _mutant("2/3 of the noise", releaser=TwoThirdsNoise)),
    (judged_noise, _mutant("3/2 of the noise", releaser=ThreeHalvesNoise)),
    (judged_noise, _mutant("a count without noise", releaser=OnePartBare)),
    (judged_anew, _mutant("noise used again", random=ReusedNoise)),
    (judged_starts, _mutant("seeded noise", random=SeededNoise)),
    (judged_charges, _mutant("no charge", releaser=Uncharged)),
    (judged_charges, _mutant("charged to the wrong side", releaser=WrongSide)),
    (judged_charges, _mutant("charges written later", ledger=LateLedger)),
    (judged_ended, _mutant("charged after judging", releaser=ChargedAfter)),
)


def judged_tests(source: Randomness, scratch: Scratch, *, mutants: bool) -> Iterator[Finding]:
    """Yield what all tests find of an honest edge, and one finding for each mutant if wanted."""
    for test in JUDGED_TESTS:
        yield from test(JUDGED_HONEST, source, scratch)
    for test, subject in JUDGED_MUTANTS if mutants else ():
        yield max(
            test(subject, source, scratch),
            key=lambda finding: (finding.alarm, finding.measured / (finding.claim or 1.0)),
        )
