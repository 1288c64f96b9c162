"""Sums over drawn rows alone: the sums that they stand for, and the trial before they are used."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from tacit.algorithms import registry
from tacit.algorithms.base.gradient_edge import GradientEdge
from tacit.algorithms.dp_pasgd.pasgd_settings import DpPasgd
from tacit.algorithms.fedasync.fedasync_settings import FedAsync
from tacit.datasets import Dataset
from tacit.kernels.loading import library
from tacit.models import Layered, Model, build
from tacit.models.vectors import example_gradients
from tacit.privacy.ledger import Ledger
from tacit.privacy.noise.randomness import Random
from tacit.privacy.private_sum.choice import private_sum
from tacit.privacy.private_sum.clipping import clipped_sum, integer_sum, reduced_clip
from tacit.privacy.private_sum.plain import Plain
from tacit.privacy.private_sum.probe import cancelling, rows_alone
from tacit.privacy.private_sum.row_sums import Drawn, RowKernel, RowSums, SumTerms, _checked
from tacit.privacy.private_sum.rows_alone import RowsAlone
from tacit.privacy.private_sum.slots import Slots
from tacit.privacy.private_sum.way import NotAlone
from tacit.privacy.release import Mechanism, Plan, Releaser
from tacit.protocol.messages import GlobalModel, Push
from tests.helpers.private_sums import sum_of

pytestmark = pytest.mark.skipif(
    library() is None and not os.environ.get("CI"), reason="numba is not installed"
)
IMAGE = (1, 12, 12)
MODELS = {
    "logistic": build("logistic", IMAGE, 10),
    "svm": build("svm", IMAGE, 10, regularization=0.01),
    "cnn": build("cnn", IMAGE, 10, channels=(4, 6), kernel=3, hidden=(11,)),
    "mlp": build("mlp", IMAGE, 10, hidden=(7,), activation="tanh"),
}
CLIP = 0.3
REFUSED = "on this machine a row's gradient depends on its place in the batch"


@pytest.fixture(autouse=True)
def tried_anew() -> Iterator[None]:
    """Forget the verdicts of the trials, so that a mutant's is not the next test's."""
    _checked.cache_clear()
    yield
    _checked.cache_clear()


@pytest.fixture(params=MODELS)
def model(request: pytest.FixtureRequest) -> Model:
    return MODELS[request.param]


def sums_of(model: Model) -> RowSums:
    return RowSums.checked(model)


def refuses(model: Model) -> None:
    with pytest.raises(NotAlone, match=REFUSED):
        RowSums.checked(model)


def params_of(model: Model) -> Tensor:
    return torch.randn(model.size, generator=torch.Generator().manual_seed(4)) * 0.1


def rows_of(model: Model, count: int = 40) -> tuple[Tensor, Tensor]:
    return model.random_batch(count, torch.Generator().manual_seed(6))


def total(
    model: Model, x: Tensor, y: Tensor, index: list[int], *, whole_steps: bool, clip: float = CLIP
) -> Tensor:
    step = clip / 4096 if whole_steps else None
    drawn = Drawn(x, y, np.array(index, dtype=np.int64))
    row_sum = sums_of(model).sum(params_of(model), drawn, SumTerms(clip, step, 64))
    assert row_sum.sensitivity == clip
    return row_sum.total


def test_in_float64_they_are_the_clipped_sum(model: Model) -> None:
    x, y = rows_of(model)
    index = [3, 1, 39, 17, *range(20, 33)]

    actual = total(model, x, y, index, whole_steps=False)

    gradients = example_gradients(model, params_of(model), x[index], y[index])
    expected = clipped_sum(gradients, CLIP, torch.ones(len(index), dtype=torch.bool), 64).total
    assert actual.dtype == torch.float64
    assert torch.allclose(actual, expected, rtol=0, atol=1e-5 * CLIP)


@pytest.mark.parametrize("rows", [1, 64, 2**20])
def test_a_long_row_in_float64_leaves_the_room_that_rounding_may_take(
    model: Model, rows: int
) -> None:
    x, y = rows_of(model)
    params, single_row = params_of(model), Drawn(x, y, np.array([3]))
    length = float(example_gradients(model, params, x[3:4], y[3:4]).norm())
    clip = min(CLIP, length / 4)
    row_sum = sums_of(model).sum(params, single_row, SumTerms(clip, None, rows))
    assert float(row_sum.total.norm()) == pytest.approx(reduced_clip(clip, rows), rel=1e-9)
    assert reduced_clip(clip, rows) < clip * (1 - 1e-5)


def test_in_whole_steps_they_are_the_integer_sum(model: Model) -> None:
    """But for a step where a gradient's last bit decides which way it is cut."""
    x, y = rows_of(model)
    index = [3, 1, 39, 17, *range(20, 33)]

    actual = total(model, x, y, index, whole_steps=True)

    gradients = example_gradients(model, params_of(model), x[index], y[index])
    mask = torch.ones(len(index), dtype=torch.bool)
    expected = integer_sum(gradients, CLIP, mask, CLIP / 4096).total
    assert actual.dtype == torch.int64
    assert int((actual - expected).abs().max()) <= 1
    assert int((actual != expected).sum()) <= 0.01 * model.size


