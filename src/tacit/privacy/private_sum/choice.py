"""The one place that chooses the way of an edge's private sum."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from tacit.datasets import PrivateRows
from tacit.datasets.edge_rows import EdgeRows
from tacit.models import Model
from tacit.models.additive import AdditiveModel
from tacit.models.sums_model import SumsModel
from tacit.privacy.noise.randomness import Random
from tacit.privacy.plan import Plan
from tacit.privacy.private_sum.histogram_sums import HistogramSums
from tacit.privacy.private_sum.judged_sums import JudgedSums
from tacit.privacy.private_sum.plain import Plain
from tacit.privacy.private_sum.probe import require_separate_examples
from tacit.privacy.private_sum.rows_alone import RowsAlone
from tacit.privacy.private_sum.slots import OuterSlots, Slots, UnitSlots
from tacit.privacy.private_sum.way import NotAlone, PrivateSum
from tacit.privacy.private_sum.whole_sums import WholeSums


@dataclass(frozen=True, slots=True)
class Ways:
    """The class of each way; an algorithm's, or an audit's mutant, stands in the place of one.

    alone: None for a role that needs all gradients of a batch, or cannot hide how long a step took,
    as a peer, whose loop answers its neighbours beside it. plain: where the plan has no guarantee.
    of_rows: of the sums of rows themselves. histograms: of an additive model's residuals.
    judged: of looks at held-out rows.
    """

    alone: type[RowsAlone] | None = RowsAlone
    slots: type[Slots] = Slots
    outer: type[Slots] = OuterSlots
    units: type[UnitSlots] = UnitSlots
    plain: type[Plain] = Plain
    of_rows: type[WholeSums] = WholeSums
    histograms: type[HistogramSums] = HistogramSums
    judged: type[JudgedSums] = JudgedSums


WAYS: Final = Ways()


def private_sum(
    rows: PrivateRows,
    model: Model,
    plan: Plan,
    random: Random,
    device: str = "cpu",
    *,
    rows_alone: bool = True,
    ways: Ways = WAYS,
) -> PrivateSum:
    """Return the private sum over `rows` in the way that the plan, the model and the machine allow.

    rows_alone: compute the drawn rows only, each by itself, where that is possible; otherwise a
    batch of a fixed shape in random slots. False: such a batch in any case.
    Raises PrivacyError for more units than the plan's shapes are made for, or than its integers can
    add up, and for a model whose examples depend on each other.
    """
    data = rows.for_edge(model.labels_below)
    plan.check_rows(data.records)
    if not plan.private:
        if data.units is None:
            kind = ways.slots
        else:
            kind = ways.units
        return ways.plain(kind(data, model, plan, random, device))
    if isinstance(model, SumsModel) and plan.mechanism == "discrete_gaussian":
        return ways.of_rows(data, model, plan, random)
    if isinstance(model, AdditiveModel) and _all_rows_exactly(model, plan):
        return ways.histograms(data, model, plan, random)
    try:
        return _alone(data, model, plan, random, device, rows_alone=rows_alone, kind=ways.alone)
    except NotAlone as why:
        kind = _slots(data, model, plan, ways)
        slots = kind(data, model, plan, random, device, str(why))
    require_separate_examples(model, device, slots.shapes())
    return slots


def _all_rows_exactly(model: AdditiveModel, plan: Plan) -> bool:
    """Check whether every release is the exact sum over all rows."""
    exact = plan.mechanism == "discrete_gaussian" and not model.regularization
    return exact and plan.sampling_rate == 1 and not plan.passes


def _alone(
    data: EdgeRows,
    model: Model,
    plan: Plan,
    random: Random,
    device: str,
    *,
    rows_alone: bool,
    kind: type[RowsAlone] | None,
) -> RowsAlone:
    """Return the sum over drawn rows alone.

    The time of such a step grows with the number of rows drawn, which is secret: so messages must
    leave at a time that does not depend on it. Raises NotAlone.
    """
    if not rows_alone:
        raise NotAlone("not asked for drawn rows alone")
    if kind is None:
        raise NotAlone("its role computes a batch of a fixed shape")
    if device != "cpu":
        raise NotAlone(f"it is for the cpu, not for {device}")
    return kind(data, model, plan, random)


def _slots(data: EdgeRows, model: Model, plan: Plan, ways: Ways) -> type[Slots]:
    if data.units is not None:
        return ways.units
    outer = model.linear and not model.regularization
    if outer and plan.mechanism in ("gaussian", "knorm"):
        return ways.outer
    return ways.slots
