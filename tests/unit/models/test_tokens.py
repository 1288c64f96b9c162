"""A token at each place of an example as a target: its loss, its metrics, and who learns it."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from tacit.datasets import Dataset, EdgeRows
from tacit.datasets.target import NOT_LEARNT, Target
from tacit.errors import ConfigError
from tacit.graphs.freezing import freeze
from tacit.graphs.graph_file import Example
from tacit.models import Lstm, Model, build
from tacit.models.building import best_constant, evaluate
from tacit.models.graph.graph_network import GraphNetwork
from tacit.models.losses import chosen_loss
from tacit.models.metrics import chosen, constant_errors
from tacit.models.module import module_model
from tacit.models.objectives import TokensObjective, objective_of
from tacit.models.user_module import UserModule
from tacit.models.vectors import example_gradients, vmap_gradients
from tacit.privacy.noise.randomness import Random
from tacit.privacy.private_sum.choice import private_sum
from tacit.privacy.private_sum.probe import require_separate_examples
from tacit.privacy.release import Plan

WORDS, LENGTH = 11, 5
TARGET = Target("tokens", tokens=WORDS, length=LENGTH)
OBJECTIVE = TokensObjective(TARGET)
NONE = NOT_LEARNT
Y = torch.tensor([[1, 2, 3, 4, 5], [6, 6, NONE, NONE, 0], [NONE] * 5])


class Language(nn.Module):
    """Scores of each token at each place."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(WORDS, 4)
        self.head = nn.Linear(4, WORDS)

    def forward(self, x: Tensor) -> Tensor:
        scores: Tensor = self.head(torch.tanh(self.words(x)))
        return scores


