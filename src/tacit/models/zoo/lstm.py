"""A language model: embedding, LSTM layers, one score for every word at every place of a sequence.

Shapes: x, y int64 (B, T), y the word after each of x -> scores (B, T, V). The example is the whole
sequence: its loss is the mean over its T words, and its gradient is what is clipped.

The cell is that of Hochreiter and Schmidhuber, doi:10.1162/neco.1997.9.8.1735, with forget gates.
It is written with plain operations, so that the input of every gate is at hand. torch.nn.LSTM does
not show it.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import torch
from torch.nn import functional

from tacit.models.model_contract import LayerValues, Layout, Model

# Initial bias of the forget gate, so that cells remember by default (Jozefowicz et al. 2015).
_FORGET = 1.0


@dataclass(frozen=True)
class Lstm(Model):
    """A language model.

    shape is (T,), classes the size V of the vocabulary, `hidden` the cells per layer.
    """

    embedding: int = 64
    hidden: tuple[int, ...] = (64,)

    @cached_property
    def layout(self) -> Layout:
        """(name, shape) of every parameter.

        The four gates are input, forget, cell and output, in this order.
        """
        return (
            ("embedding.weight", (self.classes, self.embedding)),
            *stacked(self.embedding, self.hidden, self.classes),
        )

    @property
    def variant(self) -> str:
        """The order of the gates."""
        return "gates[ifgo]"

    def init(self, seed: int) -> torch.Tensor:
        """Return initial parameters as of all models, but with open forget gates."""
        params = super().init(seed)
        for name, part in self.unflatten(params).items():
            if name.startswith("lstm") and name.endswith("bias"):
                cells = len(part) // 4
                part[cells : 2 * cells] = _FORGET
        return params

    def trace(self, params: torch.Tensor, x: torch.Tensor) -> list[LayerValues]:
        """Return every layer at work at every place.

        A layer has its input, and what its weight and bias make of it.
        """
        weights = iter(self.unflatten(params).values())
        layers = [LayerValues(x, functional.embedding(x, next(weights)), bias=False)]
        states = layers[0].output
        for _ in self.hidden:
            inputs = states
            weight = next(weights)
            bias = next(weights)
            recurrent = next(weights)
            # The gates are the sum of what both weights make of their inputs, so d loss / d gates
            # is the δ of both.
            gates = functional.linear(inputs, weight, bias)
            states, before = unrolled(gates, recurrent)
            layers += [LayerValues(inputs, gates), LayerValues(before, gates, bias=False)]
        layers.append(LayerValues(states, functional.linear(states, next(weights), next(weights))))
        return layers

    def data_loss(self, scores: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        """Return the mean cross-entropy (...) of a sequence: scores (..., T, V), y (..., T).

        Its exponential is the perplexity.
        """
        if self.objective is not None:
            return self.objective.losses(scores, y)
        return super().data_loss(scores, y).mean(-1)

    def random_batch(
        self, count: int, generator: torch.Generator
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return `count` random sequences, of no data: x and y (count, T), uniform words."""
        words = torch.randint(self.classes, (2, count, *self.shape), generator=generator)
        if self.objective is not None:
            return words[0], self.objective.random(count, generator)
        return words[0], words[1]

    def guesses(self, scores: torch.Tensor) -> torch.Tensor:
        """Return the word of the highest score at each place."""
        return scores.argmax(-1)


def stacked(inputs: int, hidden: tuple[int, ...], outputs: int) -> Layout:
    """Return the layout of LSTM layers of `hidden` cells and of a dense layer on them.

    The first takes `inputs` numbers.
    """
    layers: list[tuple[str, tuple[int, ...]]] = []
    for number, (before, cells) in enumerate(pairwise((inputs, *hidden)), 1):
        layers += [
            (f"lstm{number}.weight", (4 * cells, before)),
            (f"lstm{number}.bias", (4 * cells,)),
        ]
        layers += [(f"lstm{number}.recurrent", (4 * cells, cells))]
    return (*layers, ("dense1.weight", (outputs, hidden[-1])), ("dense1.bias", (outputs,)))


def unrolled(gates: torch.Tensor, recurrent: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the outputs h_1..h_T (..., T, H) of one layer, and h_0..h_(T-1).

    Its recurrent weight is applied to the latter.

    gates: the part that comes from the layer's input (..., T, 4H).
    """
    h = gates.new_zeros(*gates.shape[:-2], recurrent.shape[1])
    c = h
    states = [h]
    for part in gates.unbind(-2):
        i, f, g, o = (part + functional.linear(h, recurrent)).chunk(4, -1)
        c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
        h = torch.sigmoid(o) * torch.tanh(c)
        states.append(h)
    return torch.stack(states[1:], -2), torch.stack(states[:-1], -2)