def test_a_record_moves_the_integers_by_its_own_and_by_no_more_than_c(model: Model) -> None:
    x, y = rows_of(model)
    index = [*range(0, 40, 2)]
    for record in (0, 10, 38):
        without = [row for row in index if row != record]

        moved = total(model, x, y, index, whole_steps=True) - total(
            model, x, y, without, whole_steps=True
        )

        assert torch.equal(moved, total(model, x, y, [record], whole_steps=True))
        assert 4000**2 < int((moved**2).sum()) <= 4096**2


@pytest.mark.parametrize("strange", [float("nan"), float("inf"), -float("inf"), 3e38])
@pytest.mark.parametrize("whole_steps", [True, False])
def test_a_row_that_is_no_number_adds_nothing(
    model: Model, strange: float, whole_steps: bool
) -> None:
    x, y = rows_of(model)
    index = [4, 5, 6]
    usual = total(model, x, y, [4, 6], whole_steps=whole_steps)
    x[5] = strange
    if model is MODELS["mlp"] and strange == 3e38:
        return  # its units are at their bounds, and its gradient is a number

    assert torch.equal(total(model, x, y, index, whole_steps=whole_steps), usual)


@pytest.mark.parametrize("whole_steps", [True, False])
def test_no_row_is_a_sum_of_zeros(model: Model, whole_steps: bool) -> None:
    actual = total(model, *rows_of(model), [], whole_steps=whole_steps)

    assert actual.shape == (model.size,)
    assert not actual.any()


@pytest.mark.parametrize("clip", [0.0, 2.0**-41, float("nan"), float("inf")])
def test_a_senseless_clip_is_refused(clip: float) -> None:
    with pytest.raises(ValueError, match=r"^clip="):
        total(MODELS["logistic"], *rows_of(MODELS["logistic"]), [1], whole_steps=False, clip=clip)


def test_more_steps_than_float32_holds_are_refused() -> None:
    model = MODELS["logistic"]
    arguments = params_of(model), Drawn(*rows_of(model), np.arange(3))
    with pytest.raises(ValueError, match=r"^step="):
        sums_of(model).sum(*arguments, SumTerms(1.0, 2.0**-13, 64))
    with pytest.raises(ValueError, match=r"rows: float64 sums"):
        sums_of(model).sum(*arguments, SumTerms(1.0, None, 2**24 + 1))


def test_what_cancels_leaves_only_rounding() -> None:
    for model in MODELS.values():
        params, x, _ = cancelling(model, torch.Generator().manual_seed(1))
        scores = model.logits(params, x)
        assert float(scores[0].abs().max()) < 1e-5 * float(scores[1:].abs().max())


class ByPlace(RowKernel):
    """A mutant that rounds every second row otherwise."""

    def gradients(self, *arguments: np.ndarray) -> None:
        """Compute the gradients as they should be, but for one bit."""
        super().gradients(*arguments)
        arguments[-1][1::2] = np.nextafter(arguments[-1][1::2], np.float32(1))


class Remembers(RowKernel):
    """A mutant that keeps something of the row before."""

    def gradients(self, *arguments: np.ndarray) -> None:
        """Compute the gradients as they should be, but for a row after one that is no number."""
        super().gradients(*arguments)
        out = arguments[-1]
        out[1:][~np.isfinite(out[:-1]).all(1)] = 0


@pytest.mark.parametrize("mutant", [ByPlace, Remembers])
def test_a_kernel_that_looks_at_others_is_not_used(
    mutant: type[RowKernel], monkeypatch: pytest.MonkeyPatch
) -> None:
    model = MODELS["cnn"]
    assert not rows_alone(mutant(model).rows, model, (1, 2, 3, 8))  # type: ignore[arg-type]
    monkeypatch.setattr("tacit.privacy.private_sum.row_sums.row_kernel", mutant)
    refuses(model)


