"""A user's own `torch.nn.Module` as a model of one flat vector, with exact per-example gradients.

The module becomes a graph when the model is made (`tacit.graphs`), and a row's gradient is that
graph's. Code that cannot become one, as it branches on a row's numbers, is refused, unless
the owners of the rows trust it. It then runs as it is.

    >>> import torch
    >>> from tacit.models.losses import cross_entropy
    >>> from tacit.models.module import module_model
    >>> def net():
    ...     layers = torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 2)
    ...     return torch.nn.Sequential(*layers)
    >>> model = module_model("nets:net", net, shape=(4,), outputs=2, loss=cross_entropy)
    >>> model.size, model.logits(model.init(1), torch.zeros(3, 4)).shape
    (58, torch.Size([3, 2]))
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import partial

import torch
from torch import Tensor, nn

from tacit.errors import FROM_OWN_CODE, ConfigError
from tacit.graphs.comparison import ACROSS_ROWS, OTHER_STEPS, alike, far_rows
from tacit.graphs.freezing import freeze
from tacit.graphs.graph_file import Example
from tacit.models.graph.frozen_module import FrozenModule
from tacit.models.graph.graph_model import check_gradients, without_gradient
from tacit.models.losses import LOSSES, Loss
from tacit.models.objectives import Objective
from tacit.models.own_module import Factory, OwnModule
from tacit.models.own_network import least_and_largest
from tacit.models.trusted_module import TrustedModule
from tacit.models.vectors import example_gradients

# Layers that look across examples, keep statistics or draw at random, and what to use instead.
_REFUSED: tuple[tuple[type, str], ...] = (
    (nn.modules.batchnorm._BatchNorm, "GroupNorm or LayerNorm, which look at one example"),
    (nn.modules.dropout._DropoutNd, "no dropout: the noise of the mechanism regularises"),
    (nn.modules.lazy.LazyModuleMixin, "the layer with its sizes given"),
    (nn.modules.instancenorm._InstanceNorm, "GroupNorm with as many groups as channels"),
)
_ROWS = 4  # public rows that a module is tried with


def module_model(
    entry: str,
    factory: Factory,
    *,
    shape: tuple[int, ...],
    outputs: int,
    labels: int | None = None,
    loss: Loss | None,
    digest: str = "",
    trainable: Sequence[str] = ("*",),
    start: Mapping[str, Tensor] | None = None,
    regularization: float = 0.0,
    trusted: bool = False,
    objective: Objective | None = None,
    integers: int | None = None,
) -> FrozenModule | TrustedModule:
    """Return the model of `factory`'s module, for inputs of `shape` and `outputs` scores.

    outputs: 0 where `loss` takes any number of them. labels: classes of the target, as many as
    outputs if not given, and 0 if it has none. objective: what a model learns of such a target, if
    not a number. loss: None: the objective's. trusted: whether code that cannot become a graph may
    run as it is. integers: where an example is whole numbers, what they lie below.

    Raises ConfigError, naming the layer or the parameter and what to use instead, for a module that
    cannot be trained privately or at all. Nothing private is touched: all is tried on public
    numbers.
    """
    own = OwnModule(entry, factory, digest, tuple(trainable), dict(start or {}))
    own.check_start()
    _check_layers(own)
    if not own.layout:
        raise ConfigError(f"{own.where}: has no parameter to train (trainable={list(trainable)})")
    code = TrustedModule(
        entry,
        shape,
        outputs,
        regularization,
        loss,
        outputs if labels is None else labels,
        objective=objective,
        own=own,
        below=integers,
    )
    x, _ = code.random_batch(_ROWS, torch.Generator().manual_seed(1))
    together = _tried(code, x)
    try:
        graph = _frozen(code)
        _check_alone(graph, x, together)
        _check_far(graph, x)
        _check_backward(graph)
    except ConfigError as error:
        _check_alone(code, x, together)
        if not trusted:
            raise ConfigError(f'{error}; or say model.control_flow="trusted"') from error
        _check_gradients(code)
        return code
    check_gradients(own.where, graph)
    return graph


def _frozen(code: TrustedModule) -> FrozenModule:
    """Return the same model as a graph. Raises ConfigError."""
    loss = code.example_loss
    frozen = freeze(
        code.own.where,
        code.own.module,
        Example(
            shape=code.shape, dtype="float32" if code.below is None else "int64", below=code.below
        ),
        least_and_largest(code.labels, code.objective),
        trainable=code.own.trainable,
        loss=None if loss is None or loss in LOSSES.values() else loss,
        outputs=code.classes,
    )
    return FrozenModule(
        code.name,
        code.shape,
        code.classes,
        code.regularization,
        frozen.graph.digest(),
        loss,
        code.labels,
        objective=code.objective,
        checked=frozen.checked,
        values=frozen.values,
        own=code.own,
    )


def _check_layers(own: OwnModule) -> None:
    """Raise ConfigError for a layer that cannot be trained privately, with what to use instead."""
    for name, layer in own.module.named_modules():
        for kind, instead in _REFUSED:
            if isinstance(layer, kind) and not _harmless(layer):
                raise ConfigError(
                    f"{own.where}: layer {name or '(the module)'} is {type(layer).__name__}; use "
                    f"{instead}"
                )


def _harmless(layer: object) -> bool:
    """Check whether a layer is one in eval mode, or one that drops or keeps nothing."""
    if isinstance(layer, nn.modules.instancenorm._InstanceNorm):
        return not layer.track_running_stats
    if isinstance(layer, nn.modules.batchnorm._BatchNorm):
        return not layer.training and layer.track_running_stats
    if isinstance(layer, nn.modules.dropout._DropoutNd):
        return layer.p == 0 or not layer.training
    return False


@torch.no_grad()
def _tried(code: TrustedModule, x: Tensor) -> Tensor:
    """Return the module's scores of public rows x (n, *shape), of as many numbers as expected."""
    own = code.own
    try:
        scores = own.run_copies({}, x, code.classes)
    except FROM_OWN_CODE as error:
        why = (str(error).splitlines() or [type(error).__name__])[0]
        raise ConfigError(
            f"{own.where}: does not take a batch of shape {list(x.shape)}: {why}"
            f"{_inputs(x.shape[1:], code.below)}"
        ) from error
    if not isinstance(scores, Tensor):
        raise ConfigError(f"{own.where}: gives a {type(scores).__name__}, not a tensor")
    expected = (len(x), *code.output_shape)
    shapes = {expected, *({expected[:-1]} if code.classes == 1 else ())}
    if code.classes and tuple(scores.shape) not in shapes:
        raise ConfigError(
            f"{own.where}: gives {list(scores.shape)} for {len(x)} examples; expected "
            f"{list(expected)}"
        )
    return scores


