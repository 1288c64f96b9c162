"""The audit's test C: which rows are in a message, how often, and where they stand in the batch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from scipy import stats
from torch import Tensor

from tacit.audit.message_attacks import compared
from tacit.audit.own_modules import RecurrentUnit, model_of
from tacit.audit.statistics import SHARE, Finding, ScoreCounts, ScoreValues, sampler_p_value
from tacit.audit.subject import CLIP, Randomness, Subject
from tacit.audit.worlds import MessageSource, World
from tacit.datasets import Dataset
from tacit.models import Layered, Model, build
from tacit.models.vectors import example_gradients

SAMPLER_ROWS = 40
SAMPLER_RATE = 0.25
SAMPLER_PUSHES = 600
PLACE_ROWS = 21
PLACE_SLOTS = 32
CROWD = 4000
CROWD_INPUTS = 131
CROWD_Z = 2000.0
# z with noise far below one record's share, so that the wire shows who was in the batch.
_VISIBLE = {"knorm": 0.005}
_VISIBLE_IN_PARTS = {"knorm": 0.0004}  # in 16,342 dimensions
# Drawn rows are computed in parts of as many as a core's cache holds: here of eight.
IN_PARTS = Layered("audit", (1, 1, SAMPLER_ROWS), 2, hidden=(380,))
Read = Callable[[Tensor, int], ScoreValues]


# -- who was drawn ---------------------------------------------------------------------------------


def sampler(subject: Subject, source: Randomness, pushes: int = SAMPLER_PUSHES) -> list[Finding]:
    """Check that each row is in messages, read off the wire, as Poisson sampling implies (C)."""
    subject = visible(subject)
    world = World(torch.zeros(subject.model.size), pixels(SAMPLER_ROWS), pixels(0), torch.empty(0))
    ask = MessageSource(subject, source, world, canary=False)
    return as_poisson("sampler", subject, ask, pushes, alone)


def sampler_in_parts(
    subject: Subject, source: Randomness, pushes: int = SAMPLER_PUSHES
) -> list[Finding]:
    """Check the same where drawn rows are computed in several parts (C).

    They are not outer products there.
    """
    z = _VISIBLE_IN_PARTS.get(subject.mechanism, 0.02)
    subject = visible(subject).but(model=IN_PARTS, z=z)
    world = World(_passed_on(), pixels(SAMPLER_ROWS), pixels(0), torch.empty(0))
    ask = MessageSource(subject, source, world, canary=False)
    return as_poisson("sampler, in parts", subject, ask, pushes, _alone_behind)


def _passed_on() -> Tensor:
    """Return parameters (d,) of IN_PARTS whose hidden unit i is pixel i; the last layer is zero."""
    params = torch.zeros(IN_PARTS.size)
    first = IN_PARTS.unflatten(params)["dense1.weight"]
    first[torch.arange(SAMPLER_ROWS), torch.arange(SAMPLER_ROWS)] = 1.0
    return params


def _alone_behind(push: Tensor, rows: int) -> ScoreValues:
    """Return `alone` of IN_PARTS' last layer."""
    last = IN_PARTS.unflatten(push)["dense2.weight"]
    return alone(last[:, :rows].flatten(), rows)


def as_poisson(
    test: str, subject: Subject, ask: MessageSource, pushes: int, read: Read
) -> list[Finding]:
    """Check that everybody with an own pixel is in messages as Poisson sampling implies (C)."""
    shares = (
        np.stack([read(ask.read(ask()), SAMPLER_ROWS) for _ in range(pushes)])
        * subject.batch
        / CLIP
    )
    table = np.rint(shares).astype(np.int64)
    outside = int(((table < 0) | (table > subject.steps)).sum())  # a row twice in one batch
    if outside:
        p = 0.0
    else:
        p = _p_value(table, subject.steps)
    return [Finding(test, subject.name, "p-value", SHARE, p, p < SHARE, subject.honest)]


def visible(subject: Subject) -> Subject:
    """Return the subject with a model of one pixel a row, and noise that hides nobody."""
    model = build("logistic", (1, 1, SAMPLER_ROWS), 2)
    z = _VISIBLE.get(subject.mechanism, 0.02)
    most = SAMPLER_ROWS
    return subject.but(model=model, z=z, rate=SAMPLER_RATE, most=most, learning_rate=1e-3)


