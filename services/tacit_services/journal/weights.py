"""A model's weights as a safetensors file whose bytes depend on the weights alone."""

from __future__ import annotations

import hashlib

from torch import Tensor

from tacit.models import Model
from tacit_services.journal.safetensors_pieces import pieces


class Weights:
    """The file of the flat parameters `params` (d,), with one tensor for each layer.

    It has no metadata: a version or a time in the header would give equal models different digests.
    The pieces are views of `params`: nothing may be written into that meanwhile.
    """

    def __init__(self, model: Model, params: Tensor) -> None:
        self.pieces = pieces(model.unflatten(params.detach().cpu()))

    def __len__(self) -> int:
        return sum(len(piece) for piece in self.pieces)

    def sha256(self) -> str:
        """Return the file's digest, in hexadecimal."""
        hasher = hashlib.sha256()
        for piece in self.pieces:
            hasher.update(piece)
        return hasher.hexdigest()

    def whole(self) -> bytes:
        """Return the file; the tensors are copied."""
        return b"".join(self.pieces)


def weights(model: Model, params: Tensor) -> bytes:
    """Return the whole file of `params`."""
    return Weights(model, params).whole()
