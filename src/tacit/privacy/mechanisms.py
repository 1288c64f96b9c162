"""The noise: a closed set of mechanisms, each with its guarantee. Nothing here may be replaced by a plug-in."""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor

from tacit.privacy.sampling import Random

GRID_BITS = 12  # a release is rounded to a grid at least 2^12 times finer than its noise


def standard_normal(count: int, random: Random) -> Tensor:
    """`count` float64 standard normals, each the half sum of four independent Box-Muller draws.

    Summing hides the low-order bits from which one floating-point sample betrays its uniform (Holohan and
    Braghin, "Secure random sampling in differential privacy", 2021). Uniforms have 52 bits and are centred, so
    that 0 and 1 never occur and one draw reaches 8.5σ. Heuristic against floating-point attacks, not a proof.
    """
    uniforms = torch.from_numpy((random.words(4 * count) >> np.uint64(12)).astype(np.float64)).add_(0.5).mul_(2.0**-52)
    radius, angle = torch.sqrt(-2.0 * torch.log(uniforms[: 2 * count])), (2.0 * math.pi) * uniforms[2 * count :]
    draws = torch.cat((radius * torch.cos(angle), radius * torch.sin(angle)))  # (4·count,), independent
    return draws.view(4, count).sum(dim=0).mul_(0.5)


def gaussian(total: Tensor, std: float, random: Random) -> Tensor:
    """total + N(0, std²·I), float64, rounded to a public power-of-two grid far below `std`.

    total: (d,). Formal guarantee: with l2 sensitivity S of `total`, this is the Gaussian mechanism of noise
    multiplier z = std/S; rounding is post-processing. The grid depends on `std` only.
    Raises ValueError for std <= 0, inf or nan, and for a non-finite `total`.
    """
    if not 0 < std < float("inf"):
        raise ValueError(f"std={std}: expected a finite number > 0")
    if not bool(torch.isfinite(total).all()):
        raise ValueError("a non-finite sum must never reach the mechanism")
    grid = 2.0 ** (math.floor(math.log2(std)) - GRID_BITS)
    noisy = total.to(torch.float64) + std * standard_normal(total.numel(), random)
    return torch.round(noisy / grid) * grid


def paper_noise(count: int, scale: float, random: Random) -> Tensor:
    """MAPA's eq. (6) as printed: a uniform direction whose *norm* is Exponential(scale); NOT private for d > 1.

    Returns (count,) float64. The density (ε/2ΔS)·exp(-ε||η||/ΔS) integrates to 1 only on the line; in d dimensions
    the likelihood ratio it gives is unbounded (docs/privacy.md). Kept to reproduce the paper's figures, and as
    the mutant that the audit must catch.
    """
    direction = standard_normal(count, random)
    uniform = (float(random.words(1)[0] >> np.uint64(12)) + 0.5) * 2.0**-52
    return direction * (-math.log(uniform) * scale / float(torch.linalg.vector_norm(direction)))
