"""Units of several rows: how they and their rows are drawn, and what one of them can do to a sum.

Seeds are fixed. Each statistical test rejects what is right with probability about ALPHA over
seeds.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import combinations
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from scipy import stats
from torch import Tensor, nn

from tacit.algorithms.base.edge import EdgeRole
from tacit.algorithms.base.gradient_edge import GradientEdge
from tacit.algorithms.base.local_steps import LocalStepsEdge
from tacit.algorithms.fedasync.fedasync_settings import FedAsync
from tacit.audit.statistics import sampler_p_value
from tacit.datasets.edge_rows import EdgeRows, Units
from tacit.models import Model, build
from tacit.models.losses import cross_entropy
from tacit.models.module import module_model
from tacit.models.vectors import example_gradients
from tacit.privacy.ledger import Ledger
from tacit.privacy.noise.randomness import Random
from tacit.privacy.private_sum.plain import Plain
from tacit.privacy.private_sum.sampling import rows_of_units, subsets
from tacit.privacy.private_sum.slots import Slots
from tacit.privacy.release import Plan, Releaser
from tacit.protocol.messages import GlobalModel, Push
from tests.helpers.private_sums import sum_of

ALPHA, CLIP = 1e-4, 2.0**-7
SIZES = (1, 2, 3, 5, 8, 50)  # rows of the six people of most tests


class Small(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner, self.norm, self.head = nn.Linear(4, 5), nn.LayerNorm(5), nn.Linear(5, 3)

    def forward(self, x: Tensor) -> Tensor:
        scores: Tensor = self.head(torch.tanh(self.norm(self.inner(x.flatten(1)))))
        return scores


MODELS: dict[str, Callable[[], Model]] = {
    "logistic": lambda: build("logistic", (1, 1, 4), 3),
    "logistic, penalty": lambda: build("logistic", (1, 1, 4), 3, regularization=0.1),
    "mlp": lambda: build("mlp", (1, 1, 4), 3, hidden=(5,)),
    "cnn": lambda: build("cnn", (1, 28, 28), 10),
    "module": lambda: module_model(
        "nets:Small", Small, shape=(1, 1, 4), outputs=3, loss=cross_entropy
    ),
}
LOGISTIC, MLP = MODELS["logistic"](), MODELS["mlp"]()


def people(
    model: Model, sizes: tuple[int, ...] = SIZES, limit: int = 5, *, mean: bool = True
) -> EdgeRows:
    """Return the rows of so many people, in a mixed order, the public row after them."""
    generator, count = torch.Generator().manual_seed(5), sum(sizes)
    x, y = model.random_batch(count + 1, generator)
    x[-1], y[-1] = 0, 0
    order = np.random.default_rng(5).permutation(count)
    return EdgeRows(
        x, y, Units(order, np.append(0, np.cumsum(np.array(sizes, dtype=np.int64))), limit, mean)
    )


def plan(mechanism: Any = "gaussian", rate: float = 1.0, most: int = 8) -> Plan:
    return Plan(mechanism, rate, 6.0, 1.0, 1e-3, 10.0, math.inf, 1e-5, rows_max=most)


def edge(
    model: Model, data: EdgeRows, seed: int = 1, mechanism: Any = "gaussian", rate: float = 1.0
) -> EdgeRole:
    edge_plan = plan(mechanism, rate, max(8, data.records))
    releaser = Releaser(edge_plan, Ledger(":memory:", "t"), Random(seed))
    return GradientEdge("edge-0", model, releaser, sum_of(data, model, releaser))


def slots_of(model: Model, data: EdgeRows, **changes: Any) -> Slots:
    private_sum = edge(model, data, **changes).private_sum
    assert isinstance(private_sum, Slots)
    return private_sum


def rows_of(data: EdgeRows, unit: int) -> Tensor:
    assert data.units is not None
    start, end = data.units.starts[unit : unit + 2]
    return torch.from_numpy(data.units.order[start:end])


def alone(model: Model, params: Tensor, x: Tensor, y: Tensor) -> Tensor:
    """Return a row's gradient by autograd, the slow way."""
    leaf = params.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(model.loss(leaf, x, y), leaf)
    return gradient


# -- which rows of a unit --------------------------------------------------------------------------


