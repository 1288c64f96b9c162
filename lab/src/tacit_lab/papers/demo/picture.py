"""The picture of `tacit demo inversion`: a row for each condition."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from torch import Tensor

from tacit_lab.papers.demo.inversion_demo import AttackOutcome, Findings

# Okabe-Ito: recognised, not recognised
SEEN = "#D55E00"
HIDDEN = "#0072B2"
INK = "#222222"
RECOGNISED = 0.5  # mean cosine from which a person names the digits
_TITLE = "What a curious subscriber rebuilds from the pushes of softmax regression"


def draw(path: Path, findings: Findings) -> None:
    """Draw the original images, then what every condition's attack rebuilt, and how well."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt
    from PIL import Image

    counts = sorted({outcome.pushes for outcome in findings.outcomes})
    keys = list(dict.fromkeys(outcome.condition.key for outcome in findings.outcomes))
    by = {(outcome.condition.key, outcome.pushes): outcome for outcome in findings.outcomes}
    width = 2.35 + len(counts) * (0.62 * len(findings.originals) + 1.15)
    figure, axes = plt.subplots(
        len(keys) + 1,
        len(counts),
        figsize=(width, 0.66 * (len(keys) + 1) + 1.05),
        squeeze=False,
        gridspec_kw={
            "left": 2.3 / width,
            "right": 1 - 1.1 / width,
            "wspace": 1.15 / (0.62 * len(findings.originals)),
            "hspace": 0.06,
            "top": 0.9,
            "bottom": 0.055,
        },
    )
    for column, pushes in enumerate(counts):
        _strip(
            axes[0][column], findings.originals, "the victims’ images" if column == 0 else "", INK
        )
        axes[0][column].set_title(
            "one push" if pushes == 1 else f"mean of {pushes} pushes", fontsize=11, pad=6
        )
        for row, key in enumerate(keys, 1):
            outcome = by[key, pushes]
            _strip(
                axes[row][column],
                outcome.images,
                outcome.condition.name if column == 0 else "",
                _colour(outcome),
            )
            _beside(axes[row][column], outcome)
    figure.suptitle(_TITLE, fontsize=13, y=0.985)
    legend = (
        "cos: mean centred cosine to the image, or the nearest of the batch; "
        "by chance 0 (label: 10 %)"
        "    ·    orange: recognisable    ·    blue: hidden"
    )
    figure.text(0.5, 0.015, legend, ha="center", fontsize=8.5, color=INK)
    temporary = path.with_suffix(".tmp.png")
    figure.savefig(temporary, dpi=100)
    plt.close(figure)
    # Grey noise and two colours: a palette takes a third of the bytes.
    with Image.open(temporary) as picture:
        small = picture.convert("RGB").quantize(64)
    small.save(temporary, optimize=True)
    temporary.replace(path)


def _strip(axis: Any, images: Sequence[Tensor], name: str, colour: str) -> None:
    import torch

    gap = torch.ones(images[0].shape[0], 2, dtype=torch.float64)
    parts = [part for image in images for part in (1 - image.to(torch.float64), gap)]
    strip = torch.cat(parts[:-1], dim=1).numpy()  # dark ink on light paper
    axis.imshow(strip, cmap="gray", vmin=0, vmax=1, interpolation="nearest")
    axis.set(xticks=[], yticks=[])
    axis.set_ylabel(
        name, rotation=0, ha="right", va="center", fontsize=9.5, color=colour, labelpad=6
    )
    for side in axis.spines.values():
        side.set(color=colour, linewidth=1.2)


def _beside(axis: Any, outcome: AttackOutcome) -> None:
    label = f"cos {max(0.0, outcome.cosine):.2f}\nlabel {100 * outcome.label_rate:.0f} %"
    axis.text(
        1.02,
        0.5,
        label,
        transform=axis.transAxes,
        va="center",
        fontsize=8.5,
        color=_colour(outcome),
    )


def _colour(outcome: AttackOutcome) -> str:
    if outcome.cosine >= RECOGNISED:
        return SEEN
    return HIDDEN