class Attending(Language):
    """The same after attention, whose code shows no layers."""

    def __init__(self) -> None:
        super().__init__()
        self.mix = nn.MultiheadAttention(4, 2, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        states = self.words(x)
        mixed: Tensor = self.head(self.mix(states, states, states, need_weights=False)[0])
        return mixed


def module(kind: type[nn.Module] = Language) -> Model:
    return module_model(
        "m", kind, shape=(LENGTH,), outputs=WORDS, labels=0, loss=None, objective=OBJECTIVE,
        integers=WORDS,
    )  # fmt: skip


def graph(folder: Path, kind: type[nn.Module] = Language, loss: Any = None) -> Model:
    torch.manual_seed(1)
    example = Example(shape=(LENGTH,), dtype="int64", below=WORDS)
    frozen = freeze("m", kind(), example, loss=loss, target=OBJECTIVE.extremes()[0])
    (folder / "m.graph.json").write_text(frozen.graph.text())
    (folder / "m.safetensors").write_bytes(frozen.file)
    network = GraphNetwork("m.graph.json", None, None, ("*",), folder)
    return network.build((LENGTH,), WORDS, 0.0, OBJECTIVE, WORDS)


def lstm() -> Model:
    return build("lstm", (LENGTH,), WORDS, embedding=4, hidden=(4,), objective=OBJECTIVE)


def models(folder: Path) -> dict[str, Model]:
    """Return a model of each kind that learns tokens."""
    return {
        "seen": module(),
        "attending": module(Attending),
        "graph": graph(folder),
        "graph of attention": graph(folder, Attending),
        "lstm": lstm(),
    }


def twin(scores: Tensor, y: Tensor) -> float:
    """Return the loss of one example, by torch's own cross-entropy."""
    if (y == NONE).all():
        return 0.0
    return float(functional.cross_entropy(scores, y))


def test_a_loss_is_that_of_its_slow_twin_row_by_row() -> None:
    scores = torch.randn(3, LENGTH, WORDS, generator=torch.Generator().manual_seed(1))
    losses = OBJECTIVE.losses(scores, Y)
    assert losses.tolist() == pytest.approx([twin(*row) for row in zip(scores, Y, strict=True)])
    for row in range(3):
        assert torch.allclose(OBJECTIVE.losses(scores[row], Y[row]), losses[row])


@pytest.mark.parametrize("number", [0.0, math.nan, math.inf, 1e30])
def test_padding_counts_for_nothing_whatever_its_scores_are(number: float) -> None:
    scores = torch.randn(3, LENGTH, WORDS, generator=torch.Generator().manual_seed(1))
    before = OBJECTIVE.losses(scores, Y)
    scores[Y < 0] = number
    leaf = scores.requires_grad_()
    losses = OBJECTIVE.losses(leaf, Y)
    assert torch.equal(losses, before)
    assert losses[2] == 0
    [gradient] = torch.autograd.grad(losses.sum(), leaf)
    assert torch.isfinite(gradient).all()
    assert not gradient[Y < 0].any()


def test_a_long_example_weighs_as_much_as_a_short_one() -> None:
    scores = torch.zeros(3, LENGTH, WORDS)
    assert OBJECTIVE.losses(scores, Y).tolist() == pytest.approx([math.log(WORDS)] * 2 + [0.0])


@pytest.mark.parametrize("kind", ["seen", "attending", "graph", "graph of attention", "lstm"])
def test_each_kind_of_model_has_the_gradient_of_each_examples_own_loss(
    tmp_path: Path, kind: str
) -> None:
    model = models(tmp_path)[kind]
    assert model.trains_objective
    x, y = model.random_batch(6, torch.Generator().manual_seed(2))
    y[3] = NONE
    params = model.init(1)
    gradients = example_gradients(model, params, x, y)
    assert not gradients[3].any()  # a row of padding alone
    for row in range(6):
        leaf = params.clone().requires_grad_()
        loss = functional.cross_entropy(
            model.logits(leaf, x[row]), y[row], reduction="sum", ignore_index=NONE
        ) / max(1, int((y[row] >= 0).sum()))
        [expected] = torch.autograd.grad(loss, leaf)
        assert torch.allclose(gradients[row], expected, rtol=1e-4, atol=1e-6)
    if kind in ("seen", "lstm"):
        assert torch.allclose(gradients, vmap_gradients(model, params, x, y), atol=1e-6)


@pytest.mark.parametrize("kind", ["seen", "attending", "graph", "lstm"])
def test_a_private_sum_is_of_whole_examples(tmp_path: Path, kind: str) -> None:
    model = models(tmp_path)[kind]
    x, y = model.random_batch(21, torch.Generator().manual_seed(2))
    y[3] = NONE
    x[-1], y[-1] = 0, 0
    plan = Plan("gaussian", 1.0, 6.0, 1.0, 1e-3, 10.0, math.inf, 1e-5, rows_max=20)
    params = model.init(1)
    clipped = private_sum(EdgeRows(x, y), model, plan, Random(1)).compute(params, 0.05)
    gradients = example_gradients(model, params, x[:-1], y[:-1])
    norms = gradients.norm(dim=1, keepdim=True)
    assert int((norms > 0.05).sum()) > 10
    expected = (gradients * (0.05 / norms.clamp(min=1e-30)).clamp(max=1.0)).sum(0)
    assert torch.allclose(clipped.total.float(), expected, atol=1e-4)


def test_examples_of_tokens_are_kept_apart() -> None:
    for model in (module(), module(Attending), lstm()):
        require_separate_examples(model)


def counted(y: Tensor) -> tuple[list[int], float]:
    """Return every token that is learnt, and the loss of their shares."""
    tokens = [int(token) for token in y.flatten() if token >= 0]
    shares = {token: tokens.count(token) / len(tokens) for token in set(tokens)}
    return tokens, -sum(math.log(shares[token]) for token in tokens) / len(tokens)


def test_metrics_are_of_the_tokens_that_are_learnt() -> None:
    model = module()
    x, _ = model.random_batch(3, torch.Generator().manual_seed(1))
    params = model.init(1)
    scores = model.logits(params, x)
    learnt = Y >= 0
    data = Dataset(x, Y, WORDS, "test")
    answered, metrics = chosen((), TARGET, Path()).measure(model, params, data)
    assert list(metrics) == ["accuracy", "perplexity"]
    right = (scores.argmax(-1) == Y)[learnt]
    assert metrics["accuracy"] == pytest.approx(float(right.double().mean()))
    loss = functional.cross_entropy(scores[learnt], Y[learnt])
    assert metrics["perplexity"] == pytest.approx(math.exp(float(loss)), rel=1e-5)
    examples = [twin(*row) for row in zip(scores, Y, strict=True)]
    assert answered.loss == pytest.approx(np.mean(examples), rel=1e-5)
    assert evaluate(model, params, data) == (answered.accuracy, answered.loss)


def test_always_the_same_answer_is_measured_by_the_same_numbers() -> None:
    tokens, loss = counted(Y)
    constant = constant_errors(Y, TARGET)
    assert constant["accuracy"] == pytest.approx(max(map(tokens.count, tokens)) / len(tokens))
    assert constant["perplexity"] == pytest.approx(math.exp(loss))
    assert all(math.isnan(value) for value in constant_errors(Y[2:], TARGET).values())


def test_the_best_constant_has_the_least_mean_loss_of_an_example() -> None:
    y = OBJECTIVE.random(30, torch.Generator().manual_seed(3)) // 2  # half of the tokens
    y = torch.where(y < 0, NONE, y)
    best = OBJECTIVE.constant(y)
    losses = OBJECTIVE.constant_losses(y)
    scores = best.expand(30, LENGTH, WORDS)
    assert losses.tolist() == pytest.approx(OBJECTIVE.losses(scores, y).tolist(), abs=1e-9)
    for seed in range(5):
        aside = torch.randn(WORDS, generator=torch.Generator().manual_seed(seed)).double()
        other = OBJECTIVE.losses((best.clamp(min=-9) + 0.1 * aside).expand_as(scores), y)
        assert other.mean() > losses.mean()
    constant = best_constant(module(), Dataset(torch.zeros(30, LENGTH).long(), y, WORDS, "test"))
    assert constant is not None
    assert constant.loss == pytest.approx(float(losses.mean()))
    assert best_constant(module(), Dataset(y[:1], Y[2:], WORDS, "none")) is not None


def test_a_constant_of_many_tokens_takes_little_memory() -> None:
    target = Target("tokens", tokens=200_000, length=512)
    y = torch.randint(200_000, (200, 512), generator=torch.Generator().manual_seed(1))
    assert TokensObjective(target).constant_losses(y).shape == (200,)  # 80 GB of scores otherwise


def own_loss(output: Tensor, y: Tensor) -> Tensor:
    """Return the loss as a user writes it, of one example."""
    return functional.cross_entropy(output, y, ignore_index=-100, reduction="sum") / 5


def test_an_own_loss_gets_the_tokens_of_one_example() -> None:
    model = module_model(
        "m", Language, shape=(LENGTH,), outputs=WORDS, labels=0, loss=own_loss, objective=OBJECTIVE,
        integers=WORDS,
    )  # fmt: skip
    assert not model.trains_objective
    x, y = model.random_batch(4, torch.Generator().manual_seed(2))
    params = model.init(1)
    each = model.data_loss(model.logits(params, x), y)
    alone = [
        float(own_loss(model.logits(params, row), label)) for row, label in zip(x, y, strict=True)
    ]
    assert each.tolist() == pytest.approx(alone)
    assert torch.isfinite(example_gradients(model, params, x, y)).all()


def squared(output: Tensor, y: Tensor) -> Tensor:
    """Return a loss of operations that a graph may have."""
    chosen = torch.arange(WORDS) == y.unsqueeze(-1)
    return ((output - chosen.float()) ** 2).mean()


def test_a_graphs_own_loss_gets_the_tokens_of_one_example(tmp_path: Path) -> None:
    model = graph(tmp_path, loss=squared)
    assert not model.trains_objective
    x, y = model.random_batch(4, torch.Generator().manual_seed(2))
    scores = model.logits(model.init(1), x)
    alone = [float(squared(row, label)) for row, label in zip(scores, y, strict=True)]
    assert model.data_loss(scores, y).tolist() == pytest.approx(alone)
    assert torch.isfinite(example_gradients(model, model.init(1), x, y)).all()


class Pooled(Language):
    """One row of scores for all places: a classifier."""

    def forward(self, x: Tensor) -> Tensor:
        """Return scores (B, WORDS)."""
        return super().forward(x).mean(1)


def test_scores_of_another_shape_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"gives \[4, 11\] for 4 examples; expected \[4, 5, 11\]"):
        module(Pooled)
    with pytest.raises(ConfigError, match=r"gives \[1, 11\] for an example; expected \[1, 5, 11\]"):
        graph(tmp_path, Pooled)


