"""Makes curves of the results of a figure's runs, and judges the paper's claims by them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import pairwise, permutations

import numpy as np
from numpy.typing import NDArray
from scipy.stats import t as student

from tacit_lab.papers.figures import stored_results
from tacit_lab.papers.figures.figure_file import Claim, Figure, Noise, PlottedRun
from tacit_lab.papers.figures.stored_results import Result

HOLDS = "holds"
PAPER_ONLY = "holds only with the paper's non-private noise"
PLAIN_ONLY = "holds only without privacy"
UNCLEAR = "cannot tell"
FAILS = "does not hold"
PAPER_UNTRIED = "holds with the paper's non-private noise (with privacy: not tried)"
PLAIN_UNTRIED = "holds without privacy (with privacy: not tried)"
ThreeValued = bool | None  # None: the confidence interval leaves both answers possible


@dataclass(frozen=True, slots=True)
class Curve:
    """A line of a panel, over seeds.

    `x` has shape (P,), or is (1,) and nan for a flat line. `y` has shape (seeds, P). `epsilons` are
    those of all its runs, sorted; None is no guarantee.
    """

    panel: int
    name: str
    x: NDArray[np.float64]
    y: NDArray[np.float64]
    epsilons: tuple[float | None, ...]

    @property
    def mean(self) -> NDArray[np.float64]:
        """The mean over the seeds, (P,)."""
        return np.asarray(self.y.mean(0))

    @property
    def half_width(self) -> NDArray[np.float64]:
        """Half of the mean's 95 % confidence interval (P,), by Student's t; zeros for one seed."""
        return half_width(self.y)

    def scores(self, places: NDArray[np.float64] | None, *, end: bool) -> NDArray[np.float64]:
        """Return the scores (seeds,): the mean at `places` on the x axis, or with `end` the last.

        Without `places` the curve's own points are taken.
        """
        y = self.y
        if places is not None and not math.isnan(self.x[0]):
            y = np.stack([np.interp(places, self.x, row) for row in y])
        return np.asarray(y[:, -1] if end else y.mean(1))


def half_width(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return half of the 95 % confidence interval of the mean over the first axis, by Student's t.

    It is zero for a single value.
    """
    count = len(values)
    if count < 2:
        return np.zeros(values.shape[1:])
    return np.asarray(student.ppf(0.975, count - 1) * values.std(0, ddof=1) / math.sqrt(count))


@dataclass(frozen=True, slots=True)
class JudgedClaim:
    """A claim, what was found for each kind of noise that was tried, and the verdict."""

    claim: Claim
    holds: dict[Noise, ThreeValued]
    measured: dict[Noise, str]
    verdict: str


def curves(figure: Figure, cells: list[PlottedRun], results: Mapping[str, Result]) -> list[Curve]:
    """Return the curves of all lines and panels that have runs."""
    grouped: dict[tuple[int, int], list[PlottedRun]] = {}
    for cell in cells:
        grouped.setdefault((cell.panel, cell.line), []).append(cell)
    return [_curve(figure, panel, line, mine, results) for (panel, line), mine in grouped.items()]


def _curve(
    figure: Figure, panel: int, line: int, cells: list[PlottedRun], results: Mapping[str, Result]
) -> Curve:
    head = figure.figure
    by_seed = {(cell.seed, cell.x): results[stored_results.result_name(cell.run)] for cell in cells}
    epsilons = tuple(
        sorted(
            {result["epsilon"] for result in by_seed.values()}, key=lambda e: (e is None, e or 0)
        )
    )
    name = figure.line[line].name
    if head.over == "points":
        places = sorted({cell.x for cell in cells}, key=lambda x: x if x is not None else math.nan)
        y = [
            [_score(figure, by_seed[seed, x], cells[0].run.run.updates) for x in places]
            for seed in head.seeds
        ]
        return Curve(
            panel,
            name,
            np.array([math.nan if x is None else x for x in places]),
            np.array(y),
            epsilons,
        )
    series = [by_seed[seed, None]["series"] for seed in head.seeds]
    if figure.line[line].flat:
        return Curve(
            panel,
            name,
            np.array([math.nan]),
            np.array([[points[-1][head.y]] for points in series]),
            epsilons,
        )
    shortest = min(series, key=len)
    x = np.array([point[head.over] for point in shortest])
    y = [
        np.interp(x, [p[head.over] for p in points], [p[head.y] for p in points])
        for points in series
    ]
    return Curve(panel, name, x, np.array(y), epsilons)


def _score(figure: Figure, result: Result, updates: int) -> float:
    head = figure.figure
    series = result["series"]
    if head.y != "reached":
        return float(series[-1][head.y])
    assert head.below is not None
    return float(
        next((point["version"] for point in series if point["loss"] < head.below), updates)
    )


