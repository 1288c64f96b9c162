"""Frozen features: the scattering transform follows its formula and sees one image alone."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
import pytest
import torch
from torch import Tensor

from tacit import config
from tacit.datasets import load, shape_of
from tacit.datasets.features import apply, shape_with
from tacit.datasets.features.scattering import morlet, normalised, scattering
from tacit.errors import ConfigError

ANGLES = 8


def images(count: int, side: int, seed: int = 0) -> Tensor:
    return torch.rand(count, side, side, generator=torch.Generator().manual_seed(seed))


def stroke(side: int = 28, shift: int = 0) -> Tensor:
    """Draw a smooth bent line in the middle of a dark image, `shift` pixels to the right."""
    rows, columns = torch.meshgrid(
        torch.arange(side) - side / 2, torch.arange(side) - side / 2, indexing="ij"
    )
    across = columns - shift - 0.05 * rows**2
    return torch.exp(-(across**2) / 4 - (rows / 7) ** 4)[None]


# -- the transform ---------------------------------------------------------------------------------


def convolved(maps: np.ndarray, kernel: np.ndarray) -> np.ndarray:
    """Return the cyclic convolution by its definition: one shift at a time."""
    out = np.zeros(maps.shape, complex)
    for (row, column), weight in np.ndenumerate(kernel):
        out += weight * np.roll(maps, (row, column), (0, 1))
    return out


def gauss(side: int, step: int) -> np.ndarray:
    """Return φ for a map of every step-th pixel: σ = 1.6 input pixels, sum 1."""
    at = step * (np.arange(side) + side * np.arange(-3, 4)[:, None])  # seven turns around the torus
    line = np.exp(-(at**2) / (2 * 1.6**2)).sum(0)
    plane: np.ndarray = np.outer(line, line) / line.sum() ** 2
    return plane


def by_definition(image: Tensor) -> Iterator[np.ndarray]:
    """Compute the slow twin in float64: every channel in order.

    It sums over shifts, without a Fourier transform.
    """
    x = np.pad(image.double().numpy(), 4, mode="reflect")
    side = len(x)
    wavelets = {
        (j, k): morlet(side, j, (3 - k) * math.pi / ANGLES).numpy()
        for j in (0, 1)
        for k in range(ANGLES)
    }

    def averaged(maps: np.ndarray, step: int) -> np.ndarray:
        smooth: np.ndarray = convolved(maps, gauss(len(maps), step)).real
        return smooth[4 // step : -4 // step : 4 // step, 4 // step : -4 // step : 4 // step]

    fine = [np.abs(convolved(x, wavelets[0, k])) for k in range(ANGLES)]
    yield averaged(x, 1)
    yield from (averaged(u, 1) for u in fine)
    yield from (averaged(np.abs(convolved(x, wavelets[1, k]))[::2, ::2], 2) for k in range(ANGLES))
    for u in fine:
        yield from (
            averaged(np.abs(convolved(u, wavelets[1, k]))[::2, ::2], 2) for k in range(ANGLES)
        )


def test_every_channel_equals_its_definition() -> None:
    (image,) = images(1, 8)
    expected = np.stack(list(by_definition(image)))
    maps = scattering(image[None])[0].numpy()
    assert maps.shape == expected.shape == (81, 2, 2)
    assert np.allclose(maps, expected, atol=1e-5)


def test_a_wave_of_one_frequency_by_hand() -> None:
    """Take x = (-1)^row, whose |x ∗ ψ| is |ψ^(π, 0)| everywhere.

    So S1 is that number, and S2, which sees a constant, is 0.
    """
    x = (1.0 - 2.0 * (torch.arange(28) % 2)).repeat(28, 1).T[None]
    maps = scattering(x)[0]
    sigma, xi = 0.8, 3 * math.pi / 4

    def bump(w: float) -> float:
        return math.exp(-((sigma * w) ** 2) / 2)

    # A sampled filter's spectrum repeats every 2π: at π it is the sum of what lies at π and at -π.
    along = bump(math.pi - xi) + bump(math.pi + xi) - bump(xi) * 2 * bump(math.pi)
    assert float(maps[0].abs().max()) < 0.01  # φ passes no such wave
    assert torch.allclose(maps[1 + 3], torch.full((7, 7), along), atol=0.02)  # j = 0, θ = 0
    assert maps[17:].abs().max() < 1e-5


@pytest.mark.parametrize("j", [0, 1])
@pytest.mark.parametrize("angle", [0.0, math.pi / 8, -math.pi / 2])
def test_a_wavelet_has_mean_zero_and_real_fourier_coefficients(j: int, angle: float) -> None:
    wavelet = morlet(36, j, angle)
    assert abs(complex(wavelet.sum())) < 1e-12
    assert torch.fft.fft2(wavelet).imag.abs().max() < 1e-9


def test_the_transform_does_not_expand() -> None:
    """Compare energies and distances of features with those of the padded images (Mallat 2012)."""
    x, y = images(6, 28), images(6, 28, seed=1)
    padded = torch.nn.functional.pad((x - y)[:, None], (4,) * 4, mode="reflect")
    change = torch.linalg.vector_norm(scattering(x) - scattering(y), dim=(1, 2, 3))
    assert (change < torch.linalg.vector_norm(padded, dim=(1, 2, 3))).all()


@pytest.mark.parametrize("shift", [1, 2])
def test_a_shift_moves_the_features_far_less_than_the_pixels(shift: int) -> None:
    def change(a: Tensor, b: Tensor) -> float:
        return float(torch.linalg.vector_norm(a - b) / torch.linalg.vector_norm(a))

    still, moved = stroke(), stroke(shift=shift)
    assert change(scattering(still), scattering(moved)) < 2 / 3 * change(still, moved)


# -- one image, nothing else -----------------------------------------------------------------------


@pytest.mark.parametrize("value", [0.0, 0.3, 1.0])
def test_a_constant_image_has_no_features(value: float) -> None:
    assert apply("scattering", torch.full((1, 1, 28, 28), value)).abs().max() < 1e-3


def test_every_group_has_mean_zero_and_variance_at_most_one() -> None:
    maps = apply("scattering", images(3, 28)[:, None])
    assert maps.shape == (3, 81, 7, 7)
    groups = torch.split(maps, [1] + [8] * 10, dim=1)
    for group in groups:
        assert torch.allclose(group.mean((1, 2, 3)), torch.zeros(3), atol=1e-5)
        assert (group.var((1, 2, 3), correction=0) <= 1 + 1e-5).all()


def test_normalisation_by_hand() -> None:
    """Normalise a group of the average channel alone: values 1 and 3 become -1 and 1.

    A group of one value becomes 0.
    """
    maps = torch.full((1, 81, 1, 2), 5.0)
    maps[0, 0, 0] = torch.tensor([1.0, 3.0])
    scaled = normalised(maps)
    assert torch.allclose(scaled[0, 0, 0], torch.tensor([-1.0, 1.0]), atol=1e-4)
    assert scaled[0, 1:].abs().max() == 0


def test_an_image_has_the_same_features_alone_and_in_any_batch() -> None:
    """Compare to the last bit.

    Sensitivity rests on it: what a record contributes must not depend on its neighbours.
    """
    x = images(37, 28)[:, None]
    together = apply("scattering", x)
    assert torch.equal(
        torch.cat([apply("scattering", image) for image in torch.split(x, 1)]), together
    )
    assert torch.equal(apply("scattering", x.flip(0)).flip(0), together)
    assert torch.equal(apply("scattering", x), together)
    assert together.dtype == torch.float32


def test_no_image_gives_no_features_and_no_features_leave_the_pixels() -> None:
    x = images(4, 8)[:, None]
    assert apply("scattering", x[:0]).shape == (0, 81, 2, 2)
    assert apply("none", x) is x


def test_every_plane_of_an_image_is_transformed_alone() -> None:
    x = images(6, 8).view(3, 2, 8, 8)
    planes = apply("scattering", x.flatten(0, 1)[:, None])
    assert torch.equal(apply("scattering", x), planes.view(3, 162, 2, 2))


# -- shapes and refusals ---------------------------------------------------------------------------


def test_shapes() -> None:
    assert shape_with("none", (5,)) == (5,)
    assert shape_with("scattering", (3, 32, 32)) == (243, 8, 8)
    assert shape_of("mnist", "scattering") == ((81, 7, 7), 10)


@pytest.mark.parametrize("shape", [(784,), (28, 28), (1, 28, 24), (1, 30, 30), (1, 4, 4)])
def test_what_is_no_square_image_is_refused_in_one_line(shape: tuple[int, ...]) -> None:
    with pytest.raises(
        ConfigError, match=r"^data\.features = 'scattering' needs square images .*$"
    ) as refused:
        apply("scattering", torch.zeros(2, *shape))
    assert str(shape) in str(refused.value)


def test_a_dataset_is_loaded_with_its_features() -> None:
    rows = torch.tensor([7, 3])
    loaded, pixels = (
        load("digits", "train", None, rows, "scattering"),
        load("digits", "train", None, rows),
    )
    assert torch.equal(loaded.x, apply("scattering", pixels.x))
    assert torch.equal(loaded.y, pixels.y)


RUN = """
run.updates = 10
data.dataset = "mnist"
data.features = "{features}"
model.name = "{model}"
algorithm.name = "mapa"
"""


def test_the_model_has_the_features_shape_and_another_schema() -> None:
    plain = config.parse(RUN.format(features="none", model="logistic"), "f")
    run = config.parse(RUN.format(features="scattering", model="logistic"), "f")
    model = run.build_model()
    assert (model.shape, model.size) == ((81, 7, 7), 39_700)
    assert model.schema() != plain.build_model().schema()
    assert run.fingerprint() != plain.fingerprint()


def test_features_for_a_network_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"^f: data\.features=scattering: needs model\.name"):
        config.parse(RUN.format(features="scattering", model="cnn"), "f")


def test_unknown_features_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"data\.features='fourier'"):
        config.parse(RUN.format(features="fourier", model="logistic"), "f")
