"""A researcher who chooses each run's q and z after the results of the one before.

Two worlds: in one the data has a record of value 1, in the other it has not. The researcher submits
a run, looks at its result, and submits one of two others: after a lucky result a release like the
first, after an unlucky one a release that shows the record itself, but rarely. Each takes as much as
the ledger still pays for. In the end the researcher says "it was there" if the likelihood ratio of
all results is above e^ε. A ledger that keeps (ε, δ) bounds P["there" | with] - e^ε·P["there" |
without] by δ.

A ledger that counts by PLD, as if q and z had been fixed in advance, holds on either way alone. It
does not hold for the choice between them, and is beaten. The lifetime's filter is not.
"""

from __future__ import annotations

import math
import shutil
from bisect import bisect_left
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tacit.errors import BudgetSpent
from tacit.privacy.accounting import History, Lifetime, Spend, epsilon_pld
from tacit.privacy.ledger import SharedLedger
from tacit.privacy.ledger.chain import Charge

EPSILON, DELTA = 1.0, 0.05  # a large δ, so that it can be measured
FIRST = Spend(1.0, 2.0, 1)
GAMES = 1_000_000  # in each world
# By Hoeffding: an advantage is measured too large by more than this with probability below 10^-6.
MARGIN = (1 + math.exp(EPSILON)) * math.sqrt(math.log(2e6) / (2 * GAMES))
# Runs from cheap to dear: full batches with less and less noise; the record itself, or less of it,
# ever more often.
LIKE_THE_FIRST = [Spend(1.0, float(z), 1) for z in np.arange(20, 0.5, -0.05)]
THE_RECORD_ITSELF = [Spend(float(q), 0.3, 1) for q in np.arange(0.001, 0.2, 0.001)]
RARELY = [Spend(float(q), 1.0, 1) for q in np.arange(0.01, 1.0, 0.01)]
Results = NDArray[np.float64]


@dataclass(frozen=True)
class FixedInAdvance:
    """The mutant: it counts what was chosen on the way as if it had been fixed in advance."""

    epsilon: float
    delta: float
    order: int = 2

    def left(self, history: History, spend: Spend) -> int:
        return int(epsilon_pld([*history, spend], self.delta) <= self.epsilon)

    def check(self, history: History, spend: Spend) -> None:
        if not self.left(history, spend):
            raise BudgetSpent("fixed in advance")


def dearest(ledger: SharedLedger, runs: list[Spend]) -> list[Spend]:
    """Submit the dearest run that the ledger pays for, of runs from cheap to dear; [] if none."""

    def refused(run: Spend) -> bool:
        charge = Charge(run.sampling_rate, run.noise_multiplier, run.mechanism, secret=True)
        return not ledger.lifetime_left(charge)

    paid = runs[: bisect_left(runs, True, key=refused)][-1:]
    for run in paid:
        ledger.charge(run.sampling_rate, run.noise_multiplier, run.mechanism, secret=True)
    return paid


def ways(folder: Path, lifetime: Any) -> list[list[Spend]]:
    """Return what each way to go on may release at most, on copies of one ledger."""
    path = folder / "ledger.db"
    with closing(SharedLedger(path, "data", run="first", lifetime=lifetime)) as ledger:
        assert dearest(ledger, [FIRST]) == [FIRST]
    taken = []
    for number, runs in enumerate((LIKE_THE_FIRST, THE_RECORD_ITSELF, RARELY)):
        copy = folder / f"{number}.db"
        shutil.copy(path, copy)
        with closing(SharedLedger(copy, "data", run="second", lifetime=lifetime)) as ledger:
            taken.append(dearest(ledger, runs))
    return taken


def loss(result: Results, spend: Spend) -> Results:
    """Return ln P/Q of a result: P with the record, drawn at q, and Q without it."""
    q, z = spend.sampling_rate, spend.noise_multiplier
    shifted = (2 * result - 1) / (2 * z**2)
    if q == 1:
        return shifted
    return np.logaddexp(math.log1p(-q), math.log(q) + shifted)


def released(spend: Spend, record: bool, chance: np.random.Generator) -> Results:
    noise = chance.normal(0, spend.noise_multiplier, GAMES)
    if record:
        return noise + (chance.random(GAMES) < spend.sampling_rate)
    return noise


def says_there(
    way: Callable[[Results], Results],
    taken: list[list[Spend]],
    record: bool,
    chance: np.random.Generator,
) -> float:
    """Play the games of one world, and return how often the researcher says that it was there."""
    total = loss(released(FIRST, record, chance), FIRST)
    chosen = way(total)
    for number, releases in enumerate(taken):
        here = chosen == number
        for spend in releases:
            more = loss(released(spend, record, chance), spend)
            total = np.where(here, total + more, total)
    return float(np.mean(total > EPSILON))


def advantage(way: Callable[[Results], Results], taken: list[list[Spend]]) -> float:
    chance = np.random.default_rng(48)
    with_record = says_there(way, taken, True, chance)
    return with_record - math.exp(EPSILON) * says_there(way, taken, False, chance)


def after(threshold: float, lucky: int, unlucky: int) -> Callable[[Results], Results]:
    return lambda total: np.where(total > threshold, lucky, unlucky)


STRATEGIES = [(t, unlucky) for t in (-0.1, 0.1, 0.3) for unlucky in (1, 2)]


def best(taken: list[list[Spend]]) -> float:
    return max(advantage(after(t, 0, unlucky), taken) for t, unlucky in STRATEGIES)


def test_an_adaptive_researcher_does_not_beat_a_lifetime(tmp_path: Path) -> None:
    taken = ways(tmp_path, Lifetime.begun(EPSILON, DELTA))
    assert taken[0]  # it pays for something
    assert best(taken) - MARGIN <= DELTA


def test_an_adaptive_researcher_beats_a_count_of_parameters_fixed_in_advance(
    tmp_path: Path,
) -> None:
    taken = ways(tmp_path, FixedInAdvance(EPSILON, DELTA))
    # Each way alone holds,
    for number in range(3):
        assert advantage(after(-math.inf, number, number), taken) - MARGIN <= DELTA
    # and the choice between them does not.
    assert best(taken) - MARGIN > DELTA


def test_the_attack_sees_releases_of_less_noise_than_is_counted(tmp_path: Path) -> None:
    taken = [
        [Spend(s.sampling_rate, s.noise_multiplier / 4, 1) for s in way]
        for way in ways(tmp_path, Lifetime.begun(EPSILON, DELTA))
    ]
    assert best(taken) - MARGIN > DELTA
