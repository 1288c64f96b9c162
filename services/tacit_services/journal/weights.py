"""A model's weights as a safetensors file whose bytes depend on the weights alone."""

from __future__ import annotations

import safetensors.torch
from torch import Tensor

from tacit.models import Model


def weights(model: Model, params: Tensor) -> bytes:
    """The safetensors file of the flat parameters `params` (d,), with one tensor for each layer.

    It has no metadata: a version or a time in the header would give equal models different digests.
    """
    data: bytes = safetensors.torch.save(model.unflatten(params.detach().cpu()))
    return data