def test_a_large_model_is_tried_with_few_rows_but_never_without_company(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Bound the memory of a trial, which once was that of 90 models."""
    tried: list[list[int]] = []

    def noted(kernel: object, model: Model, sizes: list[int]) -> bool:
        tried.append(sizes)
        return True

    monkeypatch.setattr("tacit.privacy.private_sum.row_sums.rows_alone", noted)
    monkeypatch.setattr(RowSums, "_adds_rows_alone", lambda sums: True)
    large = build("mlp", IMAGE, 10, hidden=(3000, 1500))
    for model in (large, build("mlp", IMAGE, 10, hidden=(3000,)), MODELS["mlp"]):
        sums_of(model)
    assert tried == [[1, 3], [1, 36], [*range(1, 17), 40, 64]]


def test_a_large_models_kernel_that_looks_at_the_row_before_is_not_used(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    large = build("mlp", IMAGE, 10, hidden=(3000,))
    # as if it were larger yet
    monkeypatch.setattr("tacit.privacy.private_sum.row_sums._MORE_HELD", large.size)
    sums_of(large)
    _checked.cache_clear()
    monkeypatch.setattr("tacit.privacy.private_sum.row_sums.row_kernel", Remembers)
    refuses(large)


def test_sums_that_depend_on_company_are_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    honest = RowSums._add

    def add(self: RowSums, *arguments: object) -> None:
        honest(self, *arguments)  # type: ignore[arg-type]
        arguments[-1][0] += len(arguments[3]) > 8  # type: ignore[arg-type, index]

    monkeypatch.setattr(RowSums, "_add", add)
    refuses(MODELS["cnn"])


class OtherLayers(Layered):
    """Whose layers may compute anything."""


OTHER = OtherLayers("mlp", (1, 4, 4), 10, hidden=(5,))


def edge(model: Model, mechanism: Mechanism, *, alone: bool, device: str = "cpu") -> GradientEdge:
    x, y = rows_of(model, 60)
    plan = Plan(mechanism, 0.3, 18, 1.0, 1.0, 1.0, 50.0, 1e-5, rows_max=60)
    releaser = Releaser(plan, Ledger(":memory:", "mine"), Random())
    rows = Dataset(x, y, 10, "mine")
    return GradientEdge(
        "edge-0", model, releaser, sum_of(rows, model, releaser, device, rows_alone=alone)
    )


@pytest.mark.parametrize("mechanism", ["gaussian", "discrete_gaussian", "knorm"])
def test_an_edge_that_computes_rows_alone_pushes_what_another_does(
    model: Model, mechanism: Mechanism
) -> None:
    """Both draw all rows of the same noise, so that only rounding differs."""
    params, pushed = params_of(model), []
    for alone in (True, False):
        role = edge(model, mechanism, alone=alone)
        way, all_rows = role.private_sum, np.arange(60)
        index, mask = torch.from_numpy(all_rows), torch.ones(60, dtype=torch.bool)
        assert isinstance(way, RowsAlone if alone else Slots)
        if isinstance(way, RowsAlone):
            step = 1 / 4096 if mechanism == "discrete_gaussian" else None
            clipped = way.sums.sum(params, Drawn(way.x, way.y, all_rows), SumTerms(1.0, step, 60))
        elif isinstance(way, Slots):
            clipped = way.clipped(params, 1.0, index, mask)
        pushed.append(clipped.total.to(torch.float64) * (clipped.step or 1.0))
        (outgoing,) = role.on_message(GlobalModel(0, params, 1.0))
        assert isinstance(outgoing.message, Push)

    first, second = pushed
    assert torch.allclose(first, second, rtol=0, atol=2e-3)


def test_a_role_by_itself_computes_rows_alone_and_one_without_privacy_or_kernel_does_not() -> None:
    model = MODELS["cnn"]
    x, y = rows_of(model, 60)
    plan = Plan("gaussian", 0.3, 18, 1.0, 1.0, 1.0, 50.0, 1e-5, rows_max=60)
    releaser = Releaser(plan, Ledger(":memory:", "mine"), Random())
    rows = Dataset(x, y, 10, "mine")
    assert isinstance(private_sum(rows, model, plan, releaser.random), RowsAlone)
    assert isinstance(edge(model, "none", alone=True).private_sum, Plain)
    assert isinstance(edge(OTHER, "gaussian", alone=True).private_sum, Slots)


SETTINGS: dict[str, Any] = {
    "mapa": SimpleNamespace(name="mapa"),
    "fedasync": FedAsync(name="fedasync"),
    "dp-pasgd": DpPasgd(name="dp-pasgd"),
}


@pytest.mark.parametrize("name", SETTINGS)
def test_a_runs_edges_compute_rows_alone_unless_somebody_asks_for_slots(name: str) -> None:
    model = MODELS["logistic"]
    x, y = rows_of(model, 60)
    plan = Plan("gaussian", 0.3, 18, 1.0, 1.0, 1.0, 50.0, 1e-5, rows_max=60)
    releaser = Releaser(plan, Ledger(":memory:", "mine"), Random())
    definition = SimpleNamespace(
        algorithm=SETTINGS[name],
        run=SimpleNamespace(updates=1),
        folder=Path(),
        privacy=plan,
        plans=SimpleNamespace(own_rows=None),
        judging=None,
    )
    arguments = definition, "edge-0", Dataset(x, y, 10, "mine"), model, releaser
    assert registry.edge(*arguments).private_sum.way == "drawn rows alone"  # type: ignore[arg-type]
    off = "48 slots: not asked for drawn rows alone"
    assert registry.edge(*arguments, rows_alone=False).private_sum.way == off  # type: ignore[arg-type]


def test_without_numba_an_edge_goes_the_other_way_and_says_why(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("tacit.privacy.private_sum.row_sums.library", lambda: None)
    other = edge(MODELS["logistic"], "gaussian", alone=True)
    assert isinstance(other.private_sum, Slots)
    assert other.private_sum.way == "48 slots: numba is not installed"


def test_a_network_without_kernels_is_said() -> None:
    other = edge(OTHER, "gaussian", alone=True)
    assert other.private_sum.way == "48 slots: no kernels for a layer of model.name=mlp"
    assert edge(MODELS["cnn"], "none", alone=True).private_sum.way == "a plain batch"
