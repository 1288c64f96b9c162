"""A user's own `torch.nn.Module`: its factory, its public start, and what of it is trained.

The vector (d,) of its model is its trained parameters in the order of their definition. A parameter
that is used twice, or tied, is in it once.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property

import torch
from torch import Tensor, nn
from torch.func import functional_call

from tacit.errors import ConfigError
from tacit.graphs.graph_file import is_trainable
from tacit.models.model_contract import Layout, Model

Factory = Callable[[], nn.Module]


@dataclass(frozen=True, eq=False)
class OwnModule:
    """A module as a run names it.

    entry: "module:name". code: what the code of the entry hashes to, in hexadecimal. trainable:
    patterns of names. start: values by name that take the place of the module's own.
    """

    entry: str
    factory: Factory = field(repr=False)
    code: str = ""
    trainable: tuple[str, ...] = ("*",)
    start: Mapping[str, Tensor] = field(default_factory=dict, repr=False)

    @property
    def where(self) -> str:
        """How a message names it."""
        return f"model.entry={self.entry}"

    @cached_property
    def module(self) -> nn.Module:
        """The module that is run; its parameters are given with every call."""
        return self.build(seed=0)

    @cached_property
    def layout(self) -> Layout:
        """(name, shape) of every trained parameter, each once, in the order of its definition."""
        return tuple(
            (name, tuple(parameter.shape)) for name, parameter in self._trained(self.module)
        )

    @cached_property
    def frozen(self) -> dict[str, Tensor]:
        """Parameters that are not trained, and buffers, by name; public."""
        trained = {name for name, _ in self.layout}
        untrained = {
            name: parameter.detach()
            for name, parameter in self.module.named_parameters()
            if name not in trained
        }
        return untrained | dict(self.module.named_buffers())

    def build(self, seed: int) -> nn.Module:
        """Return a new module with the numbers of its start, others by the seed alone."""
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            module = self.factory()
        places = _places(module)
        with torch.no_grad():
            for name, value in self.start.items():
                places[name].copy_(value)
        return module.to("cpu")

    def first_values(self, seed: int) -> Tensor:
        """Return the module's own initial parameters (d,), of the seed alone, or its start."""
        return torch.cat(
            [parameter.detach().reshape(-1) for _, parameter in self._trained(self.build(seed))]
        )

    def state(self, trained: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Return what the module loads: frozen parameters too, and tied ones by all names."""
        module = self.build(seed=0)
        with torch.no_grad():
            for name, value in trained.items():
                module.get_parameter(name).copy_(value)
        return {name: value.clone() for name, value in module.state_dict().items()}

    def run(self, trained: Mapping[str, Tensor], x: Tensor, outputs: int) -> Tensor:
        """Return the output of a batch x (B, …), each example by as many numbers as `outputs`.

        trained: the trained parameters by name. outputs: 0: any number.
        """
        frozen = {name: tensor.to(x.device) for name, tensor in self.frozen.items()}
        return _called(self.module, {**trained, **frozen}, x, outputs)

    def run_copies(self, trained: Mapping[str, Tensor], x: Tensor, outputs: int) -> Tensor:
        """Return `run` of copies of the module and of all numbers: no call finds another's."""
        numbers = {**trained, **{name: each.to(x.device) for name, each in self.frozen.items()}}
        copies = {name: value.clone() for name, value in numbers.items()}
        return _called(copy.deepcopy(self.module), copies, x.clone(), outputs)

    def check_start(self) -> None:
        """Check that the start's values fit the module. Raises ConfigError, naming the value."""
        places = _places(self.factory())
        for name, value in self.start.items():
            if name not in places or places[name].shape != value.shape:
                has = list(places[name].shape) if name in places else "no such parameter"
                raise ConfigError(
                    f"model.weights: {name} is {list(value.shape)}, the module has {has}"
                )
        loaded = _places(self.module)
        for name, value in self.start.items():
            if not torch.equal(loaded[name], value.to(loaded[name].dtype)):
                raise ConfigError(
                    f"model.weights: {name} is one parameter with another of the file, and differs "
                    "from it"
                )

    def _trained(self, module: nn.Module) -> list[tuple[str, nn.Parameter]]:
        return [
            (name, parameter)
            for name, parameter in module.named_parameters()
            if parameter.requires_grad and is_trainable(name, self.trainable)
        ]


class NamedByModule(Model):
    """A model whose parameters have a module's names, start and code. own: that module."""

    own: OwnModule

    @property
    def layout(self) -> Layout:
        """(name, shape) of every trained parameter, in the order of the module's definition."""
        return self.own.layout

    @property
    def variant(self) -> str:
        """The code's digest: two models whose vectors are interchangeable have the same."""
        return f"code {self.own.code}"

    def init(self, seed: int) -> Tensor:
        """Return the module's own initial parameters (d,), of the seed alone, or its start."""
        return self.own.first_values(seed)

    def state(self, params: Tensor) -> dict[str, Tensor]:
        """Return what the module loads: frozen parameters too, and tied ones by all names."""
        return self.own.state(self.unflatten(params))


def _called(module: nn.Module, numbers: Mapping[str, Tensor], x: Tensor, outputs: int) -> Tensor:
    scores: Tensor = functional_call(module, dict(numbers), (x,))
    if isinstance(scores, Tensor) and len(x) == 1 and scores.dim() < (2 if outputs > 1 else 1):
        return scores.unsqueeze(0)  # a module that squeezes lost the batch with its size
    return scores


def _places(module: nn.Module) -> dict[str, Tensor]:
    """Return what a file of weights may name: parameters, tied ones by all names, and buffers."""
    parameters = dict[str, Tensor](module.named_parameters(remove_duplicate=False))
    return parameters | dict(module.named_buffers(remove_duplicate=False))
