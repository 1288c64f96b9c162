"""All attacks on the membership of records, by the signals that a model shows of them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tacit.attacks import measured
from tacit.attacks.attack_report import AttackFigures, AttackName
from tacit.attacks.calibrated_loss import UsualSignals
from tacit.attacks.likelihood_ratio import Draws, likelihood_ratios
from tacit.attacks.measured import ScoreVector

RATES = (0.001, 0.01, 0.1)  # of false alarms


@dataclass(frozen=True, slots=True, eq=False)
class ShadowSignals:
    """The signals (runs, n) of shadow runs, and which records were members of which."""

    signals: npt.NDArray[np.float64]
    inside: Draws


@dataclass(frozen=True, slots=True, eq=False)
class MembershipScores:
    """An attack's scores, higher for a member: of members (m,), of others (n,)."""

    name: AttackName
    members: ScoreVector
    others: ScoreVector

    def figures(self) -> AttackFigures:
        """Return how well they tell members from others."""
        rates = [measured.hit_rate(self.members, self.others, rate) for rate in RATES]
        return AttackFigures(
            name=self.name, auc=measured.auc(self.members, self.others), rates=rates
        )


def attacks(
    signals: ScoreVector,
    inside: npt.NDArray[np.bool_],
    classes: npt.NDArray[np.int64],
    shadows: ShadowSignals | None,
    seed: int,
) -> Iterator[MembershipScores]:
    """Yield the scores of each attack.

    signals (n,): of the model under attack. inside (n,): the truth. classes (n,). shadows: None
    where there are none. seed: of the half of the non-members that calibrates.
    """
    yield MembershipScores("loss", signals[inside], signals[~inside])
    others = np.flatnonzero(~inside)
    usual, measured_on = np.array_split(np.random.default_rng(seed).permutation(others), 2)
    if len(measured_on) > 1:
        calibrated = UsualSignals.of(signals[usual], classes[usual]).scores(signals, classes)
        yield MembershipScores("calibrated loss", calibrated[inside], calibrated[measured_on])
    if shadows is not None:
        ratios = likelihood_ratios(shadows.signals, shadows.inside, signals)
        yield MembershipScores("likelihood ratio", ratios[inside], ratios[~inside])
