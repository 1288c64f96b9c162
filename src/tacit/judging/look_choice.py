"""What follows from looks: which model is kept as the best, and whether more training gains.

Both are functions of noisy sums alone, and cost no ε. Noise hides small differences, so both ask
what the interval of a difference leaves (`look_figures.gain`).

    best     the latest model that is not surely worse than the one with the best figure
    no gain  each of the last two models is surely no better than the best before it by more than
             WORTH, and it is surely better than always the same answer

So where the noise is large the last model is kept, and the run goes on to its end.
"""

from __future__ import annotations

from collections.abc import Sequence

from tacit.judging.look_figures import LookSums, beyond_constant, figures, gain

WORTH = 0.01  # of the accuracy, or as a part of the RMSE: a smaller gain is worth no ε
_LAST = 2  # looks that show no gain, one after the other


def best(looks: Sequence[LookSums]) -> int | None:
    """Return the place of the look whose model is kept as the best; None: noise hides all."""
    top = top_of(looks)
    if top is None:
        return None
    for place in range(len(looks) - 1, top, -1):
        difference = gain(looks[place], looks[top])
        if difference is not None and difference.high >= 0:
            return place
    return top


def top_of(looks: Sequence[LookSums]) -> int | None:
    """Return the place of the look with the best figure; None: noise hides all."""
    top: int | None = None
    for place, look in enumerate(looks):
        if not look.visible:
            continue
        difference = None if top is None else gain(look, looks[top])
        if difference is None or difference.value >= 0:
            top = place
    return top


def no_gain(looks: Sequence[LookSums]) -> bool:
    """Check whether the latest looks surely show no gain that is worth more training."""
    if len(looks) <= _LAST:
        return False
    beyond = beyond_constant(looks[-1])
    if beyond is None or beyond.low <= 0:
        return False
    return all(_flat(looks[: len(looks) - back]) for back in range(_LAST))


def _flat(looks: Sequence[LookSums]) -> bool:
    """Check whether the latest look gains surely less than WORTH over the best before it."""
    before = top_of(looks[:-1])
    if before is None:
        return False
    difference = gain(looks[-1], looks[before])
    return difference is not None and difference.high < WORTH * _scale(looks[before])


def _scale(look: LookSums) -> float:
    """Return what a gain is a part of: 1 of an accuracy, else the error itself."""
    return 1.0 if look.sheet.bounds is None else figures(look)["rmse"].value
