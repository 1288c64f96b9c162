"""Tests of a model, before it sees a private row: does an example's gradient depend on its batch?

They run on public random inputs. They are trials, not proofs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache

import torch
from torch import Tensor

from tacit.errors import PrivacyError
from tacit.models import Model
from tacit.models.vectors import example_gradients, linear_factors
from tacit.privacy.private_sum.denormals import flushed

_SEED = 20240229
# Sizes of the parameters: ordinary ones, and large ones that cancel, which make a last bit large.
_SCALES = (0.1, 1e4)
# Factors on the other examples: the public row, ordinary and strange rows, rows that overflow.
_LENGTHS = (0.0, 100.0, 1e30, float("nan"))
# Different words in a kept text. The other examples have any words, or one word only.
_DISTINCT_WORDS = 3
_WORD_LIMITS = (2**31, 1)
# (params (d,), x (B, …), y (B,)) -> one row of numbers for each example
Gradients = Callable[[Tensor, Tensor, Tensor], Tensor]


@lru_cache(maxsize=64)
def _dependence(model: Model, device: str, rows: int, scores: bool = False) -> str:
    """Return by how much an example's gradient depends on the others, in words; "" for not.

    scores: of its scores in the place of its gradient.
    """
    kernel = _score_kernel(model) if scores else _kernel(model)
    generator = torch.Generator().manual_seed(_SEED)
    fixed = torch.arange(rows) % 3 == 0  # the other rows are exchanged
    for scale in _SCALES:
        params = (torch.randn(model.size, generator=generator) * scale).to(device)
        x, y = model.random_batch(rows, generator)
        # Few words, so that each comes again and again and its places are added up.
        if not x.is_floating_point():
            x = x % _DISTINCT_WORDS
        first = kernel(params, x.to(device), y.to(device)).cpu()[fixed].nan_to_num()
        others, labels = model.random_batch(rows, generator)
        for length in _LENGTHS if x.is_floating_point() else _WORD_LIMITS:
            if x.is_floating_point():
                other = others * length
            else:
                other = others % length
            inputs = torch.where(fixed.view(-1, *[1] * (x.dim() - 1)), x, other)
            targets = torch.where(fixed.view(-1, *[1] * (y.dim() - 1)), y, labels)
            again = kernel(params, inputs.to(device), targets.to(device)).cpu()[fixed].nan_to_num()
            if not torch.equal(first, again):
                return (
                    f"by {float((first - again).abs().max()):.2g} of {float(first.abs().max()):.2g}"
                )
    return ""


def require_separate_examples(
    model: Model, device: str = "cpu", shapes: Iterable[int] = (4,)
) -> None:
    """Raise PrivacyError if an example's gradient depends on the other examples of its batch.

    Clipping bounds what one record does to a sum only if the record changes no bit of the other
    rows' gradients. Batch normalization, or any statistic over the batch, breaks that silently. So
    does a kernel whose rounding depends on the other rows. shapes: the numbers of rows that are
    computed at a time. Each is tried with ordinary and with large parameters. A third of the rows
    stay in place, while the others become zeros, other rows, rows that overflow, and nan.
    """
    for rows in sorted(set(shapes)):
        if why := _dependence(model, device, rows):
            raise PrivacyError(
                f"model.name={model.name}: an example's gradient depends on its companions in a "
                f"batch of {rows} ({why}); such a model cannot be trained privately"
            )


def require_separate_scores(model: Model, device: str, shapes: Iterable[int]) -> None:
    """Raise PrivacyError if an example's scores depend on the other examples of its batch.

    It is tried as gradients are. Else one held-out row could change what is counted of another.
    """
    for rows in sorted(set(shapes)):
        if why := _dependence(model, device, rows, scores=True):
            raise PrivacyError(
                f"model.name={model.name}: an example's scores depend on its companions in a batch "
                f'of {rows} ({why}); evaluation.at="edges" cannot judge such a model'
            )


def cancelling(model: Model, generator: torch.Generator) -> tuple[Tensor, Tensor, Tensor]:
    """Return large parameters (d,), and a few rows x, y, for the first of which sums cancel.

    The last bias is minus that row's scores, so that only rounding is left of them: a last bit that
    differs gives a different gradient.
    """
    params = torch.randn(model.size, generator=generator) * _SCALES[-1]
    x, y = model.random_batch(9, generator)
    name, shape = model.layout[-1]
    if name.endswith("bias") and shape == (model.classes,):
        params[-shape[0] :] -= model.logits(params, x[0]).reshape(-1, model.classes)[0]
    return params, x, y


def rows_alone(kernel: Gradients, model: Model, sizes: Iterable[int], device: str = "cpu") -> bool:
    """Check whether `kernel` gives an example the same bits anywhere in a batch of any of `sizes`.

    If so, the drawn rows alone may be computed, in any order. As in `require_separate_examples` it
    is tried with ordinary parameters and with large ones that cancel, at every place, and between
    zeros, other rows, rows that overflow, and nan. Libraries' matrix products fail on most
    machines.
    """
    generator = torch.Generator().manual_seed(_SEED)
    large, (example, *_), (label, *_) = cancelling(model, generator)
    ordinary = torch.randn(model.size, generator=generator) * _SCALES[0]
    for params in (ordinary.to(device), large.to(device)):
        first: Tensor | None = None
        for size in sizes:
            for x, y, places in _surroundings(model, example, label, size, generator):
                with flushed():
                    gradients = (
                        kernel(params, x.to(device), y.to(device)).cpu()[places].nan_to_num_()
                    )
                if first is None:
                    first = gradients[0].clone()
                if not all(torch.equal(first, row) for row in gradients):
                    return False
    return True


def _surroundings(
    model: Model, example: Tensor, label: Tensor, size: int, generator: torch.Generator
) -> Iterator[tuple[Tensor, Tensor, slice]]:
    """Yield batches of `size` with `example` everywhere, or in the middle; and its places."""
    yield (
        example.expand(size, *example.shape).clone(),
        label.expand(size, *label.shape).clone(),
        slice(None),
    )
    lengths = _LENGTHS if example.is_floating_point() else _WORD_LIMITS
    for length in lengths:
        x, y = model.random_batch(size, generator)
        if example.is_floating_point():
            x = x * length
        else:
            x = x % length
        x[size // 2], y[size // 2] = example, label
        yield x, y, slice(size // 2, size // 2 + 1)


def _score_kernel(model: Model) -> Gradients:
    """Return the function by which an edge judges: scores, and what they stand for."""

    @torch.no_grad()
    def compute(params: Tensor, x: Tensor, y: Tensor) -> Tensor:
        with flushed():
            scores = model.logits(params, x).reshape(len(x), -1)
            return torch.cat((scores, scores.softmax(1)), dim=1)

    return compute


def _kernel(model: Model) -> Gradients:
    """Return the function by which an edge computes what it needs of each row."""

    def compute(params: Tensor, x: Tensor, y: Tensor) -> Tensor:
        with flushed():
            if model.linear:  # its gradient is the product of the factors
                return torch.cat(
                    [factor.flatten(1) for factor in linear_factors(model, params, x, y)], dim=1
                )
            return example_gradients(model, params, x, y)

    return compute
