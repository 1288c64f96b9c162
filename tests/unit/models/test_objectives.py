"""Labels, counts and events: each loss beside its slow twin, its gradients, its best constant."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from tacit.datasets import Dataset, EdgeRows, Units
from tacit.datasets.target import Target
from tacit.errors import ConfigError
from tacit.models import Model, best_constant, build
from tacit.models.graph.graph_model import GraphModel
from tacit.models.losses import OBJECTIVE_LOSSES
from tacit.models.metrics import chosen, constant_errors
from tacit.models.module import module_model
from tacit.models.objectives import Objective, objective_of
from tacit.models.user_module import UserModule
from tacit.models.vectors import example_gradients, linear_factors, maps, vmap_gradients
from tacit.privacy.ledger import Ledger
from tacit.privacy.noise.randomness import Random
from tacit.privacy.private_sum.clipping import clipped_sum, outer_sum
from tacit.privacy.release import Plan, Releaser
from tests.helpers.private_sums import sum_of

LABELS = Target("labels", ("fever", "cough", "rash"))
VISITS = Target("counts", high=12)
DEATH = Target("event", ("died",), low=0.0, cuts=(30.0, 90.0, 180.0, 365.0))
TARGETS = {"labels": LABELS, "counts": VISITS, "event": DEATH}
ROWS = 40


def objective(kind: str) -> Objective:
    result = objective_of(TARGETS[kind])
    assert result is not None
    return result


def label_loss(scores: Tensor, y: int) -> float:
    """Return the binary cross-entropies of one row, label by label."""
    total = 0.0
    for place, score in enumerate(scores.tolist()):
        p = 1 / (1 + math.exp(-score))
        total -= math.log(p if y >> place & 1 else 1 - p)
    return total


def count_loss(scores: Tensor, y: int) -> float:
    """Return what the Poisson law's log-likelihood is below that of the rate `y` itself."""
    z = float(scores)
    rate = math.exp(z) if z <= math.log(12) else 12 * (1 + z - math.log(12))

    def log_likelihood(rate: float, log_rate: float) -> float:
        return y * log_rate - rate - math.lgamma(y + 1)

    return log_likelihood(y, math.log(y) if y else 0.0) - log_likelihood(rate, z)


def event_loss(scores: Tensor, y: int) -> float:
    """Return the negative log-likelihood of one row, interval by interval."""
    passed, happened = divmod(y, 2)
    total = 0.0
    for place, score in enumerate(scores.tolist()):
        hazard = 1 / (1 + math.exp(-score))
        if place < passed:
            total -= math.log(1 - hazard)
        elif place == passed and happened:
            total -= math.log(hazard)
    return total


TWINS = {"labels": label_loss, "counts": count_loss, "event": event_loss}


def rows(kind: str, count: int = ROWS) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(3)
    x = torch.randn(count, 4, generator=generator)
    return x, objective(kind).random(count, generator)


def models(kind: str) -> dict[str, Model]:
    """A model of each way in which gradients of examples are computed."""
    goal = objective(kind)
    outputs = goal.target.outputs

    def seen() -> nn.Module:
        return nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, outputs))

    class Unseen(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.randn(4, outputs))

        def forward(self, x: Tensor) -> Tensor:
            return torch.einsum("bi,io->bo", x, self.weight)

    return {
        "logistic": build("logistic", (4,), 0, objective=goal),
        "mlp": build("mlp", (4,), 0, hidden=(5,), regularization=0.1, objective=goal),
        "seen": module_model("n:s", seen, shape=(4,), outputs=outputs, loss=None, objective=goal),
        "mapped": module_model(
            "n:u", Unseen, shape=(4,), outputs=outputs, loss=None, objective=goal
        ),
    }


@pytest.mark.parametrize("kind", TARGETS)
def test_a_loss_is_that_of_its_slow_twin_row_by_row(kind: str) -> None:
    _, y = rows(kind)
    scores = torch.randn(ROWS, TARGETS[kind].outputs, dtype=torch.float64)
    losses = objective(kind).losses(scores, y)
    expected = [TWINS[kind](row, int(code)) for row, code in zip(scores, y, strict=True)]
    assert losses.tolist() == pytest.approx(expected)
    assert objective(kind).losses(scores[0], y[0]) == losses[0]
    assert (losses >= 0).all()