def p_value_of_subsets(chosen: NDArray[np.int64], count: int) -> float:
    """Return the p-value of every subset being equally likely; `chosen` is (n, size), ascending."""
    names = {
        subset: number for number, subset in enumerate(combinations(range(count), chosen.shape[1]))
    }
    observed = np.bincount([names[tuple(row)] for row in chosen.tolist()], minlength=len(names))
    return float(stats.chisquare(observed).pvalue)


@pytest.mark.parametrize(("count", "size"), [(5, 1), (5, 2), (6, 3), (7, 5), (4, 4), (9, 8)])
def test_every_subset_of_a_units_rows_is_equally_likely(count: int, size: int) -> None:
    chosen = subsets(np.full(20_000, count), size, Random(3))
    assert (np.diff(chosen, axis=1) > 0).all()
    assert count == size or p_value_of_subsets(chosen, count) > ALPHA


def test_a_draw_that_prefers_some_rows_is_seen() -> None:
    counts = np.full(20_000, 6)
    ours = subsets(counts, 3, Random(3))
    preferring = np.where((ours == [0, 1, 2]).all(1)[:, None], [3, 4, 5], ours)
    # Three rows with replacement, made different as `subsets` does: the urn without its second ball
    urn = np.sort(np.random.default_rng(1).integers(0, 4, (20_000, 3)), axis=1) + np.arange(3)
    assert p_value_of_subsets(ours, 6) > ALPHA
    assert p_value_of_subsets(preferring, 6) < ALPHA
    assert p_value_of_subsets(urn, 6) < ALPHA


def test_subsets_of_different_counts_are_independent_and_within_them() -> None:
    counts = np.tile([5, 50, 10_000], 4000)
    chosen = subsets(counts, 5, Random(4))
    assert (chosen < counts[:, None]).all()
    middle = chosen[:, 2].reshape(-1, 3).astype(float)[:, 1:]
    assert abs(np.corrcoef(middle.T)[0, 1]) < 4 / math.sqrt(len(middle))
    # The mean of the middle of five of a count is the count's own middle.
    assert middle.mean(0) == pytest.approx([24.5, 4999.5], rel=0.03)


def test_a_unit_with_more_rows_than_count_gives_fresh_ones_and_others_all_of_theirs() -> None:
    data = people(LOGISTIC, limit=5)
    assert data.units is not None
    random, drawn = Random(1), torch.tensor([5, 0, 3, 6, 4])  # 6: an empty slot
    first, weights = rows_of_units(data.units, drawn, random)
    again, _ = rows_of_units(data.units, drawn, random)
    for slot, unit in enumerate(drawn.tolist()):
        size = SIZES[unit] if unit < len(SIZES) else 0
        used = min(size, 5)
        unit_rows = set() if not size else set(rows_of(data, unit).tolist())
        inside = first[slot, :used].tolist()
        assert len(set(inside)) == used
        assert set(inside) <= unit_rows
        assert used == 5 or set(inside) == unit_rows
        assert first[slot, used:].tolist() == [sum(SIZES)] * (5 - used)  # the public row
        assert weights[slot].tolist() == pytest.approx([1 / max(1, used)] * used + [0] * (5 - used))
    assert first[0].tolist() != again[0].tolist()
    assert first[1:4].tolist() == again[1:4].tolist()


@pytest.mark.parametrize("limit", [1, 5, 50])
def test_the_words_that_are_drawn_do_not_tell_how_many_rows_a_unit_has(limit: int) -> None:
    next_words = []
    for sizes in ((1, 1, 1), (1, 1, 5000), (4000, 5000, 6000)):
        units, random = people(LOGISTIC, sizes, limit).units, Random(1)
        assert units is not None
        rows_of_units(units, torch.arange(4), random)
        next_words.append(random.bytes(8))
    assert len(set(next_words)) == 1


# -- which units -----------------------------------------------------------------------------------


def inclusion(rate: float, draw: Callable[[Slots], Tensor]) -> NDArray[np.int64]:
    """Return who is in each of 1,000 batches, shape (messages, people)."""
    unit_slots = slots_of(LOGISTIC, people(LOGISTIC, SIZES * 5), rate=rate)
    table = np.zeros((1000, 30), np.int64)
    for line in table:
        line[draw(unit_slots).numpy()] = 1
    return table


