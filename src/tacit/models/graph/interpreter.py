"""Runs a checked graph on tensors: its nodes in their order, by the operations of the list.

Pure: it calls nothing but operations that `graph_check` has looked up, and writes to nothing that
it is given. A result is let go of after its last use.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from tacit.models.graph.graph_file import Of

_aten: Any = torch.ops.aten
_NOT_MAPPED = (*(_aten.gru.input, _aten.lstm.input), *(_aten.rnn_relu.input, _aten.rnn_tanh.input))


@dataclass(frozen=True, slots=True)
class GraphStep:
    """A node at work. call: None: it takes one of a node's several results.

    arguments: by the operation's parameters, with `Of` for tensors. device: the parameter that is
    told on which device numbers are made; "": it has none.
    """

    name: str
    call: torch._ops.OpOverload | None
    arguments: Mapping[str, Any]
    device: str


@dataclass(frozen=True, slots=True)
class Program:
    """Steps from `inputs` and weights to `output`, and after which of them a value is done with."""

    inputs: tuple[str, ...]
    steps: tuple[GraphStep, ...]
    output: str
    last: tuple[tuple[str, ...], ...]

    @classmethod
    def of(cls, inputs: Sequence[str], steps: Sequence[GraphStep], output: str) -> Program:
        """Return the program of these steps, without those that the output does not need."""
        needed = {output}
        used: list[GraphStep] = []
        last: list[tuple[str, ...]] = []
        made = {step.name for step in steps}
        for step in reversed(steps):
            if step.name not in needed:
                continue
            sources = _sources(step.arguments)
            last.append(tuple(sorted((sources - needed) & made)))
            needed |= sources
            used.append(step)
        return cls(tuple(inputs), tuple(reversed(used)), output, tuple(reversed(last)))

    @property
    def maps(self) -> bool:
        """Whether torch can map it over the rows of a batch: a recurrent layer it cannot."""
        calls = (step.call for step in self.steps)
        return not any(call in _NOT_MAPPED for call in calls if call is not None)

    def run(self, weights: Mapping[str, Tensor], *inputs: Tensor) -> Tensor:
        """Return the output. weights: by name; the inputs are on the same device."""
        values: dict[str, Any] = {**weights, **dict(zip(self.inputs, inputs, strict=True))}
        device = inputs[0].device
        for step, done in zip(self.steps, self.last, strict=True):
            arguments = {name: _value(value, values) for name, value in step.arguments.items()}
            if step.call is None:
                values[step.name] = arguments["source"][arguments["place"]]
            elif step.device:
                values[step.name] = step.call(**arguments, **{step.device: device})
            else:
                values[step.name] = step.call(**arguments)
            for name in done:
                del values[name]
        result: Tensor = values[self.output]
        return result


def _value(value: Any, values: Mapping[str, Any]) -> Any:
    if type(value) is Of:
        return values[value.of]
    if type(value) is list:
        return [_value(item, values) for item in value]
    return value


def _sources(arguments: Mapping[str, Any]) -> set[str]:
    sources: set[str] = set()
    for value in arguments.values():
        for item in value if isinstance(value, list) else (value,):
            if isinstance(item, Of):
                sources.add(item.of)
    return sources
