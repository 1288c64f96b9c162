"""What a model card has on looks at held-out rows: the model's figures, and what they have cost."""

from __future__ import annotations

from dataclasses import dataclass

from tacit import rounding
from tacit.exported.stored import StoredLook, StoredModel, StoredSummary

_NOT_JUDGED = "this model was not judged at the edges"


@dataclass(frozen=True, slots=True)
class JudgedWords:
    """What a card has on one model. figures: with their intervals; cost: of all looks.

    chosen: by which figure, at which ε, or None where no look has chosen the model.
    """

    figures: str
    cost: str
    chosen: str | None = None

    @classmethod
    def of(cls, summary: StoredSummary, which: str) -> JudgedWords | None:
        """Return the words on `which` model, last, averaged or best; None: its run had no look."""
        if not summary.looks:
            return None
        return cls(_figures(summary, which), _cost(summary), _chosen(summary, which))


def _figures(summary: StoredSummary, which: str) -> str:
    look = _look_of(summary, which)
    if look is None:
        return _NOT_JUDGED
    of = f"look {look.look} of {look.looks}, {look.edges} of {look.of} edges"
    if not look.metrics:
        return f"{of}: the noise hides all figures, and none of them is 0"
    figures = ", ".join(
        f"{name} {each.value:.4g} ({each.low:.4g} to {each.high:.4g})"
        for name, each in look.metrics.items()
    )
    return f"{figures}; 95 % intervals of the noise; {of}{_beyond(look)}"


def _chosen(summary: StoredSummary, which: str) -> str | None:
    best = summary.models.get("best")
    look = None if best is None else _numbered(summary, best.look)
    if which != "best" or look is None or not look.metrics:
        return None
    name, figure = next(iter(look.metrics.items()))
    return (
        f"{name} {figure.value:.4g} ({figure.low:.4g} to {figure.high:.4g}) at look {look.look}, "
        f"of looks that cost ε {look.epsilon:g} together: the latest model that is not surely "
        "worse than the one with the best figure"
    )


def _cost(summary: StoredSummary) -> str:
    last = summary.looks[-1]
    units = f"about {100 * last.held_out:g} % of each edge's units, which it was not trained on"
    sides = summary.privacy.sides
    if sides is None or None in (sides.trained, sides.judged):
        return f"at most {last.epsilon:g} by this run, of {units}; it is in ε"
    assert sides.trained is not None
    assert sides.judged is not None
    return (
        f"{rounding.epsilon(sides.judged)}, of {units}. The others have spent "
        f"{rounding.epsilon(sides.trained)}. A unit is on one side for good, so ε is the larger of "
        "the two, not their sum"
    )


def _look_of(summary: StoredSummary, which: str) -> StoredLook | None:
    if which == "last":
        last = summary.looks[-1]
        return last if last.version == summary.applied else None
    model: StoredModel | None = summary.models.get(which)
    return None if model is None else _numbered(summary, model.look)


def _numbered(summary: StoredSummary, number: int | None) -> StoredLook | None:
    return next((look for look in summary.looks if look.look == number), None)


def _beyond(look: StoredLook) -> str:
    if look.beyond_constant is None:
        return ""
    each = look.beyond_constant
    return (
        f"; better than always the same answer by {each.value:.4g} ({each.low:.4g} to "
        f"{each.high:.4g})"
    )
