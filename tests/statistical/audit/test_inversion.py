"""The attack: exact without noise, blind to noise at the claimed ε, strict about its input."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from tacit import datasets
from tacit.audit.inversion import cosine, invert, psnr
from tacit.models import Model, build
from tacit.models.vectors import mean_gradient
from tacit.privacy.accounting import calibrate
from tacit.privacy.noise.mechanisms import gaussian, paper_noise
from tacit.privacy.noise.randomness import Random
from tacit.privacy.private_sum.clipping import clipped_sum

C = 4.0
DIGITS = datasets.load("digits", "train", None)
MODEL: Model = build("logistic", DIGITS.x.shape[1:], DIGITS.classes)
ALL = torch.ones(1, dtype=torch.bool)


def gradient_of(rows: list[int]) -> Tensor:
    index = torch.tensor(rows)
    return mean_gradient(MODEL, MODEL.init(0), DIGITS.x[index], DIGITS.y[index])


def of_digit(digit: int, count: int) -> list[int]:
    return torch.nonzero(DIGITS.y == digit).flatten()[:count].tolist()


@pytest.mark.parametrize("row", range(12))
def test_one_image_without_noise_comes_back_exactly_with_its_label(row: int) -> None:
    inverted = invert(gradient_of([row]), MODEL.shape, MODEL.classes)
    assert inverted.image.shape == MODEL.shape
    assert inverted.label == int(DIGITS.y[row])
    torch.testing.assert_close(inverted.image, DIGITS.x[row].double(), atol=1e-5, rtol=0)
    assert psnr(inverted.image, DIGITS.x[row]) > 100


def test_clipping_alone_hides_nothing() -> None:
    clipped = clipped_sum(gradient_of([3])[None], 1e-3, ALL).total
    torch.testing.assert_close(
        invert(clipped, MODEL.shape, 10).image, DIGITS.x[3].double(), atol=1e-4, rtol=0
    )


def test_a_batch_of_one_digit_gives_their_mean() -> None:
    rows = of_digit(7, 12)
    inverted = invert(gradient_of(rows), MODEL.shape, MODEL.classes)
    assert inverted.label == 7
    assert cosine(inverted.image, DIGITS.x[torch.tensor(rows)].mean(0)) > 0.9999
    assert max(cosine(inverted.image, DIGITS.x[row]) for row in rows) > 0.85


def averaged(noisy: list[Tensor], row: int) -> float:
    return cosine(
        invert(torch.stack(noisy).mean(0), MODEL.shape, MODEL.classes).image, DIGITS.x[row]
    )


def test_the_papers_noise_at_its_epsilon_1_averages_out_and_rigorous_noise_does_not() -> None:
    random, pushes, rows = Random(5), 100, range(8)
    z = calibrate(8.0, 1e-5, pushes, 1.0)
    paper, ours = [], []
    for row in rows:
        clipped = clipped_sum(gradient_of([row])[None], C, ALL).total
        noises = [paper_noise(len(clipped), 2 * C / 1.0, random) for _ in range(pushes)]
        paper.append(averaged([clipped + noise for noise in noises], row))
        ours.append(averaged([gaussian(clipped, z * C, random) for _ in range(pushes)], row))
    assert min(paper) > 0.9
    # 64 pixels: a random image's cosine has standard deviation 1/8, the mean of eight 0.045; five
    # of those.
    assert abs(sum(ours) / len(ours)) < 0.25


def test_a_tenth_of_the_claimed_noise_would_be_seen() -> None:
    random, z = Random(6), calibrate(8.0, 1e-5, 100, 1.0)
    similarities = []
    for row in range(8):
        clipped = clipped_sum(gradient_of([row])[None], C, ALL).total
        similarities.append(
            averaged([gaussian(clipped, 0.1 * z * C, random) for _ in range(100)], row)
        )
    assert sum(similarities) / len(similarities) > 0.5


def test_an_image_of_noise_lies_in_the_unit_interval() -> None:
    for seed in range(20):
        noise = torch.randn(MODEL.size, generator=torch.Generator().manual_seed(seed))
        image = invert(noise, MODEL.shape, MODEL.classes).image
        assert float(image.min()) >= 0
        assert float(image.max()) <= 1
    assert bool(
        torch.isfinite(invert(torch.zeros(MODEL.size), MODEL.shape, MODEL.classes).image).all()
    )


@pytest.mark.parametrize("bad", [torch.zeros(MODEL.size - 1), torch.full((MODEL.size,), torch.nan)])
def test_what_is_not_a_gradient_is_refused(bad: Tensor) -> None:
    with pytest.raises(ValueError, match=r"expected 650 finite ones"):
        invert(bad, MODEL.shape, MODEL.classes)


def test_the_measures() -> None:
    image = DIGITS.x[0]
    assert cosine(image, image) == pytest.approx(1)
    assert cosine(0.5 * image + 0.2, image) == pytest.approx(
        1
    )  # brightness and contrast do not count
    assert cosine(1 - image, image) == pytest.approx(-1)
    assert cosine(torch.ones(1, 8, 8), image) == 0
    assert psnr(image, image) == math.inf
    assert psnr(torch.zeros(4), torch.full((4,), 0.1)) == pytest.approx(20)
