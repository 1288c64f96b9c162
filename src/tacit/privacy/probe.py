"""Does a model look across examples? Asked of the model itself, before it sees a private row."""

from __future__ import annotations

import torch

from tacit.errors import PrivacyError
from tacit.models import Model
from tacit.vectors import example_gradients

_COMPANIONS = 3
_EQUAL = 1e-6  # relative to the largest element: rounding, where a kernel sums in another order
_SEED = 20240229


def require_separate_examples(model: Model, device: str = "cpu") -> None:
    """Raise PrivacyError, naming the model, unless an example's gradient is the same in any company.

    Clipping bounds what one record does to a sum only if it does nothing to the other rows' gradients; batch
    normalization, or any statistic over the batch, breaks that unseen. Tried on public random parameters and inputs,
    with two sets of companions, of which one is a hundred times larger than the other (or of other words).
    """
    generator = torch.Generator().manual_seed(_SEED)
    params = torch.randn(model.size, generator=generator) * 0.1
    x, y = model.random_batch(1 + _COMPANIONS, generator)
    others, labels_of_others = model.random_batch(_COMPANIONS, generator)
    others = others * 100 if others.is_floating_point() else others
    rows = []
    for inputs, labels in ((x, y), (torch.cat((x[:1], others)), torch.cat((y[:1], labels_of_others)))):
        gradients = example_gradients(model, params.to(device), inputs.to(device), labels.to(device))
        rows.append(gradients[0].cpu())
    scale = float(rows[0].abs().max())
    difference = float((rows[0] - rows[1]).abs().max())
    if not difference <= _EQUAL * max(scale, 1e-6):  # so that nan fails too
        raise PrivacyError(
            f"model.name={model.name}: an example's gradient depends on its companions in the batch (by "
            f"{difference:.2g} of {scale:.2g}); such a model cannot be trained privately"
        )