def test_units_are_drawn_by_poisson_whatever_the_number_of_their_rows() -> None:
    def ours(unit_slots: Slots) -> Tensor:
        batch = unit_slots.draw()
        return batch.index[batch.mask]

    def by_row(unit_slots: Slots) -> Tensor:  # a unit is in when one of its rows is
        drawn = np.random.default_rng(unit_slots.random.words(1)).random(sum(SIZES) * 5) < 0.02
        owner = np.repeat(np.arange(30), SIZES * 5)
        return torch.from_numpy(np.unique(owner[drawn]))

    assert sampler_p_value(inclusion(0.25, ours), 0.25) > ALPHA
    assert sampler_p_value(inclusion(0.25, by_row), 0.25) < ALPHA


# -- a unit's gradient -----------------------------------------------------------------------------


@pytest.mark.parametrize("mean", [True, False], ids=["mean", "sum"])
@pytest.mark.parametrize("name", MODELS)
def test_a_units_gradient_is_that_of_a_loop_over_its_rows(name: str, mean: bool) -> None:
    model = MODELS[name]()
    data, params = people(model, limit=50, mean=mean), model.init(3)
    gradients = slots_of(model, data).gradients(params, torch.tensor([2, 5, 6, 0]))
    for unit, gradient in zip((2, 5, 0), gradients[[0, 1, 3]], strict=True):
        rows = torch.stack(
            [alone(model, params, data.x[row], data.y[row]) for row in rows_of(data, unit)]
        )
        expected = rows.double().mean(0) if mean else rows.double().sum(0)
        assert torch.allclose(gradient.double(), expected, rtol=1e-4, atol=1e-5)
    assert gradients[2].count_nonzero() == 0  # an empty slot


def test_a_large_units_gradient_is_that_of_the_rows_that_were_drawn() -> None:
    data, params = people(MLP, limit=4), MLP.init(3)
    assert data.units is not None
    index = torch.tensor([5])
    rows, _ = rows_of_units(data.units, index, Random(1))
    gradient = slots_of(MLP, data, seed=1).gradients(params, index)[0]
    expected = torch.stack([alone(MLP, params, data.x[row], data.y[row]) for row in rows[0]])
    assert torch.allclose(gradient, expected.mean(0), atol=1e-6)


