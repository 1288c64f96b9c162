"""plot.png: how a run went, in one picture that shows what matters.

Its axes begin where the first evaluation is, not at zero; what moves in steps is drawn as steps.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tacit import rounding
from tacit.shown import printable

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Okabe-Ito: safe for colour-blind readers
BLUE = "#0072B2"
ORANGE = "#D55E00"
GREEN = "#009E73"
GREY = "#767676"
_LOG_FROM = 20.0  # the largest value over the smallest from which a scale is logarithmic
_NAME = 30  # characters of a class's name
_MOST_BARS = 30  # edges that are drawn apart
Series = list[dict[str, Any]]


def plot(path: Path, status: dict[str, Any], series: Series, classes: Sequence[str] = ()) -> None:
    """Draw the test results, the clip norm, ε against budgets and calibration into one file."""
    drawn(status, series, classes).savefig(path, dpi=120)


def drawn(status: dict[str, Any], series: Series, classes: Sequence[str] = ()) -> Figure:
    """Return the same picture as a matplotlib figure, to which nothing else refers.

    classes: the names of a target's classes, if it has some.
    """
    from matplotlib.figure import Figure

    calibration = status.get("calibration")
    parts = 4
    if calibration is not None:
        parts = 5
    figure = Figure(figsize=(3.75 * parts, 3.6), layout="constrained")
    axes = figure.subplots(1, parts)
    if calibration is not None:
        _reliability(axes[4], calibration, _whose_probability(classes))
    if looks := _seen(status, series):
        _judged(axes[0], looks)
    else:
        _measured(axes[0], series)
    _line(axes[1], series, "clip", ORANGE, "clip norm C", drawstyle="steps-post", marker="")
    axes[1].set_ylim(bottom=0)
    _spent(axes[2], status, series)
    _edges(axes[3], status)
    figure.suptitle(_title(status))
    return figure


def on_test(accuracy: float | None, loss: float | None) -> str:
    """Return the model's test result in words: its accuracy, its loss, or that there is none."""
    if accuracy is not None:
        return f"{100 * accuracy:.2f} %"
    if loss is None:
        return "not evaluated"
    return f"loss {loss:.4g}"


def _measured(axis: Any, series: Series) -> None:
    """Draw the accuracy, or a number's first metric, or the loss; logarithmic where that helps."""
    if all(point["accuracy"] is not None for point in series):
        percent = [point | {"accuracy": 100 * point["accuracy"]} for point in series]
        _line(axis, percent, "accuracy", BLUE, "test accuracy, %")
        return
    names = [*(series[0].get("metrics") or {})]
    points = [
        point | {"shown": point["metrics"][names[0]] if names else point["loss"]}
        for point in series
    ]
    _line(axis, points, "shown", BLUE, f"test {names[0] if names else 'loss'}")
    values = [point["shown"] for point in points if point["shown"] is not None]
    if values and min(values) > 0 and max(values) / min(values) > _LOG_FROM:
        axis.set_yscale("log")


def _seen(status: dict[str, Any], series: Series) -> list[dict[str, Any]]:
    """Return the looks with a figure, where no public test set has one; the others draw nothing."""
    if series:
        return []
    return [look for look in status.get("looks", []) if look["metrics"]]


def _judged(axis: Any, looks: list[dict[str, Any]]) -> None:
    """Draw the first figure of each look, with the interval that the noise leaves."""
    name = next(iter(looks[0]["metrics"]))
    seen = [look for look in looks if name in look["metrics"]]
    figures = [look["metrics"][name] for look in seen]
    below = [each["value"] - each["low"] for each in figures]
    above = [each["high"] - each["value"] for each in figures]
    versions = [look["version"] for look in seen]
    values = [each["value"] for each in figures]
    axis.errorbar(versions, values, (below, above), color=BLUE, marker="o", markersize=3, capsize=3)
    axis.set(xlabel="updates applied", ylabel=f"{name}, judged at the edges (95 %)")
    axis.grid(alpha=0.3)


