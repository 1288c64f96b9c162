"""A model that looks across examples is refused before it sees a private row."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional

from tacit.errors import PrivacyError
from tacit.models import Layered, LayerValues, Lstm, Model, build
from tacit.models.losses import cross_entropy
from tacit.models.module import module_model
from tacit.models.own_module import OwnModule
from tacit.models.vectors import example_gradients
from tacit.privacy.private_sum import probe
from tacit.privacy.private_sum.probe import require_separate_examples, rows_alone
from tacit.privacy.private_sum.rehearsal import rehearsed

IMAGE = (1, 8, 8)


@dataclass(frozen=True)
class Mutant(Layered):
    """A linear model with a statistic of the batch in it."""

    across: str = ""

    def trace(self, params: torch.Tensor, x: torch.Tensor) -> list[LayerValues]:
        """Trace as Layered, with the mean or the largest element of the batch in every row."""
        if self.across == "mean":
            x = x - x.mean(0, keepdim=True)
        elif self.across == "largest":
            x = x / x.abs().amax()
        layers = super().trace(params, x)
        if self.across == "output":  # where the fast path's backward pass mixes the rows
            last = layers[-1]
            layers[-1] = LayerValues(
                last.input, functional.batch_norm(last.output, None, None, training=True)
            )
        elif self.across == "slightly":
            layers[-1] = LayerValues(x.flatten(1) + 1e-4 * x.flatten(1).mean(0), layers[-1].output)
        return layers


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("logistic", {}),
        ("svm", {"regularization": 1e-3}),
        ("cnn", {"kernel": 3}),
        ("cnn", {"kernel": 3, "hidden": (9,), "activation": "tanh"}),
        ("cnn", {"kernel": 3, "normalization": "group"}),
        ("mlp", {"hidden": (9,)}),
        ("resnet", {"width": 6, "blocks": 2}),
        ("mobilenet", {"width": 6}),
        ("cnn", {"kernel": 3, "channels": (4, 4, 6, 6), "pool_every": 2, "normalization": "group"}),
    ],
)
def test_every_model_there_is_keeps_its_examples_apart(name: str, options: dict[str, Any]) -> None:
    require_separate_examples(build(name, IMAGE, 10, **options))


def test_a_language_model_keeps_its_sequences_apart() -> None:
    require_separate_examples(build("lstm", (9,), 31, embedding=6, hidden=(5, 4)))


@dataclass(frozen=True)
class Crossed(Lstm):
    """A language model whose first sequence reads the second one's words."""

    def trace(self, params: torch.Tensor, x: torch.Tensor) -> list[LayerValues]:
        """Trace as Lstm, on words that came from the batch."""
        return super().trace(params, torch.cat((x[1:2], x[1:])))


def test_a_language_model_that_reads_another_sequence_is_refused() -> None:
    with pytest.raises(
        PrivacyError, match=r"model\.name=lstm: an example's gradient depends on its companions"
    ):
        require_separate_examples(Crossed("lstm", (9,), 31, embedding=6, hidden=(5,)))


@pytest.mark.parametrize("across", ["mean", "largest", "output", "slightly"])
def test_a_model_that_looks_across_examples_is_refused_by_name(across: str) -> None:
    honest = Mutant("logistic", IMAGE, 10)
    require_separate_examples(honest)
    with pytest.raises(
        PrivacyError, match=r"model\.name=logistic: an example's gradient depends on its companions"
    ):
        require_separate_examples(replace(honest, across=across))


@pytest.mark.parametrize("rows", [1, 16, 112])
def test_the_shape_that_an_edge_computes_is_the_one_that_is_tried(rows: int) -> None:
    """Try a model that mixes rows in large batches only."""

    @dataclass(frozen=True)
    class Large(Layered):
        def trace(self, params: torch.Tensor, x: torch.Tensor) -> list[LayerValues]:
            return super().trace(params, x - x.mean(0, keepdim=True) if len(x) > 100 else x)

    model = Large("logistic", IMAGE, 10)
    if rows < 100:
        require_separate_examples(model, shapes={rows})
    else:
        with pytest.raises(PrivacyError, match="in a batch of 112"):
            require_separate_examples(model, shapes={rows, 16})


def test_one_bit_of_difference_is_enough() -> None:
    @dataclass(frozen=True)
    class Rounded(Layered):
        def trace(self, params: torch.Tensor, x: torch.Tensor) -> list[LayerValues]:
            last = super().trace(params, x)[-1]
            odd = bool((x.flatten(1)[:, 0] > 1).any())  # somebody strange is there
            return [
                LayerValues(
                    last.input,
                    torch.nextafter(last.output, last.output + 1) if odd else last.output,
                )
            ]

    with pytest.raises(PrivacyError, match=r"model\.name=logistic"):
        require_separate_examples(Rounded("logistic", IMAGE, 10))


def alone(params: torch.Tensor, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """Return a linear layer by multiplying and adding: each row in the same order, at any place."""
    weight = params[: 10 * 64].view(10, 64)
    total = torch.zeros(len(x), 10)
    for column, values in zip(weight.T, x.flatten(1).T, strict=True):
        total += values[:, None] * column
    return total


def test_a_kernel_that_computes_rows_alone_is_known_by_its_bits() -> None:
    model = build("logistic", IMAGE, 10)
    assert rows_alone(alone, model, (1, 2, 3, 16, 33))

    def by_place(params: torch.Tensor, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        total = alone(params, x, y)
        total[1::2] = torch.nextafter(total[1::2], total[1::2] + 1)
        return total

    def by_size(params: torch.Tensor, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        total = alone(params, x, y)
        return torch.nextafter(total, total + 1) if len(x) > 20 else total

    assert not rows_alone(by_place, model, (16,))
    assert not rows_alone(by_size, model, (16, 33))


class Words(nn.Module):
    """An embedding of nine words."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(9, 4)
        self.head = nn.Linear(4, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        scores: torch.Tensor = self.head(torch.where(x.unsqueeze(-1) > 3, self.words(x), 0).mean(1))
        return scores


def test_every_trial_of_whole_numbers_stays_inside_the_declared_ones(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen: list[torch.Tensor] = []

    def noted(x: torch.Tensor) -> None:
        assert x.dtype == torch.int64
        seen.append(x.flatten())

    run_copies = OwnModule.run_copies

    def noted_run(self: OwnModule, trained: Any, x: torch.Tensor, outputs: int) -> torch.Tensor:
        noted(x)
        return run_copies(self, trained, x, outputs)

    def noted_gradients(
        model: Model, params: torch.Tensor, x: torch.Tensor, y: torch.Tensor
    ) -> torch.Tensor:
        noted(x)
        return example_gradients(model, params, x, y)

    monkeypatch.setattr(OwnModule, "run_copies", noted_run)
    monkeypatch.setattr(probe, "example_gradients", noted_gradients)
    model = module_model("words", Words, shape=(5,), outputs=2, loss=cross_entropy, integers=9)
    require_separate_examples(model)
    for task in rehearsed(model, 5):
        noted(task.x)
    every = torch.cat(seen)
    assert (int(every.min()), int(every.max())) == (0, 8)