@pytest.mark.parametrize("kind", TARGETS)
def test_no_score_gives_a_loss_or_a_gradient_that_is_no_number(kind: str) -> None:
    _, y = rows(kind)
    for size in (0.0, 50.0, -50.0, 1e6, -1e6):
        scores = torch.full((ROWS, TARGETS[kind].outputs), size, requires_grad=True)
        losses = objective(kind).losses(scores, y)
        (gradient,) = torch.autograd.grad(losses.sum(), [scores])
        assert torch.isfinite(losses).all()
        assert torch.isfinite(gradient).all()


@pytest.mark.parametrize("way", ["logistic", "mlp", "seen", "mapped"])
@pytest.mark.parametrize("kind", TARGETS)
def test_each_examples_gradient_is_that_of_autograd_alone(kind: str, way: str) -> None:
    model = models(kind)[way]
    x, y = rows(kind)
    params = torch.randn(model.size, generator=torch.Generator().manual_seed(1)) / 2
    gradients = example_gradients(model, params, x, y)
    leaf = params.clone().requires_grad_()
    for row, label, gradient in zip(x, y, gradients, strict=True):
        (alone,) = torch.autograd.grad(model.loss(leaf, row, label), leaf)
        torch.testing.assert_close(gradient, alone, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(vmap_gradients(model, params, x, y), gradients)


@pytest.mark.parametrize("way", ["logistic", "mlp"])
@pytest.mark.parametrize("kind", TARGETS)
def test_a_clipped_sum_is_that_of_gradients_clipped_one_by_one(kind: str, way: str) -> None:
    model = models(kind)[way]
    x, y = rows(kind)
    clip = 0.7
    params = torch.randn(model.size, generator=torch.Generator().manual_seed(1))
    mask = torch.ones(ROWS, dtype=torch.bool)
    if model.linear:
        summed = outer_sum(*linear_factors(model, params, x, y), clip, mask)
    else:
        summed = clipped_sum(example_gradients(model, params, x, y), clip, mask)
    leaf = params.clone().requires_grad_()
    expected = torch.zeros(model.size, dtype=torch.float64)
    clipped = 0
    for row, label in zip(x, y, strict=True):
        (alone,) = torch.autograd.grad(model.loss(leaf, row, label), leaf)
        norm = float(alone.double().norm())
        clipped += norm > clip
        expected += alone.double() * (clip / max(norm, clip))  # one seen only at first is zero
    assert clipped > ROWS // 4
    torch.testing.assert_close(summed.total, expected, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("people", [False, True])
@pytest.mark.parametrize("kind", TARGETS)
def test_an_edges_sum_clips_each_row_or_each_person_and_says_its_way(
    kind: str, people: bool
) -> None:
    model = models(kind)["logistic"]
    x, y = rows(kind, ROWS + 1)
    clip = 0.7
    params = torch.randn(model.size, generator=torch.Generator().manual_seed(1))
    of_two = Units(np.arange(ROWS), np.arange(0, ROWS + 1, 2), 2, True)
    units = of_two if people else None
    count = ROWS // 2 if people else ROWS
    plan = Plan("gaussian", 1.0, float(count), 1.0, clip, clip, 500.0, 1e-5, rows_max=count)
    releaser = Releaser(plan, Ledger(":memory:", "mine"), Random())
    summed = sum_of(EdgeRows(x, y, units), model, releaser)
    assert f"no kernels for the loss of {kind}" in summed.way or people
    gradients = example_gradients(model, params, x[:ROWS], y[:ROWS]).double()
    if people:
        gradients = gradients.view(count, 2, -1).mean(1)
    factors = clip / gradients.norm(dim=1).clamp(min=clip)
    expected = (gradients * factors[:, None]).sum(0)
    total = summed.compute(params, clip).total
    torch.testing.assert_close(total, expected, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("kind", TARGETS)
def test_modules_of_both_forms_compute_rows_together(kind: str) -> None:
    seen, mapped = models(kind)["seen"], models(kind)["mapped"]
    assert isinstance(seen, GraphModel)
    assert isinstance(mapped, GraphModel)
    assert seen.one_pass is not None
    assert mapped.one_pass is None
    assert maps(mapped)


@pytest.mark.parametrize("kind", TARGETS)
def test_no_other_constant_has_a_lower_loss(kind: str) -> None:
    _, y = rows(kind, 300)
    goal = objective(kind)
    best = goal.constant(y)
    losses = goal.losses(best.expand(len(y), -1), y)
    generator = np.random.default_rng(5)
    for _ in range(200):
        other = best + torch.from_numpy(generator.normal(0, 0.1, len(best)))
        assert goal.losses(other.expand(len(y), -1), y).mean() >= losses.mean() - 1e-12
    constant = best_constant(models(kind)["logistic"], Dataset(torch.rand(300, 4), y, 1, "t"))
    assert constant is not None
    assert constant.loss == pytest.approx(float(losses.mean()))
    assert not constant.beaten(None, constant.loss)
    assert constant.beaten(None, 0.0)


@pytest.mark.parametrize("kind", TARGETS)
def test_every_metric_of_a_constant_is_there_to_compare_with(kind: str) -> None:
    x, y = rows(kind, 300)
    model = models(kind)["mlp"]
    data = Dataset(x, y, TARGETS[kind].codes, "t")
    answered, values = chosen((), TARGETS[kind], Path()).measure(model, model.init(1), data)
    assert math.isnan(answered.accuracy)
    assert values.keys() == constant_errors(y, TARGETS[kind]).keys()


def test_labels_are_bits_and_metrics_are_of_each_and_their_mean() -> None:
    # three rows: fever; fever and rash; nothing
    y = torch.tensor([0b001, 0b101, 0b000])
    assert objective("labels").decoded(y).tolist() == [[1, 0, 0], [1, 0, 1], [0, 0, 0]]
    model = build("logistic", (3,), 0, objective=objective("labels"))
    params = torch.cat((torch.eye(3).flatten(), torch.zeros(3)))  # the scores are the row itself
    x = torch.tensor([[2.0, -1.0, -1.0], [1.0, -1.0, -2.0], [3.0, -1.0, 1.0]])
    metrics = chosen((), LABELS, Path()).measure(model, params, Dataset(x, y, 8, "t"))[1]
    assert metrics["accuracy of fever"] == pytest.approx(2 / 3)
    assert metrics["accuracy of cough"] == 1
    assert metrics["accuracy of rash"] == pytest.approx(1 / 3)
    assert metrics["accuracy"] == pytest.approx(2 / 3)
    assert metrics["auc of fever"] == 0
    assert metrics["auc of rash"] == 0
    assert "auc of cough" not in metrics  # no row has it
    assert metrics["auc"] == 0
    expected = float(
        functional.binary_cross_entropy_with_logits(x[:, 0], torch.tensor([1.0, 1, 0]))
    )
    assert metrics["log loss of fever"] == pytest.approx(expected)


def test_a_count_is_predicted_by_its_rate_and_measured_by_the_poisson_deviance() -> None:
    y = torch.tensor([0, 3, 1, 12])
    rates = torch.tensor([0.5, 3.0, 2.0, 40.0])
    goal = objective("counts")
    model = build("logistic", (1,), 0, objective=goal)
    data = Dataset(rates.log()[:, None], y, 13, "t")
    metrics = chosen((), VISITS, Path()).measure(model, torch.tensor([1.0, 0.0]), data)[1]
    predictions = list(goal.predictions(rates.log()[:, None]))
    assert [rate for rate, _ in predictions] == pytest.approx([0.5, 3.0, 2.0, 12.0])
    assert all(not shares for _, shares in predictions)
    beyond = 12 * (1 + math.log(40 / 12))  # its rate in the loss, where it goes on as a line
    terms = [0.5, 0.0, 2.0 - 1 - math.log(2), beyond - 12 - 12 * math.log(40 / 12)]
    assert metrics["deviance"] == pytest.approx(2 * sum(terms) / 4)
    assert metrics["mae"] == pytest.approx((0.5 + 0 + 1 + 0) / 4)
    constant = constant_errors(y, VISITS)
    assert constant["mae"] == pytest.approx((1 + 2 + 0 + 11) / 4)  # of the median, 1
    assert goal.constant(y).exp().tolist() == pytest.approx([4.0])


def test_counts_that_are_all_zero_have_a_constant() -> None:
    y = torch.zeros(9, dtype=torch.int64)
    assert constant_errors(y, VISITS) == {"deviance": pytest.approx(0), "mae": 0}


def test_an_event_is_decoded_and_predicted_by_its_hazards() -> None:
    goal = objective("event")
    y = torch.tensor([0, 1, 5, 8])  # seen in the first interval; events in the first, third; none
    assert goal.decoded(y).tolist() == [[0, 0], [0, 1], [2, 1], [4, 0]]
    hazards = torch.tensor([[0.5, 0.5, 0.0, 0.2], [0.0, 0.0, 0.0, 0.0]], dtype=torch.float64)
    free = goal.means(hazards.logit(1e-9))
    assert free[0].tolist() == pytest.approx([0.5, 0.25, 0.25, 0.2])
    (time, chances), (whole, _) = goal.predictions(hazards.logit(1e-9))
    assert list(chances) == ["died by 30", "died by 90", "died by 180", "died by 365"]
    assert list(chances.values()) == pytest.approx([0.5, 0.75, 0.75, 0.8])
    assert time == pytest.approx(0.75 * 30 + 0.375 * 60 + 0.25 * 90 + 0.225 * 185)
    assert whole == pytest.approx(365)
    shares = goal.constant(torch.tensor([1, 1, 2, 3, 8, 0])).sigmoid()
    assert shares.tolist() == pytest.approx([2 / 5, 1 / 2, 0, 0], abs=1e-9)


def test_cuts_that_are_nearly_alike_have_shares_of_their_own() -> None:
    target = Target("event", ("died",), cuts=(0.5, 1234567.0, 1234568.0, 1e22))
    assert target.shares == ("died by 0.5", "died by 1234567", "died by 1234568", "died by 1e+22")


def test_the_concordance_index_is_that_of_all_pairs() -> None:
    chance = torch.Generator().manual_seed(4)
    goal, y = objective("event"), rows("event", 60)[1]
    model = build("logistic", (4,), 0, objective=goal)
    params = torch.cat((torch.eye(4).flatten(), torch.zeros(4)))  # the scores are the row itself
    x = torch.randn(60, 4, generator=chance).round(decimals=1)  # with ties
    x[:30] = x[30:]
    metrics = chosen((), DEATH, Path()).measure(model, params, Dataset(x, y, 9, "t"))[1]
    risks = 1 - goal.means(x.double())
    pairs = concordant = 0.0
    for one, code in enumerate(y.tolist()):
        place, happened = divmod(code, 2)
        for other, other_code in enumerate(y.tolist()):
            if happened and other_code // 2 > place:
                pairs += 1
                mine, others = risks[one, place], risks[other, place]
                concordant += float(mine > others) + float(mine == others) / 2
    assert metrics["concordance"] == pytest.approx(concordant / pairs)
    assert constant_errors(y, DEATH)["concordance"] == 0.5
    assert math.isnan(constant_errors(torch.tensor([8, 8, 0]), DEATH)["concordance"])


def test_labels_are_predicted_where_they_are_more_likely_than_not() -> None:
    scores = torch.tensor([[2.0, -2.0, 0.1], [-1.0, -1.0, -1.0]])
    (value, shares), (nothing, _) = objective("labels").predictions(scores)
    assert value == "fever; rash"
    assert list(shares) == ["fever", "cough", "rash"]
    assert shares["fever"] == pytest.approx(1 / (1 + math.exp(-2.0)))
    assert nothing == ""


NETS = """
import torch


def net(outputs):
    return torch.nn.Linear(4, outputs)


def loss(output, y):
    assert output.shape == ({outputs},)
    assert y.shape == {shape}
    return ((output.sum() - y.sum()) ** 2)


def metric(means, y):
    assert means.shape == {means}
    assert y.shape == ({rows}, *{shape})
    return float(y.sum())
"""


@pytest.mark.parametrize("kind", TARGETS)
def test_a_loss_and_a_metric_of_ones_own_get_y_decoded(kind: str, tmp_path: Path) -> None:
    x, y = rows(kind)
    goal = objective(kind)
    outputs = goal.target.outputs
    shape = tuple(goal.decoded(y).shape[1:])
    means = tuple(goal.means(torch.zeros(ROWS, outputs)).shape)
    text = NETS.format(outputs=outputs, shape=shape, means=means, rows=ROWS)
    name = f"nets_{kind}"
    (tmp_path / f"{name}.py").write_text(text)
    arguments = {"outputs": outputs}
    own = UserModule(f"{name}:net", arguments, f"{name}:loss", None, ("*",), tmp_path)
    model = own.build((4,), outputs, 0.0, goal)
    assert not model.trains_objective
    assert best_constant(model, Dataset(x, y, 1, "t")) is None
    params = model.init(1)
    gradients = example_gradients(model, params, x, y)
    expected = goal.decoded(y).flatten(1).sum(1) if shape else goal.decoded(y)
    residuals = 2 * (model.logits(params, x).sum(1) - expected)
    torch.testing.assert_close(gradients[:, -1], residuals)  # by the last output's bias
    measured = chosen((f"{name}:metric",), goal.target, tmp_path)
    values = measured.measure(model, params, Dataset(x, y, 1, "t"))[1]
    assert values == {"metric": float(goal.decoded(y).sum())}


@pytest.mark.parametrize("kind", TARGETS)
def test_a_loss_by_name_is_that_of_the_target_or_is_refused(kind: str, tmp_path: Path) -> None:
    goal = objective(kind)
    (tmp_path / "plain_nets.py").write_text("import torch\nnet = torch.nn.Linear\n")
    arguments = {"in_features": 4, "out_features": goal.target.outputs}
    for loss in ("mse", "cross_entropy", *OBJECTIVE_LOSSES.values()):
        module = UserModule("plain_nets:net", arguments, loss, None, ("*",), tmp_path)
        if loss == OBJECTIVE_LOSSES[kind]:
            assert module.build((4,), goal.target.outputs, 0.0, goal).trains_objective
            continue
        with pytest.raises(ConfigError, match=f"model.loss={loss}: the target is of kind {kind}"):
            module.build((4,), goal.target.outputs, 0.0, goal)


@pytest.mark.parametrize("kind", TARGETS)
def test_a_module_of_other_outputs_is_refused(kind: str) -> None:
    goal = objective(kind)
    outputs = goal.target.outputs
    with pytest.raises(ConfigError, match=r"gives \[4, 7\] for 4 examples; expected \[4, "):
        module_model(
            "n:net", lambda: nn.Linear(4, 7), shape=(4,), outputs=outputs, loss=None, objective=goal
        )


@pytest.mark.parametrize("name", ["svm", "cnn"])
def test_a_network_for_classes_is_refused(name: str) -> None:
    with pytest.raises(ConfigError, match="the target is of kind labels; use logistic, mlp or"):
        build(name, (1, 8, 8), 3, objective=objective("labels"))


def test_62_labels_are_coded_and_decoded() -> None:
    goal = objective_of(Target("labels", tuple(f"l{place}" for place in range(62))))
    assert goal is not None
    y = torch.tensor([(1 << 62) - 1, 1 << 61, 0])
    assert goal.decoded(y).sum(1).tolist() == [62, 1, 0]
    assert (goal.random(100, torch.Generator().manual_seed(1)) >= 0).all()
