"""The privacy plans of a run's workers, from its definition and nothing that workers say."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from tacit.privacy.accounting import calibrate
from tacit.privacy.release import Plan


@dataclass(frozen=True, slots=True)
class Plans:
    """Every worker's budget and plan, by its number or its name.

    default: the plan of a worker without an ε of its own. Workers that the run file does not count
    have it too. rows: n_public, the records that a worker is taken to have. pushes: how many the
    budget must cover if noise is calibrated for them, None if the definition states the noise.
    epsilons: ε_k of the workers k that have their own. workers: how many the data is divided among.
    own_rows: n_public that a member of a federation states for itself, None for `rows`. Its q
    follows, and its z stays the run's, which the server counts on.
    """

    default: Plan
    rows: int
    pushes: int | None
    epsilons: tuple[float, ...]
    workers: int
    own_rows: int | None = None
    _calibrated: dict[float, float] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )  # ε to z

    def epsilon(self, number: int) -> float:
        """Return ε_k of worker `number`: its budget for all its pushes together."""
        if number < len(self.epsilons):
            return self.epsilons[number]
        return self.default.epsilon

    def number(self, name: str) -> int:
        """Return the number of the worker called `name`; an unknown one has no ε of its own."""
        number = name.removeprefix("edge-")
        other = len(self.epsilons)
        if number.isdecimal() and len(number) < 10:
            return min(int(number), other)
        return other

    def budget(self, name: str) -> float:
        """Return ε_k of the worker called `name`."""
        return self.epsilon(self.number(name))

    def plan(self, number: int, dealt: int = 0) -> Plan:
        """Return the plan of worker `number`, with its own ε_k and a z calibrated for it.

        dealt: how many rows of a published data set it has, a public number, which the shapes of
        its batches are made for. 0: not known; then they are made for a quarter more than the
        public size.
        """
        plan = replace(self.default, epsilon=self.epsilon(number), rows_max=dealt)
        if self.pushes is not None:
            plan = replace(plan, noise_multiplier=self._multiplier(plan, self.pushes))
        if self.own_rows is None or self.own_rows == self.rows:
            return plan
        return replace(plan, sampling_rate=min(1.0, plan.batch / self.own_rows))

    def named(self, name: str) -> Plan:
        """Return the plan of the worker called `name`."""
        return self.plan(self.number(name))

    def _multiplier(self, plan: Plan, pushes: int) -> float:
        """Return z, calibrated once for every ε, since that takes a second."""
        if plan.epsilon not in self._calibrated:
            multiplier = calibrate(
                plan.epsilon, plan.delta, pushes, plan.charged_rate, plan.mechanism
            )
            self._calibrated[plan.epsilon] = multiplier
        return self._calibrated[plan.epsilon]

    def different(self) -> list[Plan]:
        """Return the different plans of all workers: all with no ε of their own share one."""
        return [self.plan(number) for number in range(min(self.workers, len(self.epsilons) + 1))]
