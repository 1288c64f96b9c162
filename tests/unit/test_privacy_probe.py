"""A model that looks across examples is refused before it sees a private row."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import pytest
import torch
from torch.nn import functional

from tacit.errors import PrivacyError
from tacit.models import Layer, Layered, Lstm, build
from tacit.privacy.probe import require_separate_examples

IMAGE = (1, 8, 8)


@dataclass(frozen=True)
class Mutant(Layered):
    """A linear model with a statistic of the batch in it."""

    across: str = ""

    def trace(self, params: torch.Tensor, x: torch.Tensor) -> list[Layer]:
        """As Layered's, with the mean or the largest element of the batch in every row."""
        if self.across == "mean":
            x = x - x.mean(0, keepdim=True)
        elif self.across == "largest":
            x = x / x.abs().amax()
        layers = super().trace(params, x)
        if self.across == "output":  # where the fast path's backward pass mixes the rows
            last = layers[-1]
            layers[-1] = Layer(last.input, functional.batch_norm(last.output, None, None, training=True))
        elif self.across == "slightly":
            layers[-1] = Layer(x.flatten(1) + 1e-4 * x.flatten(1).mean(0), layers[-1].output)
        return layers


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("logistic", {}), ("svm", {"regularization": 1e-3}), ("cnn", {"kernel": 3}),
        ("cnn", {"kernel": 3, "hidden": (9,), "activation": "tanh"}), ("cnn", {"kernel": 3, "normalization": "group"}),
        ("mlp", {"hidden": (9,)}), ("resnet", {"width": 6, "blocks": 2}), ("mobilenet", {"width": 6}),
        ("cnn", {"kernel": 3, "channels": (4, 4, 6, 6), "pool_every": 2, "normalization": "group"}),
    ],
)  # fmt: skip
def test_every_model_there_is_keeps_its_examples_apart(name: str, options: dict[str, Any]) -> None:
    require_separate_examples(build(name, IMAGE, 10, **options))


def test_a_language_model_keeps_its_sequences_apart() -> None:
    require_separate_examples(build("lstm", (9,), 31, embedding=6, hidden=(5, 4)))


@dataclass(frozen=True)
class Crossed(Lstm):
    """A language model whose first sequence reads the second one's words."""

    def trace(self, params: torch.Tensor, x: torch.Tensor) -> list[Layer]:
        """As Lstm's, of words that came from the batch."""
        return super().trace(params, torch.cat((x[1:2], x[1:])))


def test_a_language_model_that_reads_another_sequence_is_refused() -> None:
    with pytest.raises(PrivacyError, match=r"model\.name=lstm: an example's gradient depends on its companions"):
        require_separate_examples(Crossed("lstm", (9,), 31, embedding=6, hidden=(5,)))


@pytest.mark.parametrize("across", ["mean", "largest", "output", "slightly"])
def test_a_model_that_looks_across_examples_is_refused_by_name(across: str) -> None:
    honest = Mutant("logistic", IMAGE, 10)
    require_separate_examples(honest)
    with pytest.raises(PrivacyError, match=r"model\.name=logistic: an example's gradient depends on its companions"):
        require_separate_examples(replace(honest, across=across))
