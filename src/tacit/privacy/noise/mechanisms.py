"""The noise: a closed set of mechanisms, which no plug-in can extend or replace.

| function            | run file            | guarantee                                            |
| ------------------- | ------------------- | ---------------------------------------------------- |
| `discrete_gaussian` | `discrete_gaussian` | Rényi-DP on exact integers; the default              |
| `gaussian`          | `gaussian`          | Gaussian mechanism; floating point hardened          |
| `knorm`             | `knorm`             | pure ε-DP (δ = 0); floating point hardened           |
| `paper_noise`       | `paper…`            | none for d > 1: it reproduces MAPA's published noise |

The other public functions here are what these four are made of.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from decimal import Decimal, localcontext
from functools import lru_cache

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from tacit.kernels.loading import library
from tacit.privacy.noise.grid import GRID_BITS, REACH, noise_units
from tacit.privacy.noise.randomness import Random

_GUIDE_BITS = 16  # a guide of 2^16 places is 256 KiB: it stays in a core's second cache
_NOT_FINITE = "a non-finite sum must never reach the mechanism"


def standard_normal(count: int, random: Random) -> Tensor:
    """Return `count` float64 standard normals.

    Each is half the sum of four independent Box-Muller draws. Summing hides the low-order bits,
    from which one floating-point sample betrays its uniform (Holohan and Braghin, "Secure random
    sampling in differential privacy", arXiv:2107.10138). Uniforms have 52 bits and are centred, so
    that 0 and 1 never occur and one draw reaches 8.5σ. A pair of uniforms gives two draws, a cosine
    and a sine, which go to different normals. This is a heuristic against floating-point attacks,
    not a proof. Compiled or not, the same words give the same normals to within 2^-46.

    >>> normals = standard_normal(100_000, Random(1))
    >>> normals.dtype, abs(float(normals.mean())) < 0.02, abs(float(normals.std()) - 1) < 0.02
    (torch.float64, True, True)
    """
    pairs = 2 * max(2, count)
    words = random.words(2 * pairs)
    kernels = library()
    if kernels is not None:
        normals = np.empty(count)
        kernels.normals(words, np.empty((2, pairs)), normals)
        return torch.from_numpy(normals)
    cosines, sines = _pairs(words)
    # A normal gets the sine of the pair before its cosine's, so that its four pairs all differ.
    draws = torch.cat((cosines, torch.roll(sines, 1)))  # independent
    return draws.view(4, -1).sum(dim=0).mul_(0.5)[:count]


def _pairs(words: NDArray[np.uint64]) -> tuple[Tensor, Tensor]:
    """Transform by Box and Muller: r·cos 2πt and r·sin 2πt.

    The radii are of the first half of the words. The definition of what `kernels.noise.normals`
    adds up.
    """
    uniforms = torch.from_numpy(_uniform(words))
    first, second = torch.chunk(uniforms, 2)
    radius = torch.sqrt(-2.0 * torch.log(first))
    angle = (2.0 * math.pi) * second
    return radius * torch.cos(angle), radius * torch.sin(angle)


def gaussian(total: Tensor, std: float, random: Random) -> Tensor:
    """Return total + N(0, std²·I), float64, rounded to a public power-of-two grid far below `std`.

    total: (d,).

    Guarantee: if the l2 sensitivity of `total` is S, this is the Gaussian mechanism of noise
    multiplier z = std/S. Rounding is post-processing. The grid depends on `std` only.

    Raises ValueError for std <= 0, inf or nan, and for a non-finite `total`.

    >>> noisy = gaussian(torch.full((100_000,), 3.0), 0.5, Random(1))
    >>> abs(float(noisy.mean()) - 3.0) < 0.01, abs(float(noisy.std()) - 0.5) < 0.01
    (True, True)
    >>> bool((noisy % 2.0**-13 == 0).all())  # the grid of std = 2^-1 is 2^(-1 - GRID_BITS)
    True
    """
    if not 0 < std < float("inf"):
        raise ValueError(f"std={std}: expected a finite number > 0")
    grid = 2.0 ** (math.floor(math.log2(std)) - GRID_BITS)
    wide = total.to(torch.float64)
    noise = standard_normal(total.numel(), random)
    if (kernels := library()) is None:
        finite = bool(torch.isfinite(wide).all())
        noise = torch.round((wide + std * noise) / grid) * grid
    else:
        finite = kernels.add_on_grid(wide.numpy(), std, grid, noise.numpy()) == 0
    if not finite:
        raise ValueError(_NOT_FINITE)
    return noise


def discrete_gaussian(total: Tensor, multiplier: float, random: Random) -> Tensor:
    """Return total + N_Z(0, S²)^d in exact integers.

    total: (d,) int64, from `clipping.integer_sum`. Returns (d,) int64.

    Guarantee: let `total` move by at most S/z in l2 norm, on the integer lattice, exactly. Then the
    Rényi divergence at every integer order, Poisson sampling included, is that of the Gaussian
    mechanism of noise multiplier z = `multiplier`. (docs/privacy.md, "Accounting", and Canonne,
    Kamath and Steinke, arXiv:2004.00010.) No floating-point number is released, so nothing can leak
    through one. Sampling is by inverse CDF on 128 bits, of which the last 64 are drawn only when
    they decide. The total variation is below 2^-110 a coordinate, with no rejection, in near
    constant time.

    Raises ValueError for a multiplier outside (0, inf) and for a `total` that is not int64.

    >>> noisy = discrete_gaussian(torch.zeros(100_000, dtype=torch.int64), 1.0, Random(1))
    >>> noisy.dtype, abs(float(noisy.double().std()) / noise_units(1.0) - 1) < 0.02
    (torch.int64, True)
    """
    if not 0 < multiplier < math.inf:
        raise ValueError(f"multiplier={multiplier}: expected a finite number > 0")
    if total.dtype != torch.int64:
        raise ValueError(f"{total.dtype}: the discrete Gaussian adds to exact integers only")
    return discrete_normal(total.numel(), noise_units(multiplier), random).add_(total)


def discrete_normal(count: int, std: float, random: Random) -> Tensor:
    """Return `count` int64 draws from the discrete Gaussian of parameter `std`.

    P(k) ∝ exp(-k²/2std²). Compiled or not, the same words give the same draws, bit for bit. The
    time depends on the noise only: a search has one step for most words, and up to 17 in the tails.

    >>> draws = discrete_normal(100_000, 8.0, Random(1))
    >>> draws.dtype, abs(float(draws.double().std()) / 8 - 1) < 0.02
    (torch.int64, True)
    """
    high, exact = _cumulative(std)
    words = random.words(count)
    places, on_boundary = _places(words, high) if library() is None else _guided(words, high, std)
    for i in on_boundary:
        # The first 64 bits lie on a boundary (probability 10^-14): the next 64 decide the side.
        places[i] = bisect_right(exact, int(words[i]) << 64 | int(random.words(1)[0]))
    places -= len(high) // 2
    return torch.from_numpy(places)


def _places(
    words: NDArray[np.uint64], high: NDArray[np.uint64]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return how many of the sorted `high` are <= each word, and which words equal one of them."""
    places = np.searchsorted(high, words, side="right")
    equal = (places > 0) & (high[np.maximum(places, 1) - 1] == words)
    return places, np.flatnonzero(equal)


def _guided(
    words: NDArray[np.uint64], high: NDArray[np.uint64], std: float
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return `_places`, compiled: a word's first bits give the two places to search between."""
    kernels = library()
    assert kernels is not None
    places = np.empty(len(words), dtype=np.int64)
    if not kernels.places(words, high, _guide(std), 64 - _GUIDE_BITS, places):
        return places, places[:0]
    return places, _places(words, high)[1]


@lru_cache(maxsize=4)
def _guide(std: float) -> NDArray[np.int32]:
    """Return (2^16 + 1,): how many of `_cumulative`'s numbers are below j·2^48."""
    high, _ = _cumulative(std)
    starts = np.arange(2**_GUIDE_BITS, dtype=np.uint64) << np.uint64(64 - _GUIDE_BITS)
    return np.append(np.searchsorted(high, starts), len(high)).astype(np.int32)


@lru_cache(maxsize=4)
def _cumulative(std: float) -> tuple[NDArray[np.uint64], list[int]]:
    """Return floor(2^128·P(k < j)) for j = -m+1 … m: its high 64 bits, and the whole numbers.

    Beyond m = REACH·std lies a probability of 2^-131.
    """
    unit = 1 << 192
    reach = math.ceil(REACH * std)
    with localcontext() as context:
        context.prec = 80
        inverse = 1 / Decimal(std) ** 2
        ratio = int((-inverse / 2).exp() * unit)
        step = int((-inverse).exp() * unit)
    weights = [unit]  # exp(-k²/2std²), k = 0, 1, …: w_{k+1} = w_k·r_k, r_{k+1} = r_k·exp(-1/std²)
    for _ in range(reach):
        weights.append(weights[-1] * ratio >> 192)
        ratio = ratio * step >> 192
    both = [*weights[:0:-1], *weights]
    total = sum(both)
    running = 0
    exact = []
    for weight in both[:-1]:
        running += weight
        exact.append((running << 128) // total)
    return np.array([value >> 64 for value in exact], dtype=np.uint64), exact


def knorm(total: Tensor, scale: float, random: Random) -> Tensor:
    """Return total + η with density proportional to exp(-||η||₂/scale).

    It is the Laplace law in d dimensions.

    total: (d,). Returns (d,) float64. The radius is Gamma(d, scale), the direction uniform, and a
    coordinate's variance is (d+1)·scale².

    Guarantee: if the l2 sensitivity of `total` is S, this is (S/scale)-DP with δ = 0, by the
    triangle inequality. (Hardt and Talwar, "On the geometry of differential privacy",
    arXiv:0907.3754.) Against floating-point attacks it has what `gaussian` has: a public grid below
    the noise, not a proof.

    Raises ValueError for scale <= 0, inf or nan, and for a non-finite `total`.

    >>> noisy = knorm(torch.zeros(10_000), 0.5, Random(1))  # the radius is about d·scale
    >>> abs(float(torch.linalg.vector_norm(noisy)) / 5_000 - 1) < 0.05
    True
    """
    if not 0 < scale < math.inf:
        raise ValueError(f"scale={scale}: expected a finite number > 0")
    if not bool(torch.isfinite(total).all()):
        raise ValueError(_NOT_FINITE)
    dims = total.numel()
    direction = standard_normal(dims, random)
    # Gamma(d) is the sum of d exponentials.
    radius = -scale * math.fsum(np.log(_uniforms(dims, random)))
    noisy = total.to(torch.float64) + direction * (
        radius / float(torch.linalg.vector_norm(direction))
    )
    grid = 2.0 ** (math.floor(math.log2(scale)) - GRID_BITS)
    return torch.round(noisy / grid) * grid


def _uniforms(count: int, random: Random) -> NDArray[np.float64]:
    """Return uniforms on (0, 1) of 52 bits each, never 0 or 1."""
    return _uniform(random.words(count))


def _uniform(words: NDArray[np.uint64]) -> NDArray[np.float64]:
    return ((words >> np.uint64(12)).astype(np.float64) + 0.5) * 2.0**-52


def paper_noise(count: int, scale: float, random: Random) -> Tensor:
    """Return MAPA's eq. (6) as printed (arXiv:1912.07902): NOT private for d > 1.

    Returns (count,) float64: a uniform direction whose *norm* is Exponential(scale). The density
    (ε/2ΔS)·exp(-ε||η||/ΔS) integrates to 1 only on the line; in d dimensions the likelihood ratio
    that it gives is unbounded (docs/privacy.md). It is here to reproduce the paper's figures, and
    as the mutant that the audit must catch.

    >>> random = Random(1)
    >>> lengths = [float(paper_noise(5, 2.0, random).norm()) for _ in range(2_000)]
    >>> abs(sum(lengths) / 2_000 - 2.0) < 0.2
    True
    """
    direction = standard_normal(count, random)
    return direction * (
        -math.log(_uniforms(1, random)[0]) * scale / float(torch.linalg.vector_norm(direction))
    )