def _spent(axis: Any, status: dict[str, Any], series: Series) -> None:
    """Draw ε of the edge that spent most, against the largest budget.

    A run without a guarantee shows its staleness instead.
    """
    if any(point["epsilon"] is None for point in series):
        _line(axis, series, "staleness", GREEN, "staleness, mean")
        return
    _line(axis, _least_bounds(series), "epsilon", GREEN, "ε spent, at most: largest edge (PLD)")
    budgets = [edge["budget"] for edge in status["privacy"]["edges"].values()]
    if limits := [budget for budget in budgets if budget is not None]:
        axis.axhline(max(limits), color=GREY, linestyle="--", linewidth=1)
        axis.text(
            0.02,
            max(limits),
            "budget",
            color=GREY,
            va="bottom",
            transform=axis.get_yaxis_transform(),
        )
        axis.set_ylim(top=1.12 * max(limits))
    axis.set_ylim(bottom=0)


def _least_bounds(series: Series) -> Series:
    """Return the points with the least ε that they or later ones allow, so that it never falls.

    What was spent only grows, so a later upper bound holds earlier, too. Before the first update no
    edge has told what it spent in earlier runs, so that point is left out.
    """
    least = math.inf
    points = []
    for point in reversed([each for each in series if each["version"]] or series):
        least = min(least, point["epsilon"])
        points.append(point | {"epsilon": least})
    return points[::-1]


def _whose_probability(classes: Sequence[str]) -> str:
    """Return what calibration is of: the second of two classes, or the guess among more."""
    if len(classes) == 2:
        return f"p({printable(classes[1], _NAME)})"
    return "p of the likeliest class"


def _reliability(axis: Any, calibration: dict[str, Any], of: str) -> None:
    """Draw how often what the model says comes true; a dot's area is the rows of its bin."""
    bins = calibration["bins"]
    most = max(each["rows"] for each in bins)
    axis.plot([0, 100], [0, 100], color=GREY, linestyle="--", linewidth=1)
    predicted = [100 * each["predicted"] for each in bins]
    observed = [100 * each["observed"] for each in bins]
    areas = [10 + 150 * each["rows"] / most for each in bins]
    axis.plot(predicted, observed, color=BLUE, linewidth=1)
    axis.scatter(predicted, observed, s=areas, color=BLUE)
    label = f"{of} that the model gives, %".replace("$", r"\$")  # no formula
    axis.set(xlabel=label, ylabel="how often it is so, %")
    axis.grid(alpha=0.3)


def _edges(axis: Any, status: dict[str, Any]) -> None:
    """Draw ε of each edge of its budget; of many edges, how many have spent how much."""
    edges = status["privacy"]["edges"]
    shares = {
        name: edge["epsilon_pld"] / edge["budget"]
        for name, edge in edges.items()
        if edge["epsilon_pld"] is not None and edge["budget"]
    }
    axis.grid(alpha=0.3)
    if len(shares) > _MOST_BARS:
        axis.hist([100 * share for share in shares.values()], bins=20, color=GREEN)
        axis.set(xlabel="ε spent, % of its budget", ylabel="edges")
        return
    names = sorted(shares, reverse=True)
    axis.barh(names, [100 * shares[name] for name in names], color=GREEN)
    axis.set(xlabel="ε spent, % of its budget", xlim=(0, 100 * max(1.0, *shares.values(), 0.0)))


def _line(axis: Any, series: Series, key: str, colour: str, label: str, **more: Any) -> None:
    style = {"marker": "o", "markersize": 3} | more
    versions = [point["version"] for point in series]
    axis.plot(versions, [point[key] for point in series], color=colour, **style)
    axis.set(xlabel="updates applied", ylabel=label)
    axis.grid(alpha=0.3)


def _score(status: dict[str, Any]) -> str:
    """Return the result on a public test set; where there is none, that of the last look."""
    measured = on_test(status["test_accuracy"], status["test_loss"])
    judged = status.get("judged")
    if judged is None or status["test_loss"] is not None:
        return measured
    if not judged["metrics"]:
        return "judged: hidden by noise"
    name, figure = next(iter(judged["metrics"].items()))
    return f"{name} {figure['low']:.3g} to {figure['high']:.3g} (judged at the edges)"


def _title(status: dict[str, Any]) -> str:
    privacy = status["privacy"]
    epsilon = privacy["epsilon"]
    if epsilon is not None:
        claim = f"ε = {rounding.epsilon(epsilon)}, δ = {privacy['delta']:g}"
    else:
        claim = "not private"
    score = _score(status)
    what = " · ".join(str(status[key]) for key in ("algorithm", "dataset", "model"))
    return f"{what} · {status['edges']} edges · {score} · {claim}"
