"""Draws one figure as a PNG.

There is a panel for each pair of axes, with means and 95 % bands, in colours that are safe for
colour-blind readers.
"""

from __future__ import annotations

import io
from typing import Any

import numpy as np

from tacit_lab.papers.figures.figure_file import Figure
from tacit_lab.papers.figures.verdicts import Curve

# Okabe-Ito, and a marker each: readable without colour, too.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
MARKERS = ("o", "s", "^", "D", "v", "P", "X")
TITLES = {
    "paper": "the paper's noise, not private",
    "rigorous": "rigorous noise",
    "none": "no noise",
}
COLUMNS = 3


def png(figure: Figure, curves: list[Curve]) -> bytes:
    """Return the picture of `curves` as PNG. The same curves always give the same bytes."""
    import matplotlib as mpl

    mpl.use("Agg")
    mpl.rcParams["text.parse_math"] = False  # a $ in a title is a $
    from matplotlib import pyplot as plt

    panels = sorted({curve.panel for curve in curves})
    rows = -(-len(panels) // COLUMNS)
    columns = min(COLUMNS, len(panels))
    drawn, axes = plt.subplots(
        rows, columns, figsize=(4.2 * columns, 3.3 * rows), layout="constrained", squeeze=False
    )
    for place, axis in enumerate(axes.flat):
        if place >= len(panels):
            axis.set_visible(False)
            continue
        _panel(
            axis, figure, panels[place], [curve for curve in curves if curve.panel == panels[place]]
        )
    content = io.BytesIO()
    drawn.savefig(content, dpi=110, metadata={"Software": None})  # the same bytes whoever draws it
    plt.close(drawn)
    return content.getvalue()


def _panel(axis: Any, figure: Figure, panel: int, curves: list[Curve]) -> None:
    head = figure.figure
    about = figure.panel[panel]
    names = [line.name for line in figure.line]
    for curve in curves:
        number = names.index(curve.name) % len(COLOURS)
        colour = COLOURS[number]
        mean = curve.mean
        half = curve.half_width
        if np.isnan(curve.x).any():  # one value, whatever x is
            axis.axhline(mean[0], color=colour, linestyle="--", label=curve.name)
            axis.axhspan(
                mean[0] - half[0], mean[0] + half[0], color=colour, alpha=0.15, linewidth=0
            )
            continue
        axis.plot(
            curve.x, mean, color=colour, marker=MARKERS[number], markersize=4, label=curve.name
        )
        axis.fill_between(curve.x, mean - half, mean + half, color=colour, alpha=0.2, linewidth=0)
    if head.logarithmic:
        axis.set_xscale("log")
        _plain(axis.xaxis)
    if head.y in ("accuracy", "auc"):  # a band may be wider than what can be
        low, high = axis.get_ylim()
        axis.set_ylim(max(low, 0.0), min(high, 1.0))
    if head.y == "perplexity":  # which begins at the size of the vocabulary
        axis.set_yscale("log")
        _plain(axis.yaxis)
    axis.set(xlabel=head.x, ylabel=head.label)
    axis.set_title(f"{about.title}: {TITLES[about.noise]}", fontsize=9)
    axis.grid(alpha=0.3)
    axis.legend(fontsize=8)


def _plain(axis: Any) -> None:
    """Put plain numbers at the ticks of a logarithmic axis.

    matplotlib's own labels are formulas, which would be shown as their source.
    """
    from matplotlib.ticker import LogFormatter, StrMethodFormatter

    axis.set_major_formatter(StrMethodFormatter("{x:g}"))
    axis.set_minor_formatter(LogFormatter(labelOnlyBase=False, minor_thresholds=(1, 0.4)))