def _p_value(table: ScoreCounts, steps: int) -> float:
    """Return the p-value of Binomial(steps, q) counts, independent, in every message.

    table: (messages, rows).
    """
    if steps == 1:
        return sampler_p_value(table, SAMPLER_RATE)
    law = stats.binom(steps, SAMPLER_RATE)
    counts = np.arange(steps + 1)
    # The mean of this tells one batch for all steps from a batch for each.
    factorial = counts * (counts - 1.0)
    p_values = []
    for values in (counts.astype(float), factorial):
        mean = float(values @ law.pmf(counts))
        spread = np.sqrt(((values - mean) ** 2 @ law.pmf(counts)) / table.size)
        p_values.append(2 * float(stats.norm.sf(abs(float(values[table].mean()) - mean) / spread)))
    return min(1.0, 2 * min(p_values))


def pixels(rows: int) -> Dataset:
    """Return one row per pixel: each gradient is nearly orthogonal to every other's."""
    return Dataset(
        50.0 * torch.eye(rows).view(rows, 1, 1, rows), torch.arange(rows) % 2, 2, "audit"
    )


def alone(push: Tensor, rows: int) -> ScoreValues:
    """Return (rows,): a push of the logistic model along each row's own direction.

    That is C times the row's multiplicity over L.
    """
    weights = push[: 2 * rows].view(2, rows)
    sign = 1.0 - 2.0 * (torch.arange(rows) % 2)  # the gradient lowers the score of the wrong class
    values: ScoreValues = (sign * (weights[1] - weights[0]) / 2**0.5).numpy()
    return values


# -- where they stand ------------------------------------------------------------------------------


@dataclass(frozen=True)
class Uneven(Layered):
    """A linear model whose kernel computes nothing in every second slot.

    It does thoroughly what rounding does a little, so that the test does not depend on this
    machine's kernels. A slot's result is a function of the slot, its row and the parameters alone,
    so nothing here breaks what is promised.
    """

    def data_loss(self, scores: Tensor, y: Tensor) -> Tensor:
        """Return the loss, times 0 or 1 by the slot."""
        return super().data_loss(scores, y) * (torch.arange(len(y)) % 2)


UNEVEN = Uneven("audit", (1, 1, 2), 2)


def places(subject: Subject, source: Randomness, pushes: int) -> list[Finding]:
    """Check that a record without a gradient does not move others to other places (C).

    The model has no kernels, so its rows are in slots.
    """
    params = torch.tensor([40.0, 0.0, -40.0, 0.0, 0.0, 0.0])  # class 0 for the first feature
    loud = torch.tensor([-1.0, 0.0])
    quiet = torch.tensor([1.0, 0.0])
    shift = torch.tensor([1.0, 0.0, -1.0, 0.0, -1.0, 1.0], dtype=torch.float64)
    worlds = [_alternating(params, loud, quiet, shift, record=record) for record in (True, False)]
    return _moved("places", subject.but(model=UNEVEN), source, pushes, worlds)


def places_in_parts(subject: Subject, source: Randomness, pushes: int) -> list[Finding]:
    """Check the same for drawn rows alone, computed in several parts (C)."""
    params, loud, quiet = _passed_on(), *torch.eye(SAMPLER_ROWS)[:2]
    last = IN_PARTS.unflatten(params)["dense2.weight"]
    last[0, 0], last[1, 0], last[0, 1], last[1, 1] = -40.0, 40.0, 40.0, -40.0
    shift = _gradient(params, loud)
    worlds = [_alternating(params, loud, quiet, shift, record=record) for record in (True, False)]
    return _moved("places, in parts", subject.but(model=IN_PARTS), source, pushes, worlds)


