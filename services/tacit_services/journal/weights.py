"""A model as a safetensors file whose bytes, and so its SHA-256, are a function of the weights alone."""

from __future__ import annotations

import safetensors.torch
from torch import Tensor

from tacit.models import Model


def weights(model: Model, params: Tensor) -> bytes:
    """The safetensors file of `params` (d,), one tensor per layer.

    No metadata: a version or a time in the header would give equal models different digests.
    """
    data: bytes = safetensors.torch.save(model.unflatten(params.detach().cpu()))
    return data
