"""Every operation at work in the forty graphs is a function of its inputs, and mutants are not."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from tacit.graphs.graph_file import EXAMPLE, Of
from tacit.graphs.interpreter import GraphStep
from tacit.graphs.node_arguments import DTYPES
from tests.helpers.forty_modules import CASES
from tests.helpers.graphs import frozen_case
from tests.helpers.nightly import nightly

QUICK = ("conv2d", "lstm", "padded attention")
Operation = Callable[..., Any]
Arguments = Mapping[str, Any]


def filled(value: Any, values: Mapping[str, Any]) -> Any:
    """Return an argument of a step, with tensors in the place of names."""
    if isinstance(value, Of):
        return values[value.of]
    if isinstance(value, list):
        return [filled(item, values) for item in value]
    return value


def at_work(name: str) -> Iterator[tuple[GraphStep, Arguments]]:
    """Yield the steps of a graph that call an operation, with what each is given for one row."""
    frozen = frozen_case(name)
    example = frozen.graph.example
    generator = torch.Generator().manual_seed(3)
    x = torch.randn(1, *example.shape, generator=generator)
    if example.below is not None:
        x = torch.randint(example.below, (1, *example.shape), generator=generator)
    values: dict[str, Any] = {**frozen.values, EXAMPLE: x.to(DTYPES[example.dtype])}
    for step in frozen.checked.network.steps:
        arguments = {key: filled(value, values) for key, value in step.arguments.items()}
        if step.call is None:
            values[step.name] = arguments["source"][arguments["place"]]
            continue
        yield step, arguments
        values[step.name] = step.call(**arguments)


def with_tensors(arguments: Arguments, change: Callable[[Tensor], Tensor]) -> dict[str, Any]:
    """Return the arguments, each tensor changed."""

    def changed(value: Any) -> Any:
        if isinstance(value, Tensor):
            return change(value)
        return [changed(item) for item in value] if isinstance(value, list) else value

    return {key: changed(value) for key, value in arguments.items()}


def tensors(value: Any) -> list[Tensor]:
    """Return all tensors of a result, or of arguments."""
    if isinstance(value, Tensor):
        return [value]
    several = value.values() if isinstance(value, Mapping) else value
    if not isinstance(value, Mapping | list | tuple):
        return []
    return [tensor for item in several for tensor in tensors(item)]


def same(first: Any, second: Any, relative: float = 0.0) -> bool:
    """Check whether two results have the same numbers, or nearly."""
    return all(
        torch.allclose(one, other, rtol=relative, atol=relative / 10, equal_nan=True)
        for one, other in zip(tensors(first), tensors(second), strict=True)
    )


def other_numbers(tensor: Tensor) -> Tensor:
    """Return a tensor of the same kind, whose numbers stay where an index may be."""
    return tensor.flip(-1).contiguous() if tensor.dim() else tensor.clone()


def among_others(tensor: Tensor) -> Tensor:
    """Return a copy that lies between two rows of garbage, as one row of a batch."""
    garbage = torch.full((3, *tensor.shape), 77, dtype=tensor.dtype)
    garbage[1] = tensor
    return garbage[1]


def strays(call: Operation, arguments: Arguments) -> str:
    """Return what shows that an operation is no function of its inputs; "": nothing does."""

    def result() -> Any:
        return call(**with_tensors(arguments, torch.clone))

    torch.manual_seed(1)
    first, random = result(), torch.get_rng_state()
    torch.manual_seed(1)
    if not torch.equal(random, torch.get_rng_state()):
        return "draws"
    again = result()
    torch.manual_seed(2)
    call(**with_tensors(arguments, other_numbers))
    if not (same(first, again) and same(first, result())):
        return "keeps something, or draws"
    if not same(first, call(**with_tensors(arguments, among_others)), 1e-4):
        return "looks at what lies around"
    given = with_tensors(arguments, torch.clone)
    call(**given)
    return "" if same(given, arguments) else "writes to its inputs"


@pytest.mark.parametrize("name", [*QUICK, *nightly(*sorted({*CASES} - {*QUICK}))])
def test_each_operation_at_work_is_a_function_of_its_inputs(name: str) -> None:
    with torch.no_grad():
        for step, arguments in at_work(name):
            assert step.call is not None
            assert strays(step.call, arguments) == "", step.call


class Counting:
    """Counts how often it is asked."""

    count = 0

    def __call__(self, x: Tensor) -> Tensor:
        """Return every second input, and zeros for the others."""
        self.count += 1
        return x * (self.count % 2)


class Averaging:
    """Subtracts a running mean, as a normalisation in training does."""

    mean = 0.0

    def __call__(self, x: Tensor) -> Tensor:
        """Return the input without the mean of what came before."""
        centred = x - self.mean
        self.mean = 0.9 * self.mean + 0.1 * float(x[..., 0].sum())
        return centred


def dropping(x: Tensor) -> Tensor:
    """Draw which numbers are zero."""
    return functional.dropout(x)


def stream(x: Tensor, generator: torch.Generator = torch.Generator().manual_seed(0)) -> Tensor:  # noqa: B008
    """Draw from a stream of its own, which nobody else sees."""
    return x * torch.rand((), generator=generator)


def peeping(x: Tensor) -> Tensor:
    """Add the row before, which lies in the same memory."""
    start = max(0, x.storage_offset() - x.numel())
    return x + torch.as_strided(x, x.shape, x.stride(), start)


def writing(x: Tensor) -> Tensor:
    """Change the row that it was given."""
    before = x.clone()
    x.zero_()
    return before


@pytest.mark.parametrize(
    ("mutant", "why"),
    [
        (Counting(), "keeps something"),
        (Averaging(), "keeps something"),
        (dropping, "draws"),
        (stream, "keeps something, or draws"),
        (peeping, "looks at what lies around"),
        (writing, "writes to its inputs"),
    ],
)
def test_a_mutant_is_caught(mutant: Operation, why: str) -> None:
    x = torch.randn(1, 6, generator=torch.Generator().manual_seed(4))
    assert strays(torch.tanh, {"input": x}) == ""
    assert why in strays(mutant, {"x": x})
