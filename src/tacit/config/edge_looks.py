"""What a run that judges at its edges has besides: its looks, and what each may cost."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from tacit.config.algorithm_contract import Sections
from tacit.datasets import Source
from tacit.datasets.target import Target
from tacit.judging.look_sheet import LookSheet, NumberBounds
from tacit.privacy.accounting import calibrate
from tacit.privacy.plan import Plan

_MECHANISM: Final = "discrete_gaussian"
_REACH = 0.25  # of a number's bounds: the largest error that counts
_REACH_OF_SCALE = 2.0  # of a number's public scale


@dataclass(frozen=True, slots=True)
class Judging:
    """The looks of a run. held_out: the share of an edge's units. epsilon: of all its looks.

    moments: the versions after which there is a look, the last of them the run's end. sheet: what
    is counted of a row. wait: seconds that the last look waits for edges.
    """

    held_out: float
    epsilon: float
    delta: float
    moments: tuple[int, ...]
    sheet: LookSheet
    wait: float

    @classmethod
    def of(cls, run: Sections, source: Source) -> Judging:
        """Return the looks that a run file states. Raises ConfigError for a target without any."""
        evaluation = run.evaluation
        updates, looks = run.run.updates, evaluation.looks
        moments = tuple(-(-updates * number // looks) for number in range(1, looks + 1))
        target = source.target
        bounds = _bounds(run, target) if target.kind == "number" else None
        return cls(
            evaluation.held_out, evaluation.epsilon, run.privacy.delta, moments,
            LookSheet.of(target, bounds), run.edges.grace,
        )  # fmt: skip

    @property
    def looks(self) -> int:
        """How many looks there are."""
        return len(self.moments)

    def larger(self, budget: Callable[[str], float]) -> Callable[[str], float]:
        """Return the larger of an edge's `budget` for training, by its name, and that of looks."""
        return lambda edge: max(budget(edge), self.epsilon)

    def plan(self, most: int = 0) -> Plan:
        """Return the plan of an edge's looks. most: the most units that the edge may have."""
        z = calibrate(self.epsilon, self.delta, self.looks, 1.0, _MECHANISM)
        budget = self.epsilon, self.delta
        return Plan(_MECHANISM, 1.0, 1.0, z, 1.0, 1.0, *budget, rows_max=most)


def _bounds(run: Sections, target: Target) -> NumberBounds:
    """Return what is public of a number, in the scale of y: low + span·y is the file's."""
    columns: dict[str, Any] = getattr(run.data, "columns", {})
    column = columns.get(str(getattr(run.data, "target", "")))
    low, high, reach = 0.0, 1.0, _REACH
    if column is not None and getattr(column, "center", None) is not None:
        low = (column.low - target.low) / target.span
        high = (column.high - target.low) / target.span
        reach = _REACH_OF_SCALE
    stated = run.evaluation.largest_error
    if stated is not None:
        reach = stated / abs(target.span)
    return NumberBounds(low, high, reach)
