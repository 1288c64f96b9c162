"""From the results of a figure's runs to curves with bands, and from curves to verdicts on the paper's claims."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray
from scipy.stats import t as student

from services.figures.files import Cell, Claim, Figure, Noise
from services.figures.sweep import Result, key

HOLDS, PAPER_ONLY, PLAIN_ONLY, FAILS = (
    "holds", "holds only with the paper's non-private noise", "holds only without privacy", "does not hold",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Curve:
    """A line of a panel. x: (P,), or (1,) nan for a flat one; y: (seeds, P); epsilons: of all its runs, sorted."""

    panel: int
    name: str
    x: NDArray[np.float64]
    y: NDArray[np.float64]
    epsilons: tuple[float | None, ...]

    @property
    def mean(self) -> NDArray[np.float64]:
        """(P,) mean over the seeds."""
        return np.asarray(self.y.mean(0))

    @property
    def half_width(self) -> NDArray[np.float64]:
        """(P,) half of the 95 % confidence interval of the mean, by Student's t; zeros for one seed."""
        seeds = len(self.y)
        if seeds < 2:
            return np.zeros(self.y.shape[1])
        return np.asarray(student.ppf(0.975, seeds - 1) * self.y.std(0, ddof=1) / math.sqrt(seeds))

    def at(self, places: NDArray[np.float64] | None) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Mean and half width at `places` on the x axis, or (None) where the points are."""
        if places is None:
            return self.mean, self.half_width
        if math.isnan(self.x[0]):
            return np.repeat(self.mean, len(places)), np.repeat(self.half_width, len(places))
        return np.interp(places, self.x, self.mean), np.interp(places, self.x, self.half_width)


@dataclass(frozen=True, slots=True)
class Judged:
    """A claim, what was found for each kind of noise (None: not measured), and the verdict."""

    claim: Claim
    found: dict[Noise, bool]
    said: dict[Noise, str]
    verdict: str


def curves(figure: Figure, cells: list[Cell], results: Mapping[str, Result]) -> list[Curve]:
    """All lines of all panels that have runs."""
    grouped: dict[tuple[int, int], list[Cell]] = {}
    for cell in cells:
        grouped.setdefault((cell.panel, cell.line), []).append(cell)
    return [_curve(figure, panel, line, mine, results) for (panel, line), mine in grouped.items()]


def _curve(figure: Figure, panel: int, line: int, cells: list[Cell], results: Mapping[str, Result]) -> Curve:
    head = figure.figure
    found = {(cell.seed, cell.x): results[key(cell.run)] for cell in cells}
    epsilons = tuple(sorted({result["epsilon"] for result in found.values()}, key=lambda e: (e is None, e or 0)))
    name = figure.line[line].name
    if head.over == "points":
        places = sorted({cell.x for cell in cells}, key=lambda x: x if x is not None else math.nan)
        y = [[_score(figure, found[seed, x], cells[0].run.run.updates) for x in places] for seed in head.seeds]
        return Curve(panel, name, np.array([math.nan if x is None else x for x in places]), np.array(y), epsilons)
    series = [found[seed, None]["series"] for seed in head.seeds]
    if figure.line[line].flat:
        return Curve(panel, name, np.array([math.nan]), np.array([[one[-1][head.y]] for one in series]), epsilons)
    shortest = min(series, key=len)
    x = np.array([point[head.over] for point in shortest])
    y = [np.interp(x, [p[head.over] for p in one], [p[head.y] for p in one]) for one in series]
    return Curve(panel, name, x, np.array(y), epsilons)


def _score(figure: Figure, result: Result, updates: int) -> float:
    head, series = figure.figure, result["series"]
    if head.y != "reached":
        return float(series[-1][head.y])
    assert head.below is not None
    return float(next((point["version"] for point in series if point["loss"] < head.below), updates))


def judge(figure: Figure, found: list[Curve]) -> list[Judged]:
    """Every claim of the figure."""
    return [_judged(figure, claim, found) for claim in figure.claim]


def _judged(figure: Figure, claim: Claim, found: list[Curve]) -> Judged:
    holds: dict[Noise, bool] = {}
    said: dict[Noise, str] = {}
    for noise in ("paper", "rigorous", "none"):
        panels = {
            number
            for number, panel in enumerate(figure.panel)
            if panel.noise == noise and (not claim.panels or panel.title in claim.panels)
        }
        checked = [
            _check(figure, claim, mine)
            for panel in sorted(panels)
            if len(mine := {c.name: c for c in found if c.panel == panel and c.name in claim.lines}) == len(claim.lines)
        ]
        if checked:
            holds[noise] = all(good for good, _ in checked)
            said[noise] = "; ".join(text for _, text in checked)
    return Judged(claim, holds, said, _verdict(holds))


def _verdict(holds: dict[Noise, bool]) -> str:
    if holds.get("rigorous"):
        return HOLDS
    if holds.get("paper"):
        return PAPER_ONLY
    return PLAIN_ONLY if holds.get("none") else FAILS


def _check(figure: Figure, claim: Claim, mine: dict[str, Curve]) -> tuple[bool, str]:
    if claim.kind in ("order", "near"):
        return _compare(figure, claim, mine)
    parts, good = [], True
    for name in claim.lines:
        mean = mine[name].mean
        if claim.kind == "below":
            good = good and bool(mean[0] <= claim.tolerance)
            parts.append(f"{name} {mean[0]:.3g}")
        elif claim.kind != "flat":
            good = good and bool(mean[-1] > mean[0] if claim.kind == "rising" else mean[-1] < mean[0])
            parts.append(f"{name} {mean[0]:.4g} → {mean[-1]:.4g}")
        else:
            spread = float(mean.max() - mean.min())
            good = good and spread <= claim.tolerance
            parts.append(f"{name} spread {spread:.3g}")
    return good, ", ".join(parts)


def _compare(figure: Figure, claim: Claim, mine: dict[str, Curve]) -> tuple[bool, str]:
    sign = -1.0 if figure.figure.less_is_more else 1.0
    places = None if figure.figure.over == "points" else _common([mine[name] for name in claim.lines])
    part = slice(-1, None) if claim.at == "end" else slice(None)
    scores, wide = [], []
    for name in claim.lines:
        mean, half = mine[name].at(places)
        scores.append(float(mean[part].mean()))
        wide.append(float(half[part].mean()))
    if claim.kind == "near":
        good = max(scores) - min(scores) <= claim.tolerance
    else:
        good = all(sign * (a - b) >= -claim.tolerance for a, b in pairwise(scores))
    shown = (f"{name} {score:.4g} ± {half:.2g}" for name, score, half in zip(claim.lines, scores, wide, strict=True))
    return good, ", ".join(shown)


def _common(curves: list[Curve]) -> NDArray[np.float64]:
    """Places on the x axis that all `curves` have reached, evenly: what is compared is the same time or cost."""
    curves = [curve for curve in curves if not math.isnan(curve.x[0])] or curves
    first, last = max(curve.x[0] for curve in curves), min(curve.x[-1] for curve in curves)
    return np.linspace(first, last, 50)
