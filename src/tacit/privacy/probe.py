"""A trial whether an example's gradient depends on the other examples of its batch.

It is made before a model sees a private row.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache

import torch
from torch import Tensor

from tacit.errors import PrivacyError
from tacit.models import Model
from tacit.models.vectors import example_gradients, linear_factors
from tacit.privacy.denormals import flushed

_SEED = 20240229
# Sizes of the parameters: ordinary ones, and large ones that cancel, which make a last bit large.
_SCALES = (0.1, 1e4)
# Factors on the other examples: the public row, ordinary and strange rows, rows that overflow.
_LENGTHS = (0.0, 100.0, 1e30, float("nan"))
# A text has so few different words; the other examples have any words, or one and the same.
_DISTINCT_WORDS, _WORD_LIMITS = 3, (2**31, 1)
# (params (d,), x (B, …), y (B,)) -> one row of numbers for each example
Gradients = Callable[[Tensor, Tensor, Tensor], Tensor]


@lru_cache(maxsize=64)
def _dependence(model: Model, device: str, rows: int) -> str:
    """By how much an example's gradient depends on the others, in words; empty if it does not."""
    kernel = _kernel(model)
    generator = torch.Generator().manual_seed(_SEED)
    kept = torch.arange(rows) % 3 == 0  # the other rows are exchanged
    for scale in _SCALES:
        params = (torch.randn(model.size, generator=generator) * scale).to(device)
        x, y = model.random_batch(rows, generator)
        # Few words, so that each comes again and again and its places are added up.
        x = x if x.is_floating_point() else x % _DISTINCT_WORDS
        first = kernel(params, x.to(device), y.to(device)).cpu()[kept].nan_to_num()
        others, labels = model.random_batch(rows, generator)
        for length in _LENGTHS if x.is_floating_point() else _WORD_LIMITS:
            other = others * length if x.is_floating_point() else others % length
            shown = torch.where(kept.view(-1, *[1] * (x.dim() - 1)), x, other)
            told = torch.where(kept.view(-1, *[1] * (y.dim() - 1)), y, labels)
            again = kernel(params, shown.to(device), told.to(device)).cpu()[kept].nan_to_num()
            if not torch.equal(first, again):
                return (
                    f"by {float((first - again).abs().max()):.2g} of {float(first.abs().max()):.2g}"
                )
    return ""


def require_separate_examples(
    model: Model, device: str = "cpu", shapes: Iterable[int] = (4,)
) -> None:
    """Raise PrivacyError, naming the model, unless an example's gradient is the same beside any
    others.

    shapes: how many rows are computed at a time. Clipping bounds what one record does to a sum only
    if the record changes no bit of the other rows' gradients. Batch normalization, or any statistic
    over the batch, breaks that unseen; so does a kernel that rounds by what else is there. Tried on
    public random inputs, with ordinary parameters and with large ones, in each shape: a third of
    the rows stay in their places, the others become zeros, other rows, rows that overflow, and nan.
    A trial, not a proof.
    """
    for rows in sorted(set(shapes)):
        if why := _dependence(model, device, rows):
            raise PrivacyError(
                f"model.name={model.name}: an example's gradient depends on its companions in a "
                f"batch of {rows} ({why}); such a model cannot be trained privately"
            )


def cancelling(model: Model, generator: torch.Generator) -> tuple[Tensor, Tensor, Tensor]:
    """Large parameters (d,) whose sums cancel for the first of a few rows x, y, also given.

    The last bias takes its scores away, so that what is left of them is rounding: a last bit that
    differs becomes another gradient.
    """
    params = torch.randn(model.size, generator=generator) * _SCALES[-1]
    x, y = model.random_batch(9, generator)
    name, shape = model.layout[-1]
    if name.endswith("bias"):
        params[-shape[0] :] -= model.logits(params, x[0])
    return params, x, y


def rows_alone(kernel: Gradients, model: Model, sizes: Iterable[int], device: str = "cpu") -> bool:
    """Whether `kernel` gives an example the same bits at any place of a batch of any of `sizes`.

    True allows to compute the drawn rows only, in any order. Tried as `require_separate_examples`
    does, with ordinary parameters and with large ones that cancel, in every place, and in the midst
    of zeros, other rows, rows that overflow, and nan. Matrix products of libraries fail on most
    machines.
    """
    generator = torch.Generator().manual_seed(_SEED)
    large, (one, *_), (label, *_) = cancelling(model, generator)
    ordinary = torch.randn(model.size, generator=generator) * _SCALES[0]
    for params in (ordinary.to(device), large.to(device)):
        found: list[Tensor] = []
        for size in sizes:
            for x, y, places in _surroundings(model, one, label, size, generator):
                with flushed():
                    found += kernel(params, x.to(device), y.to(device)).cpu()[places].nan_to_num()
        if not all(torch.equal(found[0], row) for row in found):
            return False
    return True


def _surroundings(
    model: Model, one: Tensor, label: Tensor, size: int, generator: torch.Generator
) -> Iterator[tuple[Tensor, Tensor, slice]]:
    """Batches of `size` with the row `one` everywhere, or in the midst; and where it is."""
    yield (
        one.expand(size, *one.shape).clone(),
        label.expand(size, *label.shape).clone(),
        slice(None),
    )
    lengths = _LENGTHS if one.is_floating_point() else _WORD_LIMITS
    for length in lengths:
        x, y = model.random_batch(size, generator)
        x = x * length if one.is_floating_point() else x % length
        x[size // 2], y[size // 2] = one, label
        yield x, y, slice(size // 2, size // 2 + 1)


def _kernel(model: Model) -> Gradients:
    """What the edge computes of each row."""

    def compute(params: Tensor, x: Tensor, y: Tensor) -> Tensor:
        with flushed():
            if model.linear:  # its gradient is the product of the factors
                return torch.cat(
                    [factor.flatten(1) for factor in linear_factors(model, params, x, y)], dim=1
                )
            return example_gradients(model, params, x, y)

    return compute
