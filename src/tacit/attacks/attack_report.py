"""The report on the attacks on one model, format 1 (docs/verify.md): what was measured, and bounds.

`AttackReport.faults` recomputes from the report alone all that follows from ε and δ.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Annotated, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from tacit.attacks.trade_off import TradeOff, epsilon_shown
from tacit.digests import Sha256
from tacit.errors import DataError
from tacit.shown import printable

StatedShare = Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)]
StatedCount = Annotated[int, Field(ge=0)]
StatedEpsilon = Annotated[float, Field(ge=0, allow_inf_nan=False)]
StatedName = Annotated[str, Field(min_length=1, max_length=100)]
AttackedKind = Literal["public", "synthetic", "owner"]
AttackName = Literal["loss", "calibrated loss", "likelihood ratio"]


class ReportPart(BaseModel):
    """A part of the report. An unknown key is refused."""

    model_config = ConfigDict(strict=True, frozen=True, extra="forbid")


class ShareEstimate(ReportPart):
    """A share, and the ends of its 95 % interval."""

    value: StatedShare
    low: StatedShare
    high: StatedShare


class HitRate(ReportPart):
    """Hits at few false alarms.

    rate: the share of others that may be called members (FPR). alarms: how many were. alarms_low,
    alarms_high: the 95 % interval of the true share. hits: how many members were called so, and
    share: of all of them (TPR). most: what ε and δ allow at alarms_high; None: no guarantee.
    """

    rate: StatedShare
    alarms: StatedCount
    alarms_low: StatedShare
    alarms_high: StatedShare
    hits: StatedCount
    share: ShareEstimate
    most: StatedShare | None = None


class AttackFigures(ReportPart):
    """One attack. epsilon_shown: the ε that its AUC alone refutes. beyond: whether a bound is."""

    name: AttackName
    auc: ShareEstimate
    rates: list[HitRate]
    epsilon_shown: StatedEpsilon = 0.0
    beyond: bool = False

    def beside(self, bound: TradeOff | None, delta: float) -> Self:
        """Return these figures with all that follows from the bound at δ."""
        rates = [
            rate.model_copy(
                update={"most": None if bound is None else bound.most_hits(rate.alarms_high)}
            )
            for rate in self.rates
        ]
        beyond = bound is not None and (
            self.auc.low > bound.most_auc()
            or any(rate.most is not None and rate.share.low > rate.most for rate in rates)
        )
        shown = epsilon_shown(self.auc.low, delta)
        return self.model_copy(update={"rates": rates, "epsilon_shown": shown, "beyond": beyond})


class AttributeFigures(ReportPart):
    """How often a column's value was guessed, of members and of others.

    values: how many it may have. most: what ε and δ allow of members, at others.high; None: no
    guarantee. Only what members have above others is a leak: the rest a model is made to learn.
    """

    column: StatedName
    values: Annotated[int, Field(ge=2)]
    members: ShareEstimate
    others: ShareEstimate
    most: StatedShare | None = None
    beyond: bool = False

    def beside(self, bound: TradeOff | None) -> Self:
        """Return these figures with what follows from the bound."""
        most = None if bound is None else bound.most_hits(self.others.high)
        beyond = most is not None and self.members.low > most
        return self.model_copy(update={"most": most, "beyond": beyond})


class MostReached(ReportPart):
    """The most of any attack: its AUC, and its hits at each rate of false alarms."""

    auc: StatedShare
    hits: dict[str, StatedShare]


class AttackReport(ReportPart):
    """All attacks on one model.

    run, definition, model_sha256, which: as in bundle.json. rows: whose the attacked rows are.
    rows_of: in words. trained: whether the attacked model is this one, or one that the simulator
    has trained by the same definition on other rows. unit: what is a member. epsilon: of the run at
    delta, or None without a guarantee. trained_epsilon: of the training that was attacked. shadows:
    further trainings that the attack has learnt from.
    """

    format: Literal[1] = 1
    run: Annotated[str, Field(min_length=1, max_length=64)]
    definition: Sha256
    model_sha256: Sha256
    which: Literal["last", "averaged", "best"]
    rows: AttackedKind
    rows_of: StatedName
    trained: Literal["this model", "a twin"]
    unit: StatedName
    members: Annotated[int, Field(ge=2)]
    others: Annotated[int, Field(ge=2)]
    shadows: StatedCount
    epsilon: StatedEpsilon | None
    trained_epsilon: StatedEpsilon | None
    delta: StatedShare
    bounds: MostReached | None = None
    attacks: Annotated[list[AttackFigures], Field(min_length=1)]
    attributes: list[AttributeFigures] = []
    tacit_version: Annotated[str, Field(max_length=40)]
    at: Annotated[str, Field(pattern=r"^\d{4}-\d\d-\d\d$")]

    @property
    def bound(self) -> TradeOff | None:
        """The guarantee of the training that was attacked, no better than the run's."""
        if self.epsilon is None or self.trained_epsilon is None:
            return None
        return TradeOff(max(self.epsilon, self.trained_epsilon), self.delta)

    @property
    def beyond(self) -> list[str]:
        """The attacks, and columns, whose whole interval is beyond the bound."""
        return [each.name for each in self.attacks if each.beyond] + [
            each.column for each in self.attributes if each.beyond
        ]

    def beside_its_bound(self) -> Self:
        """Return the report with all that follows from ε and δ."""
        bound = self.bound
        rates = {f"{rate.rate:g}": rate.rate for each in self.attacks for rate in each.rates}
        bounds = None
        if bound is not None:
            hits = {name: bound.most_hits(rate) for name, rate in rates.items()}
            bounds = MostReached(auc=bound.most_auc(), hits=hits)
        attacks = [each.beside(bound, self.delta) for each in self.attacks]
        attributes = [each.beside(bound) for each in self.attributes]
        return self.model_copy(
            update={"bounds": bounds, "attacks": attacks, "attributes": attributes}
        )

    def faults(self) -> Iterator[str]:
        """Yield what does not follow from ε, δ and what was measured."""
        derived = self.beside_its_bound()
        if not _alike(self.bounds, derived.bounds):
            yield "its bounds do not follow from its ε and δ"
        for each, other in zip(self.attacks, derived.attacks, strict=True):
            if not _alike(each, other):
                yield f"{each.name}: does not stand as measured beside its bound"
        for column, again in zip(self.attributes, derived.attributes, strict=True):
            if not _alike(column, again):
                yield f"{printable(column.column, 80)}: does not stand as measured beside its bound"


def _alike(first: ReportPart | None, second: ReportPart | None) -> bool:
    """Check whether two parts have the same numbers, as far as machines agree."""
    if first is None or second is None:
        return first is second
    return _same(first.model_dump(), second.model_dump())


def _same(first: object, second: object) -> bool:
    if isinstance(first, dict) and isinstance(second, dict):
        return first.keys() == second.keys() and all(
            _same(first[key], second[key]) for key in first
        )
    if isinstance(first, list) and isinstance(second, list):
        return len(first) == len(second) and all(map(_same, first, second))
    if type(first) is float and type(second) is float:
        return math.isclose(first, second, rel_tol=1e-6, abs_tol=1e-9)
    return first == second


def read_report(content: bytes, name: str) -> AttackReport:
    """Return the report in a file's content. Raises DataError, which names the file."""
    try:
        return AttackReport.model_validate_json(content)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        field = ".".join(map(str, first["loc"]))
        raise DataError(
            f"{name}: is no attack report: {printable(field, 80)}: {first['msg']}"
        ) from error
