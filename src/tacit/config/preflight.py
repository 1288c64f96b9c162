"""Warnings that a run may not learn, from its definition alone, before it costs any ε."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from tacit.config.definition import Definition
from tacit.config.edge_looks import Judging
from tacit.config.own_data import OwnData
from tacit.models.stopping import can_end
from tacit.rounding import beside

_DROWNED = 10.0  # warn below this ratio of all updates' signal to their noise
_HIDDEN = 0.1  # warn where the interval of an accuracy is wider than so to either side
_LOOKS_TO_STOP = 4
_SLACK = 1.05  # of the updates that budgets pay for, so that most edges judge the last model
_SHORT_PATH = 1.0  # warn below this length of all steps together


def warnings(definition: Definition[Any], parameters: int) -> Iterator[str]:
    """Yield a sentence for each thing that its author may not have meant or that hinders learning.

    parameters: how many the model has. Raises PrivacyError where no noise keeps to ε.
    """
    if unread := definition.algorithm.unread():
        yield f"{definition.algorithm.name} does not use {', '.join(unread)}"
    if definition.promise.private and definition.model.control_flow == "trusted":
        yield (
            "model.control_flow=trusted: the module may take other steps for other rows, so the "
            "times of pushes may tell of a row, which ε does not cover"
        )
    for front in definition.data.trusted_fronts:
        yield (
            f"data.features.front={front}: control_flow=trusted: its code may run on rows, and "
            "that it keeps them apart is tried, not known"
        )
    if definition.run.stop != "never":
        yield from _stop(definition)
    if definition.promise.private:
        yield from _privacy(definition, parameters)
    if definition.judging is not None:
        yield from _looks(definition, definition.judging)


def _looks(definition: Definition[Any], judging: Judging) -> Iterator[str]:
    """Warn where noise hides how good the model is, or few edges are left to judge the last."""
    edges = definition.edges.count
    updates, paid = definition.run.updates, _paid(definition)
    if paid is not None and paid < _SLACK * updates:
        pushes = math.ceil(_SLACK * updates / edges)
        yield (
            f"the budgets pay for {paid} of {updates} updates, and an edge whose budget is spent "
            f"judges no more: the last looks are of few edges; privacy.pushes = {pushes}"
        )
    share = judging.held_out
    units = definition.plans.rows * share / (1 - share) * edges
    part = judging.sheet.parts[next(iter(judging.sheet.parts))]
    noise = judging.plan().noise_multiplier * math.sqrt(edges) / part.scale
    half = 1.96 * noise / units
    if half > _HIDDEN:
        yield (
            f"evaluation.epsilon={judging.epsilon:g}: the noise of a look hides what it shows: an "
            f"accuracy of about {units:.0f} held-out units would be known to "
            f"±{100 * min(half, 1.0):.0f} points; more units, a larger epsilon or fewer looks help"
        )


def _stop(definition: Definition[Any]) -> Iterator[str]:
    """Warn where `run.stop` can end nothing, so that the whole budget will be spent."""
    if isinstance(definition.data, OwnData) and definition.data.test is None:
        if definition.judging is not None:
            if definition.judging.looks < _LOOKS_TO_STOP:
                yield (
                    f'run.stop="{definition.run.stop}": can end nothing by '
                    f"evaluation.looks={definition.judging.looks}; {_LOOKS_TO_STOP} are needed, "
                    "and ten are good"
                )
            return
        yield (
            f'run.stop="{definition.run.stop}": looks at a public test set, and there is none '
            "(data.test); the run goes to its end"
        )
        return
    horizon = definition.run.updates
    last = min(horizon, _paid(definition) or horizon)
    every = definition.evaluation.every
    if can_end(horizon, every, last):
        return
    if can_end(last, every, last):
        why = f"the budgets pay for {last} of {horizon} updates; set run.updates = {last}"
    else:
        why = (
            f"evaluation.every={every} gives {last // every} evaluations in {last} updates, and "
            f"forty are needed; a hundred are good, evaluation.every = {max(1, last // 100)}"
        )
    yield f'run.stop="{definition.run.stop}": can end nothing: {why}'


def _paid(definition: Definition[Any]) -> int | None:
    """Return how many versions the budgets pay for; None: that is not known."""
    plan = definition.plans.default
    return definition.traits.capacity(
        definition.plans.pushes, plan.noise_at, definition.edges.count
    )


def _privacy(definition: Definition[Any], parameters: int) -> Iterator[str]:
    plan = definition.plans.default
    rows = definition.plans.rows
    traits = definition.traits
    updates = definition.run.updates
    batch = definition.privacy.batch
    if plan.delta * rows > 1:
        yield (
            f"δ = {plan.delta:g} is above 1/{rows}, with {rows} records an edge: it may "
            "give one away whole"
        )
    hindered = definition.algorithm.hindered(plan)
    if hindered is not None:
        yield from hindered
        return
    paid = _paid(definition)
    versions = min(updates, paid or updates)
    yield from _steps(definition, versions * traits.steps, parameters)
    # Calibrated noise makes up for a large batch; noise that is given does not.
    noise_is_given = definition.plans.pushes is None
    if noise_is_given and batch / rows > 0.5:
        yield (
            f"privacy.batch={batch:g} is over half of the {rows} rows of an edge: ε goes quickly"
        )
    if paid is not None and paid < updates:
        yield f"the budgets pay for {paid} of {updates} {traits.counted}; the run ends there"


def _steps(definition: Definition[Any], steps: int, parameters: int) -> Iterator[str]:
    """Warn where `steps` noisy gradient steps, one after another, teach the model too little."""
    z = definition.plans.plan(0).noise_multiplier
    batch = definition.privacy.batch
    signal = batch * math.sqrt(steps * definition.traits.uploads) / z / parameters**0.5
    if signal < _DROWNED:
        yield (
            "the noise may drown what is learnt: batch·√updates / (z·√parameters) is "
            f"{beside(signal, _DROWNED, 2)}, below {_DROWNED:g}; a smaller model, a larger batch, "
            "more rows or a larger ε help"
        )
    rate = getattr(definition.algorithm, "learning_rate", None)
    clip = definition.privacy.clip
    if rate is not None and clip is not None and rate * clip * steps < _SHORT_PATH:
        yield (
            f"the model will hardly move: learning_rate·clip·updates is "
            f"{rate * clip * steps:.2g}; raise algorithm.learning_rate or privacy.clip"
        )
