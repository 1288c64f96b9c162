"""2-D wavelet scattering of one image, normalised within the image.

Wavelet scattering is Bruna and Mallat's (arXiv:1203.1513). Shapes: images (n, depth, side, side) ->
features (n, 81·depth, side/4, side/4), float32, for J = 2 scales and L = 8 orientations. There are
1 average, J·L = 16 first-order and 8·8 = 64 second-order channels.

    S0 = x ∗ φ
    S1 = |x ∗ ψ(j1, θ1)| ∗ φ
    S2 = ||x ∗ ψ(j1, θ1)| ∗ ψ(j2, θ2)| ∗ φ  with j1 < j2

Why: under differential privacy a linear model on features that need no training beats a network
trained from noise (Tramèr and Boneh, arXiv:2011.11660). The filters are constants, and the
normalisation uses the mean and the variance of the one image only. No number crosses from one
record to another, so the features cost no privacy.

Filters and padding are those of kymatio (Andreux et al., arXiv:1812.11214): σ = 0.8·2^j, ξ =
3π/4·2^-j, slant 4/L, images reflected by one output pixel on each side.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import torch
from torch import Tensor
from torch.nn import functional

from tacit.errors import ConfigError

_ANGLES = 8  # L
_STEP = 4  # 2^J: the input pixels along an output pixel
_CHANNELS = 1 + 2 * _ANGLES + _ANGLES * _ANGLES
# Channels that share a mean and a variance: those of one order, scale and θ1.
_GROUPS = (1, *[_ANGLES] * (2 + _ANGLES))
_EPSILON = 1e-5  # added to a variance, as PyTorch's GroupNorm does


def shape_of(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return the shape of the features of an image of `shape`.

    Raises ConfigError if they are not defined for it.
    """
    if len(shape) != 3 or shape[1] != shape[2] or shape[1] % _STEP or shape[1] < 2 * _STEP:
        raise ConfigError(
            f"data.features = 'scattering' needs square images of a side that {_STEP} divides, "
            f"at least {2 * _STEP}, not {shape}"
        )
    return (_CHANNELS * shape[0], shape[1] // _STEP, shape[2] // _STEP)


def of_image(image: Tensor) -> Tensor:
    """Return features (81·depth, side/4, side/4) of one image (depth, side, side)."""
    return normalised(scattering(image)).view(shape_of(tuple(image.shape)))


def scattering(images: Tensor) -> Tensor:
    """Return scattering coefficients (n, 81, side/4, side/4) of images (n, side, side).

    In order: S0, S1 by (j1, θ1), S2 by (θ1, θ2).
    """
    bank = _bank(images.shape[-1])
    padded = functional.pad(images[:, None], (_STEP,) * 4, mode="reflect")  # (n, 1, m, m)
    spectrum = torch.fft.fft2(padded)
    fine = torch.fft.ifft2(spectrum * bank.fine).abs()  # U1 at j1 = 0: (n, L, m, m)
    coarse = _halved(spectrum, bank.coarse)  # U1 at j1 = 1: (n, L, m/2, m/2)
    second = _halved(torch.fft.fft2(fine).unsqueeze(2), bank.coarse)  # U2: (n, L, L, m/2, m/2)
    first = [_smooth(part, bank.low[0]) for part in (padded, fine)]
    return torch.cat(
        [*first, _smooth(coarse, bank.low[1]), _smooth(second.flatten(1, 2), bank.low[1])], dim=1
    )


def normalised(maps: Tensor) -> Tensor:
    """Return `maps` (n, 81, s, s), normalised in each image's own groups of channels.

    They have mean 0 and variance 1. Constants become 0.
    """
    groups = []
    for group in torch.split(maps, list(_GROUPS), dim=1):
        variance, mean = torch.var_mean(group, dim=(1, 2, 3), correction=0, keepdim=True)
        groups.append((group - mean) * torch.rsqrt(variance + _EPSILON))
    return torch.cat(groups, dim=1)


@dataclass(frozen=True, slots=True, eq=False)
class _Bank:
    """Filters for padded images of side m: ψ(0, θ) and ψ(1, θ)/4 in Fourier space, (L, m, m).

    low: φ and the step to output pixels as matrices. They are (m/4 - 2, m) for a map of full size
    and (m/4 - 2, m/2) for one of half size.
    """

    fine: Tensor
    coarse: Tensor
    low: tuple[Tensor, Tensor]


@lru_cache(maxsize=4)
def _bank(side: int) -> _Bank:
    padded = side + 2 * _STEP
    angles = [(_ANGLES // 2 - 1 - k) * math.pi / _ANGLES for k in range(_ANGLES)]
    fine, coarse = (
        torch.stack([torch.fft.fft2(morlet(padded, j, angle)) for angle in angles]) for j in (0, 1)
    )
    coarse = coarse / 4  # the inverse transform of a halved map divides by a quarter of the pixels
    low = _low_pass(padded, 1), _low_pass(padded, 2)
    return _Bank(fine.real.to(torch.float32), coarse.real.to(torch.complex64), low)


def morlet(side: int, j: int, angle: float) -> Tensor:
    """Return ψ(j, angle) (side, side) complex128, periodised, of mean 0.

    It is g·(exp(iξ·u) - β), with an elliptic Gaussian g.
    """
    sigma = 0.8 * 2**j
    frequency = 0.75 * math.pi / 2**j
    slant = 4 / _ANGLES
    reach = torch.arange(-2 * side, 3 * side, dtype=torch.float64)
    rows, columns = torch.meshgrid(reach, reach, indexing="ij")
    along = rows * math.cos(angle) + columns * math.sin(angle)
    across = columns * math.cos(angle) - rows * math.sin(angle)
    envelope = (
        torch.exp(-(along**2 + (slant * across) ** 2) / (2 * sigma**2))
        * slant
        / (2 * math.pi * sigma**2)
    )
    wave = _periodised(torch.polar(envelope, frequency * along), side)
    envelope = _periodised(envelope, side)
    return wave - wave.sum() / envelope.sum() * envelope


def _low_pass(padded: int, step: int) -> Tensor:
    """Return φ of σ = 0.8·2^(J-1) along one axis.

    It is read at the output pixels, for maps of every step-th pixel.
    """
    sigma = 0.8 * _STEP / 2
    reach = torch.arange(-2 * padded, 3 * padded, dtype=torch.float64)
    gauss = torch.exp(-(reach**2) / (2 * sigma**2)).view(5, padded).sum(0)
    at = torch.arange(_STEP, padded - _STEP, _STEP)[:, None]  # the reflected margin is left out
    weights = gauss[(at - torch.arange(0, padded, step)) % padded]
    return (weights / weights.sum(1, keepdim=True)).to(torch.float32)


def _periodised(wide: Tensor, side: int) -> Tensor:
    """Return (5·side, 5·side) -> (side, side): the sum over each pixel of a torus."""
    return wide.view(5, side, 5, side).sum((0, 2))


def _halved(spectrum: Tensor, filters: Tensor) -> Tensor:
    """Return |x ∗ ψ| at every other pixel, (..., L, m/2, m/2), from the spectrum (..., 1, m, m).

    Aliases are added before the inverse transform, which is then of half the size.
    """
    half = spectrum.shape[-1] // 2
    low = slice(0, half)
    high = slice(half, None)
    folded = spectrum[..., low, low] * filters[..., low, low]
    for rows, columns in ((low, high), (high, low), (high, high)):
        folded.addcmul_(spectrum[..., rows, columns], filters[..., rows, columns])
    maps: Tensor = torch.fft.ifft2(folded).abs()
    return maps


def _smooth(maps: Tensor, low: Tensor) -> Tensor:
    """Return x ∗ φ at the output pixels.

    It takes two small matrix products, as a Gaussian is separable.
    """
    smooth: Tensor = low @ maps @ low.T
    return smooth