def _inputs(shape: Sequence[int], below: int | None) -> str:
    """Return what a module's inputs have to be where a row is a list of numbers, or whole ones."""
    if below is not None:
        return f" (a row has whole numbers up to {below - 1} here: an embedding needs {below} rows)"
    if len(shape) != 1:
        return ""
    return f" (a row has {shape[0]} numbers here: write that into model.arguments)"


@torch.no_grad()
def _check_alone(model: FrozenModule | TrustedModule, x: Tensor, together: Tensor) -> None:
    """Check that each of the public rows x alone gives what all gave together."""
    params = model.init(0)
    try:
        alone = torch.stack([model.logits(params, example) for example in x])
    except FROM_OWN_CODE as error:
        why = (str(error).splitlines() or [""])[0]
        raise ConfigError(
            f"{model.own.where}: fails on public examples, one at a time: "
            f"{type(error).__name__}: {why}; use layers that look at one example and keep nothing"
        ) from error
    if not torch.allclose(together, alone.reshape(together.shape), rtol=1e-3, atol=1e-4):
        raise ConfigError(f"{model.own.where}: {ACROSS_ROWS}")


@torch.no_grad()
def _check_far(model: FrozenModule, x: Tensor) -> None:
    """Check that the graph gives what the code gives for public rows far from x, too."""
    params = model.init(0)
    for row in far_rows(x, model.checked.graph.example.below):
        code = partial(model.own.run_copies, {}, row.unsqueeze(0), model.classes)
        if not alike(model.logits(params, row), code):
            raise ConfigError(f"{model.own.where}: {OTHER_STEPS}")


def _check_backward(model: FrozenModule) -> None:
    """Check that the graph has the gradients of the code, which may state others of its own."""
    x, y = model.random_batch(2, torch.Generator().manual_seed(1))
    aside = torch.randn(model.size, generator=torch.Generator().manual_seed(2))
    params = model.init(0) + 0.1 * aside
    leaf = params.clone().requires_grad_()
    with torch.enable_grad():
        scores = model.own.run_copies(model.unflatten(leaf), x, model.classes)
        losses = model.data_loss(scores, y)
    for row, label, loss in zip(x, y, losses, strict=True):
        (code,) = torch.autograd.grad(loss, leaf, retain_graph=True, allow_unused=True)
        parts = model.row_parts(params, row.unsqueeze(0), label)
        graph = torch.cat(
            [
                torch.zeros(math.prod(shape)) if part is None else part.reshape(-1)
                for part, (_, shape) in zip(parts, model.layout, strict=True)
            ]
        )
        if code is None or not _near(code, graph):
            raise ConfigError(
                f"{model.own.where}: states another gradient than its operations have "
                "(torch.autograd.Function, a hook); write it in operations"
            )


def _near(first: Tensor, second: Tensor) -> bool:
    """Check whether two vectors (d,) differ by rounding alone, or neither is finite."""
    if not (first.isfinite().all() and second.isfinite().all()):
        return not first.isfinite().all() and not second.isfinite().all()
    return bool((first - second).norm() <= 1e-3 * second.norm() + 1e-6)


def _check_gradients(model: TrustedModule) -> None:
    """Check that every trained parameter gets a gradient from some of a few public examples.

    One that gets none at the start may get some a step later. It may be a factor of a product whose
    other factor begins at zero, as in a low-rank addition.
    """
    x, y = model.random_batch(8, torch.Generator().manual_seed(1))
    start = model.init(1)
    gradients = example_gradients(model, start, x, y).abs().sum(0)
    if not gradients.all():
        aside = torch.randn(model.size, generator=torch.Generator().manual_seed(2))
        gradients += example_gradients(model, start + 0.1 * aside, x, y).abs().sum(0)
    for (name, _), part in zip(model.layout, gradients.split_with_sizes(model.sizes), strict=True):
        if not part.any():
            raise ConfigError(without_gradient(model.own.where, name))