def judge(figure: Figure, drawn: list[Curve]) -> list[JudgedClaim]:
    """Judge every claim of the figure."""
    return [_judged(figure, claim, drawn) for claim in figure.claim]


def _judged(figure: Figure, claim: Claim, drawn: list[Curve]) -> JudgedClaim:
    holds: dict[Noise, ThreeValued] = {}
    measured: dict[Noise, str] = {}
    for noise in ("paper", "rigorous", "none"):
        panels = {
            number
            for number, panel in enumerate(figure.panel)
            if panel.noise == noise and (not claim.panels or panel.title in claim.panels)
        }
        checked = []
        for panel in sorted(panels):
            mine = {c.name: c for c in drawn if c.panel == panel and c.name in claim.lines}
            if len(mine) == len(claim.lines):
                checked.append(_check(figure, claim, mine))
        if checked:
            holds[noise] = _all(good for good, _ in checked)
            measured[noise] = "; ".join(text for _, text in checked)
    return JudgedClaim(claim, holds, measured, verdict(holds))


def verdict(holds: Mapping[Noise, ThreeValued]) -> str:
    """Return what rigorous noise has shown or, where it was not tried, what other runs have."""
    if "rigorous" in holds:
        private = holds["rigorous"]
        if private is not False:
            if private:
                return HOLDS
            return UNCLEAR
        if holds.get("paper"):
            return PAPER_ONLY
        if holds.get("none"):
            return PLAIN_ONLY
        return FAILS
    if holds.get("paper"):
        return PAPER_UNTRIED
    if holds.get("none"):
        return PLAIN_UNTRIED
    if None in holds.values() or not holds:
        return UNCLEAR
    return FAILS


def _all(parts: Iterable[ThreeValued]) -> ThreeValued:
    """Return False where a part is False, else None where one is unclear, else True."""
    values = list(parts)
    if False in values:
        return False
    if None in values:
        return None
    return True


def _least(values: NDArray[np.float64], bound: float) -> ThreeValued:
    """Return whether the mean of `values` (seeds,) is at least `bound`; None where it is unclear.

    It is unclear where the bound is inside the mean's confidence interval.
    """
    mean = float(values.mean())
    half = float(half_width(values))
    if abs(mean - bound) >= half:
        return mean >= bound
    return None


def _check(figure: Figure, claim: Claim, mine: dict[str, Curve]) -> tuple[ThreeValued, str]:
    if claim.kind in ("order", "near"):
        return _compare(figure, claim, mine)
    parts = []
    good = []
    for name in claim.lines:
        mean = mine[name].mean
        y = mine[name].y
        if claim.kind == "below":
            good.append(_least(-y[:, 0], -claim.tolerance))
            parts.append(f"{name}: {_interval(y[:, 0])}")
        elif claim.kind != "flat":
            risen = y[:, -1] - y[:, 0]
            good.append(_rises(risen if claim.kind == "rising" else -risen))
            parts.append(f"{name}: from {mean[0]:.4g} to {mean[-1]:.4g}")
        else:
            spread = y[:, mean.argmax()] - y[:, mean.argmin()]
            good.append(_least(-spread, -claim.tolerance))
            parts.append(f"{name}: spread {_interval(spread)}")
    return _all(good), ", ".join(parts)


def _rises(values: NDArray[np.float64]) -> ThreeValued:
    """Return whether the mean of `values` is above 0.

    A line that has not moved at all is not rising.
    """
    if values.any():
        return _least(values, 0.0)
    return False


def _compare(figure: Figure, claim: Claim, mine: dict[str, Curve]) -> tuple[ThreeValued, str]:
    sign = -1.0 if figure.figure.less_is_more else 1.0
    if figure.figure.over == "points":
        places = None
    else:
        places = _common([mine[name] for name in claim.lines])
    scores = {name: mine[name].scores(places, end=claim.at == "end") for name in claim.lines}
    if claim.kind == "near":
        good = _all(_least(a - b, -claim.tolerance) for a, b in permutations(scores.values(), 2))
    else:  # seeds are paired: they share data, parts and first model
        good = _all(_least(sign * (a - b), -claim.tolerance) for a, b in pairwise(scores.values()))
    listed = ", ".join(f"{name}: {_interval(score)}" for name, score in scores.items())
    apart = ", ".join(_interval(a - b) for a, b in pairwise(scores.values()))
    return good, f"{listed} (apart {apart})"


def _interval(values: NDArray[np.float64]) -> str:
    return f"{values.mean():.4g} ± {float(half_width(values)):.2g}"


def _common(curves: list[Curve]) -> NDArray[np.float64]:
    """Return places on the x axis, evenly spaced, that all `curves` have reached.

    So what is compared is the same time or cost.
    """
    curves = [curve for curve in curves if not math.isnan(curve.x[0])] or curves
    first = max(curve.x[0] for curve in curves)
    last = min(curve.x[-1] for curve in curves)
    return np.linspace(first, last, 50)
