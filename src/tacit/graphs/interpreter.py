"""Runs a checked graph on tensors: its nodes in their order, by the operations of the list.

Pure: it calls nothing but operations that `graph_check` has looked up, and writes to nothing that
it is given. A result is let go of after its last use.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from tacit.graphs.graph_file import Of

_aten: Any = torch.ops.aten
_NOT_MAPPED = (
    *(_aten.gru.input, _aten.lstm.input, _aten.rnn_relu.input, _aten.rnn_tanh.input),
    *(_aten.gru_cell.default, _aten.lstm_cell.default),
)
# A slot of the values, or the slots of a list of them; None: the list has none at this place.
_Slots = int | tuple[int | None, ...]


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
class _Call:
    """A step whose values have numbers. tensors: where in `arguments` they stand.

    keywords: arguments that have no place. done: values that nothing reads afterwards.
    """

    call: Callable[..., Any]
    arguments: list[Any]
    tensors: tuple[tuple[int, _Slots], ...]
    keywords: Mapping[str, Any]
    device: str
    result: int
    done: tuple[int, ...]


class Program:
    """Steps from inputs and weights to an output."""

    def __init__(self, inputs: Sequence[str], steps: Sequence[GraphStep], output: str) -> None:
        """Keep the steps that the output needs, in their order."""
        self._inputs = tuple(inputs)
        self._steps, last = _needed(steps, output)
        self._slots: dict[str, int] = {name: place for place, name in enumerate(inputs)}
        reads = [name for step in self._steps for name in sources(step.arguments)]
        for name in [*reads, *(step.name for step in self._steps), output]:
            self._slots.setdefault(name, len(self._slots))
        self._output = self._slots[output]
        self._calls = [
            self._numbered(step, done) for step, done in zip(self._steps, last, strict=True)
        ]

    @property
    def maps(self) -> bool:
        """Whether torch can map it over the rows of a batch: a recurrent layer it cannot."""
        return not any(step.call in _NOT_MAPPED for step in self._steps)

    def run(self, weights: Mapping[str, Tensor], *inputs: Tensor) -> Tensor:
        """Return the output. weights: by name; the inputs are on the same device."""
        return self.bound(weights)(*inputs)

    def bound(self, weights: Mapping[str, Tensor]) -> Callable[..., Tensor]:
        """Return `run` with these weights."""
        base = self._based(weights)
        count, output, calls = len(self._inputs), self._output, self._calls

        def run(*inputs: Tensor) -> Tensor:
            assert len(inputs) == count
            values = base.copy()
            values[:count] = inputs
            for call in calls:
                values[call.result] = _called(call, values, inputs)
                for slot in call.done:
                    values[slot] = None
            result: Tensor = values[output]
            return result

        return run

    def opened(
        self, weights: Mapping[str, Tensor], nodes: Sequence[str], read: Sequence[str]
    ) -> Callable[..., tuple[Tensor, list[Tensor]]]:
        """Return a function of one input, and of a tensor for each of `nodes`.

        The tensor is added to that node's result. The function gives the output, and the values
        named by `read`.
        """
        base = self._based(weights)
        slots = [self._slots[name] for name in nodes]

        def run(x: Tensor, *added: Tensor) -> tuple[Tensor, list[Tensor]]:
            values = base.copy()
            values[0] = x
            more = dict(zip(slots, added, strict=True))
            for call in self._calls:
                result = _called(call, values, (x,))
                if call.result in more:
                    result = result + more[call.result].view(result.shape)
                values[call.result] = result
            return values[self._output], [values[self._slots[name]] for name in read]

        return run

    @property
    def steps(self) -> Sequence[GraphStep]:
        """The steps that the output needs, in their order."""
        return self._steps

    def _based(self, weights: Mapping[str, Tensor]) -> list[Any]:
        """Return a place for each value, with the weights in theirs."""
        base: list[Any] = [None] * len(self._slots)
        for name, value in weights.items():
            if name in self._slots:
                base[self._slots[name]] = value
        return base

    def _numbered(self, step: GraphStep, done: tuple[str, ...]) -> _Call:
        if step.call is None:
            call: Callable[..., Any] = operator.getitem
            arguments = [None, step.arguments["place"]]
            tensors: list[tuple[int, _Slots]] = [(0, self._slots[step.arguments["source"].of])]
            keywords: dict[str, Any] = {}
        else:
            call = step.call
            arguments, tensors, keywords = [], [], {}
            for place, parameter in enumerate(step.call._schema.arguments):
                if parameter.name not in step.arguments:
                    arguments.append(parameter.default_value)
                    continue
                value = step.arguments[parameter.name]
                if parameter.kwarg_only:
                    keywords[parameter.name] = value
                    continue
                arguments.append(value)
                if (slots := self._read(value)) is not None:
                    tensors.append((place, slots))
            arguments = arguments[: _last_place(step)]
        return _Call(
            call,
            arguments,
            tuple(tensors),
            keywords,
            step.device,
            self._slots[step.name],
            tuple(self._slots[name] for name in done),
        )

    def _read(self, value: Any) -> _Slots | None:
        """Return the slots of an argument; None: it is a constant."""
        if isinstance(value, Of):
            return self._slots[value.of]
        if isinstance(value, list) and any(isinstance(item, Of) for item in value):
            return tuple(None if item is None else self._slots[item.of] for item in value)
        return None


def _called(call: _Call, values: list[Any], inputs: Sequence[Tensor]) -> Any:
    arguments = call.arguments.copy()
    for place, slots in call.tensors:
        arguments[place] = _taken(values, slots)
    if call.device:
        on = {call.device: inputs[0].device}
        return call.call(*arguments, **call.keywords, **on)
    return call.call(*arguments, **call.keywords)


def _taken(values: list[Any], slots: _Slots) -> Any:
    if type(slots) is int:
        return values[slots]
    assert isinstance(slots, tuple)
    return [None if slot is None else values[slot] for slot in slots]


def _last_place(step: GraphStep) -> int:
    """Return how many arguments with a place a step states, up to its last one."""
    assert step.call is not None
    stated = [
        place + 1
        for place, parameter in enumerate(step.call._schema.arguments)
        if parameter.name in step.arguments and not parameter.kwarg_only
    ]
    return max(stated, default=0)


def _needed(
    steps: Sequence[GraphStep], output: str
) -> tuple[list[GraphStep], list[tuple[str, ...]]]:
    """Return the steps that the output needs, and the values that each is the last to read."""
    needed = {output}
    used: list[GraphStep] = []
    last: list[tuple[str, ...]] = []
    made = {step.name for step in steps}
    for step in reversed(steps):
        if step.name not in needed:
            continue
        reads = set(sources(step.arguments))
        last.append(tuple(sorted((reads - needed) & made)))
        needed |= reads
        used.append(step)
    return used[::-1], last[::-1]


def sources(arguments: Mapping[str, Any]) -> list[str]:
    """Return the values that a step reads, each as often as it reads it."""
    return [
        item.of
        for value in arguments.values()
        for item in (value if isinstance(value, list) else (value,))
        if isinstance(item, Of)
    ]


@contextmanager
def one_thread() -> Iterator[None]:
    """Let torch use one thread within the block: several divide a sum by where its parts lie."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
