"""The privacy plans of a run's workers:

what its definition says of them, whatever they say of themselves.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from tacit.privacy.accounting import calibrate
from tacit.privacy.release import Plan


@dataclass(frozen=True, slots=True)
class Plans:
    """Every worker's budget and plan, by its number or its name.

    like: the plan of a worker without an ε of its own, where the definition states its noise.
    pushes: what each budget must cover, where noise is calibrated for that; None: it is not. own:
    ε_k of worker k, where it has one. workers: how many the run deals its data to. Whom the run
    does not know has the plan of one without an ε of its own.
    """

    like: Plan
    pushes: int | None
    own: tuple[float, ...]
    workers: int
    _calibrated: dict[float, float] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )  # ε to z

    def epsilon(self, number: int) -> float:
        """ε_k of worker `number`: its budget, for all its pushes together."""
        return self.own[number] if number < len(self.own) else self.like.epsilon

    def number(self, name: str) -> int:
        """The number of the worker called `name`."""
        number, other = name.removeprefix("edge-"), len(self.own)
        return min(int(number), other) if number.isdecimal() and len(number) < 10 else other

    def budget(self, name: str) -> float:
        """ε_k of the worker called `name`."""
        return self.epsilon(self.number(name))

    def plan(self, number: int, dealt: int = 0) -> Plan:
        """The plan of worker `number`: its own ε_k, one z calibrated for it.

        dealt: how many rows the dealing of a published data set gives it, a public number, for
        which the shapes of its batches are made; 0: not known, so for a quarter more than the
        public size.
        """
        plan = replace(self.like, epsilon=self.epsilon(number), rows_max=dealt)
        return (
            plan
            if self.pushes is None
            else replace(plan, noise_multiplier=self._multiplier(plan, self.pushes))
        )

    def named(self, name: str) -> Plan:
        """The plan of the worker called `name`."""
        return self.plan(self.number(name))

    def _multiplier(self, plan: Plan, pushes: int) -> float:
        """z; finding it takes a second, so once for every ε."""
        if plan.epsilon not in self._calibrated:
            found = calibrate(plan.epsilon, plan.delta, pushes, plan.sampling_rate, plan.mechanism)
            self._calibrated[plan.epsilon] = found
        return self._calibrated[plan.epsilon]

    def different(self) -> list[Plan]:
        """The plan of every worker, spare ones too; those with no ε of their own once."""
        return [self.plan(number) for number in range(min(self.workers, len(self.own) + 1))]
