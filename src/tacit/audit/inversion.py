"""The attack that privacy has to stop: an image back from the gradient of softmax regression.

MAPA's Fig. 4 (arXiv:1912.07902), after Phong et al. ("Privacy-preserving deep learning via
additively homomorphic encryption", doi:10.1109/TIFS.2017.2787987). For one image x with residual r
= p - y the gradient is dW = r·xᵀ and db = r. It has rank one, so its leading singular vector *is*
the image, and its label is where db is lowest. The singular vector, unlike the quotient dW/db,
survives noise, as it averages over all classes (docs/attacks.md). Of a batch it is the mixture that
the labels make.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

# A reconstruction's scale is believed if its brightest pixel is in here; images lie in [0, 1].
_PLAUSIBLE = (0.5, 2.0)


@dataclass(frozen=True, slots=True)
class Reconstruction:
    """An image that was reconstructed from a gradient.

    image: (*shape) float64 in [0, 1]. label: the class that it is thought to be.
    """

    image: Tensor
    label: int


def invert(gradient: Tensor, shape: tuple[int, ...], classes: int) -> Reconstruction:
    """Return the image and label behind a gradient of softmax regression.

    The gradient may be noisy, clipped and averaged.

    gradient: (classes·prod(shape) + classes,), the weights row-major and then the biases, as
    `models.build("logistic")` lays them out. Exact for one image without noise, up to the
    gradient's own rounding. A gradient of pure noise gives an image of noise.
    Raises ValueError for another length or a non-finite value.
    """
    features = math.prod(shape)
    if gradient.numel() != classes * (features + 1) or not bool(torch.isfinite(gradient).all()):
        raise ValueError(
            f"{gradient.numel()} values: expected {classes * (features + 1)} finite ones"
        )
    weight, bias = torch.split(gradient.to(torch.float64), [classes * features, classes])
    left_vectors, values, right_vectors = torch.linalg.svd(
        weight.view(classes, features), full_matrices=False
    )
    # r/||r|| (classes,) and x/||x|| (features,), up to one common sign.
    residual = left_vectors[:, 0]
    image = right_vectors[0]
    # pixels are not negative
    if float(image.sum()) >= 0:
        sign = 1.0
    else:
        sign = -1.0
    scale = float(values[0] / (residual @ bias))  # σ = ||r||·||x||, u·db = ||r||
    return Reconstruction(_scaled(sign * image, abs(scale)).view(shape), int(bias.argmin()))


def cosine(reconstructed: Tensor, original: Tensor) -> float:
    """Return the cosine between two images, each less its own mean; 0 where one is flat."""
    a, b = (
        image.to(torch.float64).flatten() - image.to(torch.float64).mean()
        for image in (reconstructed, original)
    )
    norms = float(a.norm() * b.norm())
    if norms:
        return float(a @ b) / norms
    return 0.0


def psnr(reconstructed: Tensor, original: Tensor) -> float:
    """Return the peak signal-to-noise ratio in dB of images in [0, 1]; infinite for equal ones.

    Below 15 dB little is seen.
    """
    error = float((reconstructed.to(torch.float64) - original.to(torch.float64)).square().mean())
    if error:
        return -10 * math.log10(error)
    return math.inf


def _scaled(image: Tensor, scale: float) -> Tensor:
    """Return `image` brought to [0, 1].

    At the gradient's own scale where that is plausible; else so that its brightest pixel is 1.
    """
    brightest = float(image.max())
    low, high = _PLAUSIBLE
    if math.isfinite(scale) and low <= scale * brightest <= high:
        factor = scale
    else:
        factor = 1 / max(brightest, 1e-300)
    return (image * factor).clamp(0.0, 1.0)