def test_the_loss_may_be_named_and_no_other() -> None:
    assert chosen_loss("token_cross_entropy", WORDS, OBJECTIVE) == (None, WORDS)
    with pytest.raises(ConfigError, match="of kind tokens, whose loss is token_cross_entropy"):
        chosen_loss("cross_entropy", WORDS, OBJECTIVE)
    with pytest.raises(ConfigError, match="is of kind tokens; use lstm or python"):
        build("logistic", (LENGTH,), WORDS, objective=OBJECTIVE)


def test_a_published_text_is_for_own_networks_too_and_lstm_stays_as_it_was() -> None:
    text = Target("text", tokens=WORDS, length=LENGTH)
    objective = objective_of(text)
    assert build("lstm", (LENGTH,), WORDS, objective=objective).objective is None
    assert build("lstm", (LENGTH,), WORDS) == Lstm("lstm", (LENGTH,), WORDS, 0.0, 64, (64,))
    assert constant_errors(Y, text) == {}


def test_a_module_in_a_file_learns_tokens(tmp_path: Path) -> None:
    (tmp_path / "nets.py").write_text(
        "from torch import nn\n\n\ndef net():\n"
        f"    return nn.Sequential(nn.Embedding({WORDS}, 3), nn.Linear(3, {WORDS}))\n"
    )
    own = UserModule("nets:net", {}, None, None, ("*",), tmp_path)
    model = own.build((LENGTH,), WORDS, 0.0, OBJECTIVE, WORDS)
    assert model.logits(model.init(1), torch.zeros(2, LENGTH).long()).shape == (2, LENGTH, WORDS)
    [(value, shares), _] = OBJECTIVE.predictions(model.logits(model.init(1), Y[:2].clamp(min=0)))
    assert len(str(value).split()) == LENGTH
    assert shares == {}
