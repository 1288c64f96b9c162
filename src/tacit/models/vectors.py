"""Per-example gradients in one backward pass.

Shapes: params (d,), x (B, *shape), y (B,) -> example_gradients (B, d), mean_gradient (d,).

`vmap_gradients` is the definition: grad of one example's loss, mapped over the batch.
`example_gradients` is the same numbers (tests hold them to 1e-5 of each other and of a loop), 1.2
to 6 times faster. One backward pass of the summed loss gives every example's δ = d loss / d output
at every layer, because no layer mixes examples. An example's weight gradient is then δ times that
layer's input, written once, where it belongs in (B, d).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, partial

import torch
from torch.func import grad, vmap
from torch.nn import functional
from torch.nn.attention import SDPBackend, sdpa_kernel

from tacit.models.graph.graph_model import GraphModel, RowGradient, write_parts
from tacit.models.model_contract import LayerValues, Model, Window
from tacit.models.raised import write_or_nan

# A larger parameter, difference or embedding was not learnt, and is refused, whoever sends it.
LARGEST = 1e6
_HELD = 2**21  # numbers of patches made at a time: they stay in a processor's last cache
_Gradients = Callable[[torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor]


def learnable(vector: torch.Tensor) -> bool:
    """Check whether every number is finite and at most LARGEST in size."""
    if not vector.numel():
        return True
    least, largest = torch.aminmax(vector)  # of nan, both are nan, which no comparison passes
    return float(least) >= -LARGEST and float(largest) <= LARGEST


def example_gradients(
    model: Model,
    params: torch.Tensor,
    x: torch.Tensor,
    y: torch.Tensor,
    *,
    chunk_size: int | None = None,
) -> torch.Tensor:
    """Return the gradient (B, d) of each example's own loss, penalty included; B may be 0.

    Of a trusted module, a row whose computation raises is nan throughout (`models.raised`).

    chunk_size: bounds the memory for activations to that many examples at a time.
    """
    gradients = params.new_empty((len(y), model.size))
    step = chunk_size or max(1, len(y))
    for rows in (slice(start, start + step) for start in range(0, len(y), step)):
        _write_gradients(model, params, x[rows], y[rows], gradients[rows])
    return gradients


def linear_factors(
    model: Model, params: torch.Tensor, x: torch.Tensor, y: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return (δ (B, classes), x (B, inputs)) of a linear model.

    Each example's gradient is (δ ⊗ x, δ), without the penalty.
    """
    (layer,), (delta,) = _deltas(model, params, x, y)
    return delta, layer.input.detach()


