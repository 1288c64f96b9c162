"""Log loss, Brier score and reliability, beside values by hand and what a constant answer reaches."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn

from tacit.datasets import Dataset
from tacit.models import best_constant, build
from tacit.models.building import loss_is_log_loss
from tacit.models.calibration import calibration
from tacit.models.losses import bce_with_logits, cross_entropy, mse
from tacit.models.module import module_model


def test_two_classes_are_judged_by_the_second() -> None:
    p = torch.tensor([[0.75, 0.25], [0.25, 0.75], [0.25, 0.75], [0.75, 0.25]])
    worth = calibration(p, torch.tensor([0, 1, 0, 0]))
    logs = [-math.log(each) for each in (0.75, 0.75, 0.25, 0.75)]
    assert worth.log_loss == pytest.approx(sum(logs) / 4)
    assert worth.brier == pytest.approx((3 * 0.25**2 + 0.75**2) / 4)
    low, high = worth.bins
    assert (low.predicted, low.observed, low.rows) == (0.25, 0.0, 2)
    assert (high.predicted, high.observed, high.rows) == (0.75, 0.5, 2)
    assert worth.error == pytest.approx(0.25)


def test_more_classes_are_judged_by_all_and_binned_by_the_guess() -> None:
    p = torch.tensor([[0.5, 0.3, 0.2], [0.1, 0.1, 0.8]])
    worth = calibration(p, torch.tensor([1, 2]))
    expected = ((0.25 + 0.49 + 0.04) + (0.01 + 0.01 + 0.04)) / 2
    assert worth.brier == pytest.approx(expected)
    assert [(each.observed, each.rows) for each in worth.bins] == [(0.0, 1), (1.0, 1)]


def test_who_is_sure_and_wrong_is_worth_less_than_a_constant_though_more_often_right() -> None:
    """77 % are right, at a probability of 0.999: the accuracy does not see it."""
    y = torch.tensor([0, 1] * 500)
    right = torch.arange(1000) % 100 < 77
    guess = torch.where(right, y, 1 - y)
    p = torch.full((1000, 2), 0.001)
    p[torch.arange(1000), guess] = 0.999
    worth = calibration(p, y)
    constant = best_constant(build("logistic", (1,), 2), Dataset(torch.zeros(1000, 1), y, 2, "t"))
    assert constant is not None
    assert constant.beaten(0.77, worth.log_loss)
    assert constant.log_loss == pytest.approx(math.log(2))
    assert constant.brier == pytest.approx(0.25)
    assert worth.log_loss > math.log(2)
    assert not worth.log_loss_better
    honest = calibration(torch.where(p > 0.5, 0.77, 0.23), y)
    assert honest.log_loss_better
    assert honest.brier_better
    assert honest.error < 0.01 < worth.error


def test_a_class_without_a_row_and_a_probability_of_zero_are_numbers() -> None:
    worth = calibration(torch.tensor([[1.0, 0.0, 0.0]]), torch.tensor([1]))
    assert math.isfinite(worth.log_loss)
    assert worth.log_loss > 30


@pytest.mark.parametrize(
    ("loss", "outputs", "comparable"),
    [(cross_entropy, 2, True), (bce_with_logits, 1, True), (mse, 1, False)],
)
def test_only_a_log_loss_is_compared_with_the_constants(
    loss: object, outputs: int, comparable: bool
) -> None:
    labels = 0 if loss is mse else 2
    model = module_model(
        "t:net",
        lambda: nn.Linear(3, outputs),
        shape=(3,),
        outputs=outputs,
        labels=labels,
        loss=loss,  # type: ignore[arg-type]
    )
    assert loss_is_log_loss(model) == comparable


@pytest.mark.parametrize("classes", [2, 3, 5, 10])
def test_hinge_is_no_log_loss_and_softmax_is(classes: int) -> None:
    assert loss_is_log_loss(build("logistic", (3,), classes))
    assert not loss_is_log_loss(build("svm", (3,), classes))
