"""`build` makes a model from a name and sizes; `evaluate` measures it on a public test set.

`logistic` is softmax regression and `svm` a linear multi-class SVM. Both ignore the layer sizes.
`mlp` has dense layers only, of `hidden` units. `cnn` is the MAPA paper's five layers (conv, pool,
conv, pool, fully connected, arXiv:1912.07902), and `hidden` adds dense ones. hidden=(50,) is its
released testbed's network, 21,840 parameters on 28x28. With pool_every=2 it is FedAsync's (conv,
conv, pool, twice), without its batch normalisation and dropout. That is arXiv:1903.03934, section
B.1: channels=(64, 64, 128, 128), kernel=3, hidden=(512,). `resnet` and `mobilenet` (zoo/deep.py)
have `width` and `blocks`, `lstm` (zoo/lstm.py) `embedding` and `hidden`.

`tanh` keeps activations, and so per-example gradients, bounded: clipping then costs less (Papernot
et al., arXiv:2007.14191). `group` normalizes the convolutions' outputs of each example by itself,
without parameters. Batch normalization computes across examples.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, get_args

import torch

from tacit.datasets.benchmarks.load import Dataset
from tacit.errors import FROM_OWN_CODE, ConfigError
from tacit.models.answers import NOTHING_KEPT, Answers, MetricInputs
from tacit.models.calibration import brier_scores, log_losses, shares
from tacit.models.model_contract import Model, Normalization
from tacit.models.objectives import Objective, TokensObjective
from tacit.models.zoo.deep import DeepModel
from tacit.models.zoo.layered import Activation, Layered, side_after
from tacit.models.zoo.lstm import Lstm

Name = Literal["logistic", "svm", "mlp", "cnn", "resnet", "mobilenet", "lstm"]
NAMES: tuple[str, ...] = get_args(Name)
MAX_SIZE = 2**28  # parameters: 1 GiB of float32, and every process holds several such vectors


def build(
    name: str,
    shape: tuple[int, ...],
    classes: int,
    *,
    channels: tuple[int, ...] = (10, 20),
    kernel: int = 5,
    hidden: tuple[int, ...] = (),
    regularization: float = 0.0,
    activation: Activation = "relu",
    normalization: Normalization = "none",
    pool_every: int = 1,
    embedding: int = 64,
    width: int = 16,
    blocks: int = 1,
    objective: Objective | None = None,
) -> Model:
    """Return a model for inputs of `shape` and `classes` classes.

    name and sizes: as stated above. objective: for what `logistic` and `mlp` learn of labels,
    counts or an event, and `lstm` of tokens. They then give what its target has of outputs.

    Raises ConfigError naming the field and the value.

    >>> import torch
    >>> model = build("logistic", shape=(1, 8, 8), classes=10)
    >>> model.size, [name for name, _ in model.layout]
    (650, ['dense1.weight', 'dense1.bias'])
    >>> params = model.init(seed=1)
    >>> model.logits(params, torch.rand(3, 1, 8, 8)).shape
    torch.Size([3, 10])
    >>> model.loss(params, torch.rand(1, 8, 8), torch.tensor(4))  # ln 10: the model begins at zero
    tensor(2.3026)
    """
    if objective is not None and (name != "lstm" or not objective.target.length):
        return _with_objective(name, shape, objective, regularization, hidden, activation)
    _check(name, classes, regularization, normalization)
    if name == "lstm":
        return _lstm(shape, classes, regularization, embedding, hidden or (64,), objective)
    if name in ("resnet", "mobilenet"):
        return _deep(name, shape, classes, regularization, width, blocks)
    if name in ("logistic", "svm"):
        return Layered(name, shape, classes, regularization)
    _check_layers(name, channels, hidden)
    if name == "mlp":
        return Layered(name, shape, classes, regularization, hidden=hidden, activation=activation)
    padding = _padding(shape, channels, kernel, pool_every)
    layers = channels, kernel, padding, hidden, activation, normalization, pool_every
    return Layered(name, shape, classes, regularization, *layers)


def _with_objective(
    name: str,
    shape: tuple[int, ...],
    objective: Objective,
    regularization: float,
    hidden: tuple[int, ...],
    activation: Activation,
) -> Model:
    target = objective.target
    if name not in ("logistic", "mlp") or target.length:
        raise ConfigError(
            f"model.name = {name!r}: is for classes, and the target is of kind {target.kind}; use "
            f"{'lstm' if target.length else 'logistic, mlp'} or python"
        )
    if name == "logistic":
        hidden = ()
    else:
        _check_layers(name, (), hidden)
    return Layered(
        name,
        shape,
        target.outputs,
        regularization,
        hidden=hidden,
        activation=activation,
        objective=objective,
    )


def _check(name: str, classes: int, regularization: float, normalization: str) -> None:
    if classes < 2 or regularization < 0:
        raise ConfigError(
            f"model: classes = {classes} must be >= 2, regularization = {regularization} >= 0"
        )
    if normalization != "none" and (name != "cnn" or normalization != "group"):
        raise ConfigError(
            f"model.normalization = {normalization!r}: group is for cnn, other models have none "
            f"to choose"
        )
    if name not in NAMES:
        raise ConfigError(f"model.name = {name!r} is not known; use one of: {', '.join(NAMES)}")


def _check_layers(name: str, channels: tuple[int, ...], hidden: tuple[int, ...]) -> None:
    if min((*channels, *hidden), default=1) < 1:
        raise ConfigError(
            f"model.channels = {channels} and model.hidden = {hidden} must be positive"
        )
    if name == "mlp" and not hidden:
        raise ConfigError("model.hidden = () must have at least one layer for model.name = 'mlp'")


def _lstm(
    shape: tuple[int, ...],
    classes: int,
    regularization: float,
    embedding: int,
    hidden: tuple[int, ...],
    objective: Objective | None,
) -> Model:
    if objective is not None and objective.target.kind == "text":
        objective = None  # every place has a word, and its own loss is the mean over them
    if len(shape) != 1:
        raise ConfigError(f"model.name = 'lstm' needs sequences of words (T,), not {shape}")
    if min(embedding, *hidden) < 1:
        raise ConfigError(
            f"model.embedding = {embedding} and model.hidden = {hidden} must be positive"
        )
    return Lstm("lstm", shape, classes, regularization, embedding, hidden, objective=objective)


def _deep(
    name: str, shape: tuple[int, ...], classes: int, regularization: float, width: int, blocks: int
) -> Model:
    if len(shape) != 3 or shape[1] != shape[2]:
        raise ConfigError(
            f"model.name = {name!r} needs square images (depth, side, side), not {shape}"
        )
    if width < 1 or blocks < 1:
        raise ConfigError(f"model.width = {width} and model.blocks = {blocks} must be positive")
    return DeepModel(name, shape, classes, regularization, width, blocks)


def _padding(
    shape: tuple[int, ...], channels: tuple[int, ...], kernel: int, pool_every: int
) -> int:
    """Return the padding: 0, as in the MAPA paper, or kernel // 2.

    It is 0 where that leaves at least 2×2 for the dense layers. With pool_every above 1 always
    kernel // 2 ("same"), as in FedAsync's network.
    """
    if len(shape) != 3 or shape[1] != shape[2]:
        raise ConfigError(
            f"model.name = 'cnn' needs square images (depth, side, side), not {shape}"
        )
    if not channels:
        raise ConfigError("model.channels = () must have at least one layer")
    if pool_every < 1:
        raise ConfigError(f"model.pool_every = {pool_every} must be positive")
    for padding, least in ((0, 2), (kernel // 2, 1))[pool_every > 1 :]:
        side = shape[1]
        for number in range(1, len(channels) + 1):
            fits = side + 2 * padding >= kernel > 0
            if fits:
                side = side_after(side, kernel, padding, pooled=number % pool_every == 0)
            else:
                side = 0
        if side >= least and (padding == 0 or kernel % 2 == 1):
            return padding
    raise ConfigError(
        f"model.kernel = {kernel} does not fit {len(channels)} convolutions on "
        f"{shape[1]}x{shape[2]}"
    )


def checked_size(model: Model) -> Model:
    """Return `model` itself, if memory can hold its parameters. Raises ConfigError if not.

    The size is known from the shapes, before anything is allocated.
    """
    if model.size > MAX_SIZE:
        raise ConfigError(
            f"model: the layers of {model.name!r} have {model.size:,} parameters, above "
            f"{MAX_SIZE:,}"
        )
    return model


@dataclass(frozen=True, slots=True)
class Constant:
    """The quality of the best constant answer on a test set, and two standard errors of it.

    accuracy: of the most frequent class, None if the target is none. loss: the least that one
    answer to all rows has, by the model's own loss, None for classes. error: two standard errors of
    either. log_loss, brier: of the classes' shares as probabilities, None of all else.
    """

    accuracy: float | None
    loss: float | None
    error: float
    log_loss: float | None = None
    brier: float | None = None

    def beaten(self, accuracy: float | None, loss: float | None) -> bool:
        """Check whether a model of this accuracy and loss is better by over two standard errors."""
        if self.accuracy is not None:
            return accuracy is not None and accuracy > self.accuracy + self.error
        return loss is not None and self.loss is not None and loss < self.loss - self.error


def best_constant(model: Model, data: Dataset) -> Constant | None:
    """Return the best constant answer to a public test set, as a baseline.

    None where `model` is not comparable with one, or the test set is empty.
    """
    y = data.y.flatten()
    if len(y) and model.objective is not None and model.trains_objective:
        losses = model.objective.constant_losses(data.y)
        error = 2 * float(losses.std(correction=0)) / math.sqrt(len(y))
        return Constant(None, float(losses.mean()), error)
    if model.objective is not None:
        return None
    if not len(y) or (y.is_floating_point() and not model.squared_error):
        return None
    if y.is_floating_point():
        squares = (y.double() - y.double().mean()) ** 2
        error = 2 * float(squares.std(correction=0)) / math.sqrt(len(y))
        return Constant(None, float(squares.mean()), error)
    share = float(torch.bincount(y).max()) / len(y)
    error = 2 * math.sqrt(share * (1 - share) / len(y))
    if data.y.dim() > 1:
        return Constant(share, None, error)
    constant = shares(y, data.classes).expand(len(y), -1)
    log_loss = float(log_losses(constant, y).mean())
    return Constant(share, None, error, log_loss, float(brier_scores(constant, y).mean()))


def loss_is_log_loss(model: Model) -> bool:
    """Return whether the model's loss is the log loss of its probabilities, tried on scores.

    It is not of a hinge loss, nor of a loss of one's own, nor of what is no class.
    """
    if model.objective is not None:
        return False
    scores = torch.tensor([[0.5, -1.0, 2.0, 0.25]]).repeat(1, model.classes)[:, : model.classes]
    y = torch.zeros(1, dtype=torch.int64)
    try:
        probability = model.probabilities(scores)[0, 0]
        loss = float(model.data_loss(scores, y))
    except FROM_OWN_CODE:
        return False
    return math.isclose(loss, -math.log(float(probability)), rel_tol=1e-4)


def evaluate(
    model: Model, params: torch.Tensor, data: Dataset, batch: int = 1000
) -> tuple[float, float]:
    """Return (accuracy in [0, 1], mean loss without the penalty) over a dataset that is not empty.

    The accuracy is nan where the model guesses no classes.

    Of sequences: the share of words guessed, and the mean loss of a sequence, which is that of its
    words. The exponential of the mean loss of all words is the perplexity.
    """
    answered = answers(model, params, data, NOTHING_KEPT, batch=batch)
    return answered.accuracy, answered.loss


@torch.no_grad()
def answers(
    model: Model, params: torch.Tensor, data: Dataset, inputs: MetricInputs, batch: int = 1000
) -> Answers:
    """Return the answers to a dataset that is not empty, with what `inputs` names."""
    right = 0.0
    loss = 0.0
    of_tokens = 0.0
    tokens = model.objective if isinstance(model.objective, TokensObjective) else None
    counted = data.y.numel() if tokens is None else int((data.y >= 0).sum())
    scores: list[torch.Tensor] = []
    guesses: list[torch.Tensor] = []
    step = max(1, batch * len(data) // data.y.numel())  # as many words as there would be examples
    for x, y in zip(torch.split(data.x, step), torch.split(data.y, step), strict=True):
        output = model.logits(params, x)
        guessed = model.guesses(output)
        right += math.nan if guessed is None else int((guessed == y).sum())
        loss += float(model.data_loss(output, y).double().sum())
        if tokens is not None and output.shape[1:] == (*tokens.target.shape, tokens.target.outputs):
            of_tokens += float(tokens.token_losses(output, y).double().sum())
        else:
            of_tokens = math.nan
        if inputs.scores:
            scores.append(output)
        if inputs.guesses and guessed is not None:
            guesses.append(guessed)
    return Answers(
        accuracy=right / counted if counted else math.nan,
        loss=loss / len(data),
        token_loss=of_tokens / counted if counted else math.nan,
        scores=torch.cat(scores) if scores else None,
        guesses=torch.cat(guesses) if guesses else None,
        y=data.y,
    )
