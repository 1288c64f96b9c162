"""Randomised response: its probabilities, and the loss that sees through them."""

from __future__ import annotations

import math

import pytest
import torch
from scipy import stats
from torch.nn import functional

from tacit.privacy.noise.labels import corrected_loss, keep_probability, randomised_response
from tacit.privacy.noise.randomness import Random

DRAWS = 60_000


@pytest.mark.parametrize(("epsilon", "classes"), [(1.0, 10), (0.3, 2), (4.0, 3)])
def test_the_ratio_of_the_two_answers_is_e_to_the_epsilon(epsilon: float, classes: int) -> None:
    keep = keep_probability(epsilon, classes)
    assert keep / ((1 - keep) / (classes - 1)) == pytest.approx(math.exp(epsilon))
    assert keep == pytest.approx(math.exp(epsilon) / (math.exp(epsilon) + classes - 1))


def p_value(claimed: float, used: float, classes: int, seed: int) -> float:
    """Return the p-value of: answers to one label have the claimed distribution."""
    answers = randomised_response(torch.full((DRAWS,), 1), classes, used, Random(seed))
    keep = keep_probability(claimed, classes)
    expected = [
        DRAWS * (keep if label == 1 else (1 - keep) / (classes - 1)) for label in range(classes)
    ]
    return float(
        stats.chisquare(torch.bincount(answers, minlength=classes).tolist(), expected).pvalue
    )


@pytest.mark.parametrize("seed", [1, 2, 3])
@pytest.mark.parametrize("classes", [2, 10])
def test_answers_have_the_claimed_probabilities(seed: int, classes: int) -> None:
    assert p_value(1.0, 1.0, classes, seed) > 1e-4


@pytest.mark.parametrize("scale", [2 / 3, 3 / 2])
@pytest.mark.parametrize("classes", [2, 10])
def test_another_epsilon_is_caught(scale: float, classes: int) -> None:
    assert p_value(1.0, scale, classes, 1) < 1e-4


def test_labels_are_drawn_independently_and_from_the_key() -> None:
    labels = torch.arange(1000) % 10
    once, again = (randomised_response(labels, 10, 1.0, Random(5)) for _ in range(2))
    assert torch.equal(once, again)
    assert not torch.equal(once, randomised_response(labels, 10, 1.0, Random(6)))
    assert not torch.equal(once, randomised_response(labels, 10, 1.0, Random()))


@pytest.mark.parametrize("epsilon", [0.0, -1.0, math.inf, math.nan])
def test_an_epsilon_without_meaning_is_refused(epsilon: float) -> None:
    with pytest.raises(ValueError, match="epsilon="):
        randomised_response(torch.tensor([0]), 2, epsilon, Random(1))


@pytest.mark.parametrize("label", [-1, 3])
def test_a_label_out_of_range_is_refused(label: int) -> None:
    with pytest.raises(ValueError, match="labels outside"):
        randomised_response(torch.tensor([label]), 3, 1.0, Random(1))


def test_the_corrected_loss_is_of_the_answers_probability() -> None:
    scores = torch.randn(6, 4, generator=torch.Generator().manual_seed(1))
    answers = torch.tensor([0, 1, 2, 3, 0, 1])
    keep = keep_probability(1.5, 4)
    lie = (1 - keep) / 3
    probabilities = scores.softmax(1) @ torch.full((4, 4), lie).fill_diagonal_(keep)
    expected = -probabilities[torch.arange(6), answers].log()
    assert torch.allclose(corrected_loss(scores, answers, 1.5), expected, atol=1e-6)
    assert torch.equal(
        corrected_loss(scores, answers, math.inf),
        functional.cross_entropy(scores, answers, reduction="none"),
    )


def test_a_model_trained_on_answers_finds_the_true_probabilities() -> None:
    # One feature pattern with true label probabilities (0.7, 0.2, 0.1): the minimiser of the
    # corrected loss.
    labels = torch.repeat_interleave(torch.arange(3), torch.tensor([42_000, 12_000, 6_000]))
    answers = randomised_response(labels, 3, 1.0, Random(3))
    scores = torch.zeros(3)
    for _ in range(400):
        leaf = scores.clone().requires_grad_()
        loss = corrected_loss(leaf.expand(len(answers), 3), answers, 1.0).mean()
        scores = scores - 4 * torch.autograd.grad(loss, leaf)[0]
    assert torch.allclose(scores.softmax(0), torch.tensor([0.7, 0.2, 0.1]), atol=0.02)
    wrong = torch.bincount(answers) / len(answers)  # what cross-entropy would have learned
    assert not torch.allclose(wrong, torch.tensor([0.7, 0.2, 0.1]), atol=0.1)


@pytest.mark.parametrize("epsilon", [1e-300, 1e-17, 1e-3, 1.0, 40.0, 800.0, 1e300])
def test_the_loss_is_a_number_at_any_epsilon(epsilon: float) -> None:
    scores = torch.tensor([[3.0, -3.0, 0.0], [80.0, -80.0, 0.0]])
    loss = corrected_loss(scores, torch.tensor([0, 1]), epsilon)
    assert bool(torch.isfinite(loss).all())
    if epsilon == 1.0:
        keep = keep_probability(1.0, 3)
        honest = torch.softmax(scores, 1)[[0, 1], [0, 1]]
        assert torch.allclose(
            loss, -torch.log(keep * honest + (1 - honest) * (1 - keep) / 2), rtol=1e-5
        )
    if epsilon <= 1e-17:  # the answer says nothing
        assert torch.allclose(loss, torch.full((2,), math.log(3)))