def score_deltas(model: Model, scores: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """Return d loss / d scores (B, classes) of each example, without the penalty."""
    with torch.enable_grad():
        leaf = scores.detach().requires_grad_()
        (deltas,) = torch.autograd.grad(model.data_loss(leaf, y).sum(), [leaf])
    return deltas


def vmap_gradients(
    model: Model, params: torch.Tensor, x: torch.Tensor, y: torch.Tensor
) -> torch.Tensor:
    """Return `example_gradients` by its definition, for tests; B at least 1."""
    return _transformed(model)(params.detach(), x, y)


def mean_gradient(
    model: Model, params: torch.Tensor, x: torch.Tensor, y: torch.Tensor
) -> torch.Tensor:
    """Return the gradient (d,) of the mean loss, penalty included; zeros if B is 0.

    For runs without privacy.
    """
    if len(y) == 0:
        return torch.zeros_like(params)
    with torch.enable_grad():
        leaf = params.detach().requires_grad_()
        loss = model.data_loss(model.logits(leaf, x), y).mean()
        if model.regularization:
            loss = loss + model.penalty(leaf)
        (gradient,) = torch.autograd.grad(loss, leaf)
    return gradient


@lru_cache(maxsize=16)
def _transformed(model: Model) -> _Gradients:
    """Return the transformed function, cached: building it costs as much as a small batch."""
    per_example: _Gradients = vmap(grad(model.loss), in_dims=(None, 0, 0), randomness="different")
    return per_example


def _write_gradients(
    model: Model, params: torch.Tensor, x: torch.Tensor, y: torch.Tensor, out: torch.Tensor
) -> None:
    """Write each example's gradient into its row of `out` (B, d), layer by layer."""
    if isinstance(model, GraphModel):
        _write_of_graph(model, params, x, y, out)
    elif model.traced:
        _write_in_one_pass(model, params, x, y, out)
    else:
        _write_trusted(model, params, x, y, out)


@lru_cache(maxsize=16)
def maps(model: GraphModel, device: str = "cpu") -> bool:
    """Return whether a graph's rows can be computed together, tried on public rows."""
    if not model.maps:
        return False
    if model.one_pass is not None:
        return True
    x, y = (rows.to(device) for rows in model.random_batch(2, torch.Generator().manual_seed(0)))
    try:
        with sdpa_kernel(SDPBackend.MATH):
            _transformed(model)(model.init(0).to(device), x, y)
    except RuntimeError:  # of an operation that writes to what is not mapped
        return False
    return True


def _write_of_graph(
    model: GraphModel, params: torch.Tensor, x: torch.Tensor, y: torch.Tensor, out: torch.Tensor
) -> None:
    """Write the gradients of a graph: all at once where torch can map it and that is quicker."""
    together = len(y) and (model.small or params.device.type != "cpu")
    if together and model.one_pass is not None:
        _write_in_one_pass(model, params, x, y, out)
        return
    if together and maps(model, params.device.type):
        with sdpa_kernel(SDPBackend.MATH):
            out.copy_(_transformed(model)(params.detach(), x, y))
        return
    compute = model.row_gradient(params.detach())
    for row, label, gradient in zip(x, y, out, strict=True):
        write_or_nan(partial(_write_row, compute, row, label, gradient), gradient)


def _write_row(
    compute: RowGradient, row: torch.Tensor, label: torch.Tensor, out: torch.Tensor
) -> None:
    write_parts(compute(row.unsqueeze(0).clone(), label.clone()), out)


def _write_trusted(
    model: Model, params: torch.Tensor, x: torch.Tensor, y: torch.Tensor, out: torch.Tensor
) -> None:
    """Write the gradients of code that its rows' owners trust, row by row; nan where it raises."""
    gradient: _Gradients = grad(model.loss)
    for row, label, place in zip(x, y, out, strict=True):
        write_or_nan(partial(_write_alone, gradient, params.detach(), row, label, place), place)


def _write_alone(
    gradient: _Gradients,
    params: torch.Tensor,
    row: torch.Tensor,
    label: torch.Tensor,
    out: torch.Tensor,
) -> None:
    out.copy_(gradient(params, row.clone(), label.clone()))


def _write_in_one_pass(
    model: Model, params: torch.Tensor, x: torch.Tensor, y: torch.Tensor, out: torch.Tensor
) -> None:
    layers, deltas = _deltas(model, params, x, y)
    columns = iter(torch.split(out, list(model.sizes), dim=1))
    for layer, delta in zip(layers, deltas, strict=True):
        if layer.scale == "shift":
            next(columns).copy_(delta.flatten(1))
            continue
        if layer.scale:
            delta = _last(layer, delta)
        _write_weight(layer, delta, next(columns))
        if layer.bias:
            bias = next(columns)
            if delta.dim() == 2:
                bias.copy_(delta)
            else:
                torch.sum(delta, 1 if layer.window is None else (2, 3), out=bias)
    if model.regularization:
        out.add_(params.detach(), alpha=model.regularization)


def _deltas(
    model: Model, params: torch.Tensor, x: torch.Tensor, y: torch.Tensor
) -> tuple[list[LayerValues], tuple[torch.Tensor, ...]]:
    """Return the layers at work, and d loss / d output there.

    It takes one backward pass, as no layer mixes examples.
    """
    with torch.enable_grad():
        layers, scores = model.at_work(params.detach().requires_grad_(), x)
        loss = model.data_loss(scores, y).sum()
        return layers, torch.autograd.grad(loss, [layer.output for layer in layers])


def _last(layer: LayerValues, delta: torch.Tensor) -> torch.Tensor:
    """Return (B, positions, numbers that have a scale each): d loss / d output of such a layer."""
    if layer.scale == "channels":
        return delta.flatten(2).transpose(1, 2)
    return delta.reshape(len(delta), -1, delta.shape[-1])


def _write_weight(layer: LayerValues, delta: torch.Tensor, weight: torch.Tensor) -> None:
    """Write weight (B, out·in) = δ xᵀ.

    It is summed over the positions of a convolution or of a sequence.
    """
    x = layer.input.detach()
    if layer.scale:
        torch.sum(delta * x.reshape(delta.shape), 1, out=weight)
    elif not x.is_floating_point():  # an embedding: the row of each word gets the δ of its places
        # index_put_ would add a word's places in the order of its threads
        each = delta.reshape(len(x), -1, delta.shape[-1])
        words = x.reshape(len(x), -1, 1).expand_as(each)
        weight.zero_().view(len(x), -1, each.shape[2]).scatter_add_(1, words, each)
    elif layer.window is not None:
        rows = max(1, _HELD // (delta[0, 0].numel() * x.shape[1] * layer.window.kernel**2))
        for some in zip(*(torch.split(each, rows) for each in (x, delta, weight)), strict=True):
            _write_kernel(layer.window, *some)
    elif delta.dim() == 3:
        torch.bmm(delta.transpose(1, 2), x, out=weight.view(len(x), delta.shape[2], -1))
    else:
        torch.mul(delta.unsqueeze(2), x.unsqueeze(1), out=weight.view(len(x), delta.shape[1], -1))


def _write_kernel(
    window: Window, x: torch.Tensor, delta: torch.Tensor, weight: torch.Tensor
) -> None:
    """Do `_write_weight` of a convolution, for as many rows as have patches that fit a cache."""
    patches = _patches(x, window)
    places = delta[0, 0].numel()
    batch = len(x) * window.groups  # a group of channels sees its own patches
    products = torch.bmm(
        delta.reshape(batch, -1, places), patches.view(batch, -1, places).transpose(1, 2)
    )
    weight.view(len(x), delta.shape[1], -1).copy_(products.view(len(x), delta.shape[1], -1))


def _patches(x: torch.Tensor, window: Window) -> torch.Tensor:
    """Return (B, in·k·k, positions): what each position of a convolution sees.

    Views and one copy; torch's unfold is 7 times slower.
    """
    size = window.kernel
    stride = window.stride
    padded = functional.pad(x.contiguous(), (window.padding,) * 4)
    windows = padded.unfold(2, size, stride).unfold(3, size, stride)
    return windows.permute(0, 1, 4, 5, 2, 3).reshape(len(x), x.shape[1] * size**2, -1)