@pytest.mark.parametrize("limit", [1, 3, 7, 20, 10**6])
def test_a_units_rows_are_computed_in_parts_of_public_sizes(
    limit: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    data, params = people(MLP, limit=5), MLP.init(3)
    at_once = slots_of(MLP, data, mechanism="discrete_gaussian").compute(params, CLIP)
    monkeypatch.setattr("tacit.privacy.private_sum.slots.HELD", 4 * MLP.size * limit)
    sizes: set[int] = set()

    def watched(model: Model, params: Tensor, x: Tensor, y: Tensor) -> Tensor:
        sizes.add(len(y))
        return example_gradients(model, params, x, y)

    unit_slots = slots_of(MLP, data, mechanism="discrete_gaussian")
    monkeypatch.setattr("tacit.privacy.private_sum.slots.example_gradients", watched)
    parts = unit_slots.compute(params, CLIP)
    assert max(sizes) <= limit
    assert sizes == unit_slots.shapes()  # what was tried before a row was read
    assert parts.step == at_once.step
    # The same rows of large units, too, as each slot has its words; a step a unit for rounding.
    assert int((parts.total - at_once.total).abs().max()) <= len(SIZES)


def test_a_public_row_that_overflows_spoils_no_unit() -> None:
    data, params = people(LOGISTIC, limit=5), LOGISTIC.init(1)
    x = data.x.clone()
    x[-1] = math.nan
    spoilt = EdgeRows(x, data.y, data.units)
    index = torch.arange(6)
    gradients = [slots_of(LOGISTIC, rows).gradients(params, index) for rows in (data, spoilt)]
    assert torch.equal(gradients[0], gradients[1])


@pytest.mark.parametrize("strange", [math.nan, math.inf])
def test_a_unit_with_a_row_that_is_no_number_counts_as_zero(strange: float) -> None:
    data, params = people(MLP, limit=5), MLP.init(1)
    x = data.x.clone()
    x[rows_of(data, 3)[2]] = strange
    index, mask = torch.arange(6), torch.ones(6, dtype=torch.bool)
    mask_3 = mask.clone()
    mask_3[3] = False
    slots_pair = [slots_of(MLP, EdgeRows(inputs, data.y, data.units)) for inputs in (x, data.x)]
    assert torch.equal(
        slots_pair[0].clipped(params, CLIP, index, mask).total,
        slots_pair[1].clipped(params, CLIP, index, mask_3).total,
    )


def test_without_privacy_the_mean_is_over_units() -> None:
    data, params = people(MLP, limit=50), MLP.init(3)
    plain = edge(MLP, data, mechanism="none").private_sum
    assert isinstance(plain, Plain)
    unit_slots = plain.slots
    index = torch.tensor([5, 0, 5])
    expected = unit_slots.gradients(params, index).mean(0)
    assert torch.allclose(unit_slots.mean(params, index), expected, atol=1e-7)


# -- what one unit can do --------------------------------------------------------------------------


@pytest.mark.parametrize("mean", [True, False], ids=["mean", "sum"])
@pytest.mark.parametrize("rows", [1, 4, 5, 6, 50])
@pytest.mark.parametrize("mechanism", ["gaussian", "discrete_gaussian", "knorm"])
@pytest.mark.parametrize("name", ["logistic", "mlp"])
def test_a_whole_unit_moves_the_sum_by_its_own_clipped_gradient_and_nothing_else(
    name: str, mechanism: str, rows: int, mean: bool
) -> None:
    model = MODELS[name]()
    sizes = (7, 2, 5, 1, 30, rows)
    data = people(model, sizes, limit=5, mean=mean)
    params = model.init(2)  # gradients are far longer than C
    assert data.units is not None
    without = EdgeRows(data.x, data.y, Units(data.units.order[:45], data.units.starts[:6], 5, mean))
    # The coupling: both batches have the others in the same slots, one has the unit in slot 4.
    slots = torch.tensor([2, 5, 0, 5, 6, 4, 3, 1])  # in each edge, 5 and 6 stand for nobody
    with_it = torch.tensor([2, 6, 0, 6, 5, 4, 3, 1])
    slots = torch.where(slots > 4, 5, slots)
    edges = [slots_of(model, rows, mechanism=mechanism) for rows in (data, without)]
    gradients = [
        unit_slots.gradients(params, index)
        for unit_slots, index in zip(edges, (with_it, slots), strict=True)
    ]
    others = torch.arange(8) != 4
    assert torch.equal(gradients[0][others], gradients[1][others])

    edges = [slots_of(model, rows, mechanism=mechanism) for rows in (data, without)]
    sums = [
        unit_slots.clipped(params, CLIP, index, index < unit_slots.records)
        for unit_slots, index in zip(edges, (with_it, slots), strict=True)
    ]
    moved = (sums[0].total - sums[1].total).double() * (sums[0].step or 1.0)
    assert sums[0].sensitivity == CLIP
    assert 0.9 * CLIP < float(moved.norm()) <= CLIP


@pytest.mark.parametrize("algorithm", ["mapa", "fedasync"])
def test_every_step_draws_units_and_their_rows_afresh(
    algorithm: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    data, draws = people(LOGISTIC, limit=2), []

    def watched(units: Units, drawn: Tensor, random: Random) -> tuple[Tensor, Tensor]:
        rows, weights = rows_of_units(units, drawn, random)
        draws.append(tuple(sorted(rows.flatten().tolist())))
        return rows, weights

    monkeypatch.setattr("tacit.privacy.private_sum.slots.rows_of_units", watched)
    releaser = Releaser(plan(), Ledger(":memory:", "t"), Random(1))
    section = FedAsync(name="fedasync", steps_min=3, learning_rate=0.1)
    summed = sum_of(data, LOGISTIC, releaser)
    role: EdgeRole = (
        LocalStepsEdge(section.task(), "edge-0", LOGISTIC, releaser, summed)
        if algorithm == "fedasync"
        else GradientEdge("edge-0", LOGISTIC, releaser, summed)
    )
    pushes = [
        out for _ in range(2) for out in role.on_message(GlobalModel(1, LOGISTIC.init(1), 1.0))
    ]
    assert all(isinstance(out.message, Push) for out in pushes)
    assert len(draws) == len(set(draws)) == (6 if algorithm == "fedasync" else 2)
    assert releaser.ledger.charged().count == len(draws)


def test_an_edge_without_any_unit_sends_noise_of_the_same_size() -> None:
    nobody = people(LOGISTIC, ())
    (out,) = edge(LOGISTIC, nobody).on_message(GlobalModel(1, LOGISTIC.init(1), 1.0))
    assert isinstance(out.message, Push)
    assert out.message.released.vector.count_nonzero() == LOGISTIC.size