def places_in_a_graph(subject: Subject, source: Randomness, pushes: int) -> list[Finding]:
    """Check the same for rows that go through a graph one by one (C).

    The second number of every row is zero. The model would follow it, so that a graph which puts
    there what all rows have together shows the record, too.
    """
    model = model_of(RecurrentUnit)
    loud, quiet = torch.tensor([-1.0, 0.0]), torch.tensor([1.0, 0.0])
    params = model.init(0).zero_()
    parts = model.unflatten(params)
    parts["unit.weight_ih_l0"][0] = torch.tensor([3.0, -20.0])
    parts["head.weight"][:, 0] = torch.tensor([40.0, -40.0])  # class 0 for the first feature
    shift = _gradient(params, loud, model)
    worlds = [_alternating(params, loud, quiet, shift, record=record) for record in (True, False)]
    return _moved("places, in a graph", subject.but(model=model), source, pushes, worlds)


def _gradient(params: Tensor, row: Tensor, model: Model = IN_PARTS) -> Tensor:
    """Return the gradient (d,) of the model for a row of class 0."""
    x = row.view(1, 1, 1, -1)
    y = torch.zeros(1, dtype=torch.int64)
    return example_gradients(model, params, x, y)[0].double()


def _moved(
    test: str, subject: Subject, source: Randomness, pushes: int, worlds: list[World]
) -> list[Finding]:
    """Bound what messages show of the record that the first world has and the second has not."""
    subject = subject.but(most=PLACE_SLOTS, rate=1.0, steps=1, batch=1.0)
    scores = [
        (MessageSource(subject, source, world, canary=False).vectors(pushes) @ world.direction)
        for world in worlds
    ]
    return compared(test, subject, scores[0].numpy(), scores[1].numpy())


def _alternating(
    params: Tensor, loud: Tensor, quiet: Tensor, shift: Tensor, *, record: bool
) -> World:
    """Return rows loud, quiet, …, (record,) loud, quiet, …, and a model wrong about loud ones.

    It is sure of the quiet ones. The record is quiet, and would move all behind it by one place.
    shift: the gradient (d,) of a loud row.
    """
    rows = [loud if place % 2 == 0 else quiet for place in range(PLACE_ROWS)]
    rows[PLACE_ROWS // 2 : PLACE_ROWS // 2] = [quiet] if record else []
    x = torch.stack(rows).view(len(rows), 1, 1, -1)
    data = Dataset(x, torch.zeros(len(rows), dtype=torch.int64), 2, "audit")
    return World(params, data, Dataset(data.x[:0], data.y[:0], 2, "audit"), shift / shift.norm())


# -- what they are rounded to ----------------------------------------------------------------------


def crowd(subject: Subject, source: Randomness, pushes: int) -> list[Finding]:
    """Check that n equal records move the mean push by no more than n times C (C).

    With much noise, C is a few steps of the grid, and what rounding adds to a row is a good part of
    it. Nothing is then seen of one record, but of m records it is, and each may move the sum by C.
    """
    model = build("logistic", (1, 1, CROWD_INPUTS), 2)
    subject = subject.but(model=model, z=CROWD_Z, batch=1.0, most=CROWD + 1, rate=1.0, steps=1)
    world = _many(model)
    means = [
        (
            MessageSource(subject, source, world, canary=included).vectors(pushes) @ world.direction
        ).mean()
        for included in (True, False)
    ]
    error = stats.norm.isf(SHARE) * subject.std * (2 / pushes) ** 0.5
    shift = float(means[0] - means[1] - error) / (CROWD * CLIP)
    return [
        Finding(
            "crowd", subject.name, "C a record", 1.0, max(0.0, shift), shift > 1.0, subject.honest
        )
    ]


def _many(model: Model) -> World:
    """Return CROWD rows whose gradients have all numbers of one size, or no row at all."""
    y = torch.zeros(CROWD, dtype=torch.int64)
    everybody = Dataset(torch.ones(CROWD, 1, 1, CROWD_INPUTS), y, 2, "audit")
    half = torch.ones(CROWD_INPUTS, dtype=torch.float64)
    way = torch.cat((-half, half, torch.tensor([-1.0, 1.0], dtype=torch.float64)))
    return World(
        torch.zeros(model.size),
        Dataset(everybody.x[:0], y[:0], 2, "audit"),
        everybody,
        way / way.norm(),
    )
