"""Rows of a graph that are computed together have the gradients that each has by itself."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from tacit.models import vectors
from tacit.models.graph.graph_model import GraphModel, write_parts
from tacit.models.losses import cross_entropy
from tacit.models.module import module_model
from tests.helpers.forty_modules import CASES
from tests.unit.graph.test_freezing import batch_of, built

ROWS = 6
# Weights that are read twice, or by an operation that is no known layer.
MAPPED = (
    *("prelu", "rms norm", "bilinear", "parameter twice", "low rank", "conv1d", "causal conv"),
    *("dilated", "batch norm in eval", "transposed", "conv3d", "tied", "words and places"),
)
ALONE = ("gru", "lstm", "two ways", "rnn", "own recurrence")
SEEN = [name for name in CASES if name not in (*MAPPED, *ALONE)]


def one_by_one(model: GraphModel, params: Tensor, x: Tensor, y: Tensor) -> Tensor:
    gradients = torch.empty(len(y), model.size)
    compute = model.row_gradient(params)
    for row, label, out in zip(x, y, gradients, strict=True):
        write_parts(compute(row.unsqueeze(0), label), out)
    return gradients


@pytest.mark.parametrize("name", SEEN)
def test_one_backward_pass_finds_each_rows_gradient(name: str) -> None:
    _, model, _ = built(name)
    assert model.one_pass is not None
    (x, y), params = batch_of(model, ROWS), model.init(0)
    together = torch.empty(ROWS, model.size)
    vectors._write_in_one_pass(model, params, x, y, together)
    alone = one_by_one(model, params, x, y)
    assert (together - alone).norm() <= 1e-5 * alone.norm()


@pytest.mark.parametrize("name", MAPPED)
def test_what_it_does_not_find_torch_maps(name: str) -> None:
    _, model, _ = built(name)
    assert model.one_pass is None
    assert vectors.maps(model)
    (x, y), params = batch_of(model, ROWS), model.init(0)
    together = vectors.vmap_gradients(model, params, x, y)
    alone = one_by_one(model, params, x, y)
    assert (together - alone).norm() <= 1e-5 * alone.norm()


@pytest.mark.parametrize("name", ALONE)
def test_a_recurrent_layer_is_computed_row_by_row(name: str) -> None:
    _, model, _ = built(name)
    assert not vectors.maps(model)


class Half(nn.Module):
    """A layer whose weight is read, and another whose weight is read in two places."""

    def __init__(self) -> None:
        super().__init__()
        self.places = nn.Parameter(torch.randn(3, 4))
        self.head = nn.Linear(4, 2)

    def forward(self, x: Tensor) -> Tensor:
        scores: Tensor = self.head((x + self.places).relu().mean(1))
        return scores


class Broadcast(Half):
    """The same, with one number for all places."""

    def __init__(self) -> None:
        super().__init__()
        self.places = nn.Parameter(torch.randn(1, 4))


@pytest.mark.parametrize(("kind", "seen"), [(Half, True), (Broadcast, False)])
def test_what_is_added_is_a_layer_if_each_of_its_numbers_is_added_once(
    kind: type[Half], seen: bool
) -> None:
    model = module_model("n:n", kind, shape=(3, 4), outputs=2, loss=cross_entropy)
    assert isinstance(model, GraphModel)
    assert (model.one_pass is not None) == seen
    (x, y), params = batch_of(model, ROWS), model.init(0)
    together = vectors.example_gradients(model, params, x, y)
    torch.testing.assert_close(together, one_by_one(model, params, x, y), rtol=1e-4, atol=1e-6)
