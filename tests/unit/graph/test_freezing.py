"""A module that is frozen gives what it gave, and what cannot be frozen is refused with its line."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from tacit.errors import ConfigError
from tacit.graphs.freezing import Frozen, freeze
from tacit.graphs.graph_check import checked
from tacit.graphs.graph_file import Example, parse_graph
from tacit.models.graph.graph_model import GraphModel, write_parts
from tacit.models.losses import mse
from tests.helpers.forty_modules import CASES, Case


@cache
def built(name: str) -> tuple[nn.Module, GraphModel, Frozen]:
    case = CASES[name]
    torch.manual_seed(1)
    module = case.factory()
    target = torch.tensor([0, 2])
    frozen = freeze(name, module, example_of(case), target, trainable=case.trainable)
    # As a site has it: from its text.
    graph = parse_graph(frozen.graph.text().encode(), name)
    network = checked(graph, frozen.values, target)
    outputs = network.output[-1]
    model = GraphModel(
        name, case.shape, outputs, checked=network, values=frozen.values, labels=outputs
    )
    return module, model, frozen


def example_of(case: Case) -> Example:
    if case.integers:
        return Example(shape=case.shape, dtype="int64", below=case.integers)
    return Example(shape=case.shape, dtype="float32", below=None)


def batch_of(model: GraphModel, count: int) -> tuple[Tensor, Tensor]:
    x, y = model.random_batch(count, torch.Generator().manual_seed(2))
    return (2 * x - 1 if x.is_floating_point() else x), y


@pytest.mark.parametrize("name", CASES)
def test_a_graph_has_the_gradients_of_its_module(name: str) -> None:
    module, model, _ = built(name)
    parameters = dict(module.named_parameters())
    compute = model.row_gradient(model.init(0))
    out = torch.empty(model.size)
    for x, y in zip(*batch_of(model, 3), strict=True):
        loss = functional.cross_entropy(module(x[None]), y[None])
        parts = torch.autograd.grad(loss, [parameters[name] for name, _ in model.layout])
        own = torch.cat([part.reshape(-1) for part in parts])
        write_parts(compute(x[None], y), out)
        assert float((out - own).abs().max()) <= 1e-5 * float(own.abs().max())


@pytest.mark.parametrize("name", CASES)
def test_a_batch_has_each_examples_own_output(name: str) -> None:
    module, model, _ = built(name)
    x, _ = batch_of(model, 3)
    with torch.no_grad():
        alone = torch.cat([module(row[None]) for row in x])
        assert torch.allclose(model.logits(model.init(0), x), alone, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", CASES)
def test_its_text_gives_the_same_graph_and_digest(name: str) -> None:
    _, model, frozen = built(name)
    assert model.checked.graph == frozen.graph
    assert parse_graph(frozen.graph.text().encode(), name).digest() == frozen.graph.digest()


def test_tied_weights_are_in_the_vector_once() -> None:
    module, model, _ = built("tied")
    assert model.size == sum(parameter.numel() for parameter in module.parameters())


def test_a_start_of_zeros_is_kept() -> None:
    _, model, _ = built("low rank")
    assert not model.unflatten(model.init(0))["up"].any()
    assert "base.weight" in model.frozen


class Refused(nn.Module):
    """A module of one method, for refusals."""

    def __init__(self, forward: Callable[[Any, Tensor], Any]) -> None:
        super().__init__()
        self.layer = nn.Linear(6, 3)
        self.norm = nn.BatchNorm1d(6)
        self.register_buffer("seen", torch.zeros(6))
        self._forward = forward

    def forward(self, x: Tensor) -> Any:
        """Return what the method gives."""
        return self._forward(self, x)


def branches(module: Any, x: Tensor) -> Any:
    return module.layer(x) if x.sum() > 0 else module.layer(-x)


def sorts(module: Any, x: Tensor) -> Any:
    return module.layer(x.sort().values)


def selects(module: Any, x: Tensor) -> Any:
    return module.layer(x) * x[x > 0].sum()


def solves(module: Any, x: Tensor) -> Any:
    return module.layer(torch.linalg.solve(torch.diag(x[0]), x[0])[None])


def drops(module: Any, x: Tensor) -> Any:
    return module.layer(functional.dropout(x))


def draws(module: Any, x: Tensor) -> Any:
    return module.layer(x + torch.randn_like(x))


def writes(module: Any, x: Tensor) -> Any:
    module.seen.add_(x[0])
    return module.layer(x + module.seen)


def writes_to_its_input(module: Any, x: Tensor) -> Any:
    return module.layer(x.mul_(2))


def looks_up(module: Any, x: Tensor) -> Any:
    return module.layer(module.layer.weight[x[0, :1].long()])


def uses_complex_numbers(module: Any, x: Tensor) -> Any:
    return module.layer(torch.fft.fft(x).real)


def normalises(module: Any, x: Tensor) -> Any:
    return module.layer(module.norm(torch.cat((x, x))))[:1]


def normalises_one(module: Any, x: Tensor) -> Any:
    return module.layer(module.norm(x))


def uses_numpy(module: Any, x: Tensor) -> Any:
    return module.layer(torch.as_tensor(x.numpy()))


def looks_up_floats(module: Any, x: Tensor) -> Any:
    return nn.functional.embedding(x, module.layer.weight)


def reads_memory(module: Any, x: Tensor) -> Any:
    return module.layer(x + torch.empty_like(x))


def gives_two(module: Any, x: Tensor) -> Any:
    return module.layer(x), x


@pytest.mark.parametrize(
    ("method", "why"),
    [
        (branches, "asks for a number of a row"),
        (sorts, "takes a time that numbers tell; use"),
        (selects, "asks for a number of a row|gives a size by numbers|mask"),
        (solves, "raises or takes its time by numbers"),
        (drops, "draws at random"),
        (draws, "draws at random"),
        (writes, "writes to a buffer"),
        (writes_to_its_input, "writes to its input"),
        (looks_up, "could have an index outside of 0 to 2; clamp it first"),
        (uses_complex_numbers, "complex numbers, which are not read; "),
        (normalises, "writes to a buffer|looks across examples"),
        (normalises_one, "batch normalization looks across examples; use GroupNorm"),
        (uses_numpy, "numpy does not work on an example; write it in torch"),
        (looks_up_floats, "an embedding takes whole numbers; freeze it with --integers N"),
        (reads_memory, "reads memory that nobody has written"),
        (gives_two, "gives 2 tensors"),
    ],
)
def test_what_cannot_be_frozen_is_refused_in_one_line(
    method: Callable[[Any, Tensor], Any], why: str
) -> None:
    example = Example(shape=(6,), dtype="float32", below=None)

    def tried() -> None:
        freeze("model.entry=nets:Net", Refused(method), example, torch.zeros(2))

    with pytest.raises(ConfigError, match=why) as refusal:
        tried()
    message = str(refusal.value)
    assert "\n" not in message
    # The line is there where an operation is to blame.
    if "buffer" not in message and "input" not in message and "tensors" not in message:
        assert "test_freezing.py:" in message


def test_an_own_loss_is_part_of_the_graph() -> None:
    def distance(output: Tensor, y: Tensor) -> Tensor:
        return (output - (torch.arange(3) == y).float()).square().sum()

    module = nn.Linear(6, 3)
    example = Example(shape=(6,), dtype="float32", below=None)
    frozen = freeze("nets:Net", module, example, torch.tensor([0, 2]), loss=distance)
    model = GraphModel("net", (6,), 0, checked=frozen.checked, values=frozen.values, labels=3)
    x, y = batch_of(model, 4)
    expected = torch.stack([distance(module(row), label) for row, label in zip(x, y, strict=True)])
    assert torch.allclose(model.data_loss(model.logits(model.init(0), x), y), expected)
    assert not replace(model, example_loss=mse).squared_error  # its own loss is what is trained
