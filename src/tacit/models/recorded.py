"""A user's module as a list of tensor operations, recorded once, on public numbers.

The code of a module is run when the model is made, on one public row, and every operation of torch
that it asks for is written down, from the parameters to that row's gradient. What is computed of a
private row afterwards is this list: none of the user's Python runs there. So the module cannot
branch on a row's numbers, keep them, print them, or raise.

An operation of torch may still raise because of numbers (a singular matrix, an unknown index). Then
that row is nan throughout, as one whose numbers overflow, and clipping makes zeros of both.

Shapes: params (d,), one row x (*shape), y (); a batch x (B, *shape), y (B,) -> gradients (B, d).
"""

from __future__ import annotations

import math
import operator
import signal
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor, fx
from torch.func import grad, vmap
from torch.fx.experimental.proxy_tensor import make_fx

from tacit.errors import FROM_OWN_CODE
from tacit.models.base import Model
from tacit.models.harmless import harmless

_aten: Any = torch.ops.aten
_INDEXED = (_aten.index, _aten.index_put, _aten.index_put_, _aten._index_put_impl_)
_BY_NUMBERS = {torch.Tag.dynamic_output_shape, torch.Tag.data_dependent_output}
_MASKS = (torch.bool, torch.uint8)
Gradient = Callable[[Tensor, Tensor, Tensor], Tensor]  # params, x and y of one row, or of a batch


@dataclass(frozen=True, eq=False)
class Recorded:
    """One row's gradient as a list of operations.

    Guarantee: every row is computed by the operations of `graph`, in its order, whatever numbers it
    holds; no row raises; and whether one row's operations fail changes no other row. Proof: the
    list was made before any private row was there, and has no user's code in it (`record`). `whole`
    is there only if no operation of the list can raise because of numbers (`models.harmless`), and
    computes all rows at once; else each row goes through the list alone, under `write_alone`.
    """

    graph: fx.GraphModule
    whole: Gradient | None

    def write(self, params: Tensor, x: Tensor, y: Tensor, out: Tensor) -> None:
        """Write each row's gradient into its row of `out` (B, d); nan for a row that raises."""
        if self.whole is not None and len(y):
            out.copy_(self.whole(params, x, y))
            return
        for row, label, own in zip(x, y, out, strict=True):
            write_alone(self.graph, params, row, label, own)


def write_alone(gradient: Gradient, params: Tensor, x: Tensor, y: Tensor, out: Tensor) -> None:
    """Write one row's gradient into `out` (d,); if computing it raises, nan throughout.

    The one place where any exception is caught, as an exception is a message: it would end the
    edge, and the wire would say so. Guarantee: the call returns, whatever `gradient` raises, and
    what it raised is in nothing that is kept: not its words, not its kind, not its traceback; `out`
    is a function of the row and the parameters, as far as `gradient` is. Proof: no statement after
    the `try` reads the exception, and `out` is written as a whole in either case, as a copy that
    breaks off is overwritten. SystemExit, MemoryError and RecursionError are caught as well, and
    KeyboardInterrupt where SIGINT does not raise it, so that it comes from the code: an edge, a
    peer and a party hear of signals otherwise (tacit_services.signals). Not caught is what is no
    exception: `os._exit`, a crash of compiled code, a loop without an end.
    """
    try:
        out.copy_(gradient(params, x, y))
    except BaseException as error:
        if isinstance(error, KeyboardInterrupt) and _raised_by_signals():
            raise
        out.fill_(math.nan)


def _raised_by_signals() -> bool:
    """Whether Ctrl-C raises KeyboardInterrupt in this process, as in a command at a terminal."""
    return signal.getsignal(signal.SIGINT) is signal.default_int_handler


@lru_cache(maxsize=16)
def recorded(model: Model, device: str, x: torch.dtype, y: torch.dtype) -> Recorded | str:
    """The list for rows of these types on `device`; where there can be none, why.

    There is none for code that asks for a number of a row (a branch, an index of Python's, numpy),
    makes a size of numbers (a mask in brackets), draws at random, writes to its parameters or
    buffers, or calls what is not torch's own.
    """
    rows, labels = model.random_batch(2, torch.Generator().manual_seed(0))
    rows, labels = rows.to(device, x), labels.to(device, y)
    params = model.init(0).to(device)
    own = model.anew()

    def gradient(params: Tensor, x: Tensor, y: Tensor) -> Tensor:
        found: Tensor = grad(own.loss)(params, x, y)
        return found

    try:
        graph = make_fx(gradient)(params, rows[0], labels[0])
    except FROM_OWN_CODE as error:  # these rows are public
        return _in_words(error)
    if (why := _refused(graph)) is not None:
        return why
    safe = _with_safe_words(graph)
    return Recorded(graph, _mapped(graph, params, rows, labels) if safe else None)


def _in_words(error: BaseException) -> str:
    said = str(error).splitlines()
    if said and ("tracing tensor" in said[0] or "data-dependent" in said[0]):
        return "it takes other steps for other numbers (an if, a while, item())"
    return f"{type(error).__name__}: {said[0] if said else ''}".rstrip(": ")


def _refused(graph: fx.GraphModule) -> str | None:
    """Why the list may not be used; None: it may."""
    for node in graph.graph.nodes:
        if node.op != "call_function" or node.target is operator.getitem:
            continue
        if not isinstance(node.target, torch._ops.OpOverload) or node.target.namespace != "aten":
            return f"{node.target} is not an operation of torch"
        if torch.Tag.nondeterministic_seeded in node.target.tags:
            return f"{node.target} draws at random"
        if _shaped_by_numbers(node):
            return f"{node.target} gives a size by numbers, as a mask in brackets does"
        if any(_is_an_input(value) for value in _written(node)):
            return f"{node.target} writes to parameters, buffers or rows"
    return None


def _shaped_by_numbers(node: fx.Node) -> bool:
    """Whether how much an operation gives, or writes, follows numbers: the recorded size is one
    row's. An index does only if it is a mask.
    """
    operation: Any = node.target
    if operation.overloadpacket in _INDEXED:
        places: Any = node.args[1]
        return any(one is not None and one.meta["val"].dtype in _MASKS for one in places)
    return bool(
        {torch.Tag.dynamic_output_shape, torch.Tag.data_dependent_output} & {*operation.tags}
    )


def _written(node: fx.Node) -> list[Any]:
    """The values that an operation writes to, in place."""
    given = node.target._schema.arguments  # type: ignore[union-attr]
    names = [(place, one.name) for place, one in enumerate(given) if _in_place(one)]
    return [
        node.args[place] if place < len(node.args) else node.kwargs.get(name)
        for place, name in names
    ]


def _in_place(argument: Any) -> bool:
    return argument.alias_info is not None and argument.alias_info.is_write


def _is_an_input(value: Any) -> bool:
    """Whether a value is, or may be a view of, what the list is given or keeps."""
    while isinstance(value, fx.Node) and value.op == "call_function":
        if value.target is not operator.getitem and not _gives_views(value.target):
            return False
        value = value.args[0]
    return value is not None


def _gives_views(operation: Any) -> bool:
    schema = operation._schema
    unsafe = "unsafe" in schema.name  # views that torch does not count as such
    return unsafe or any(one.alias_info is not None for one in schema.returns)


def _with_safe_words(graph: fx.GraphModule) -> bool:
    """Let unknown words of embeddings give nan instead of raising; then: can nothing raise?"""
    for node in graph.graph.nodes:
        node.target = _SAFE.get(node.target, node.target)
    graph.recompile()
    called = [node.target for node in graph.graph.nodes if node.op == "call_function"]
    return all(one in _OWN or harmless(one) for one in called)


def _words(weight: Tensor, words: Tensor, *rest: Any) -> Tensor:
    """aten.embedding, with nan for a word that is not in `weight`."""
    known = words.clamp(0, len(weight) - 1)
    found: Tensor = _aten.embedding.default(weight, known, *rest)
    return torch.where((known == words).unsqueeze(-1), found, math.nan)


def _words_backward(delta: Tensor, words: Tensor, count: int, *rest: Any) -> Tensor:
    """aten.embedding_dense_backward, which no word makes raise."""
    found: Tensor = _aten.embedding_dense_backward.default(
        delta, words.clamp(0, count - 1), count, *rest
    )
    return found


_SAFE: dict[Any, Any] = {
    _aten.embedding.default: _words,
    _aten.embedding_dense_backward.default: _words_backward,
}
_OWN = (*_SAFE.values(), operator.getitem)


def _mapped(graph: fx.GraphModule, params: Tensor, x: Tensor, y: Tensor) -> Gradient | None:
    """The list for a whole batch, tried on public rows; None where torch cannot map it."""
    whole: Gradient = vmap(graph, in_dims=(None, 0, 0))
    try:
        whole(params, x, y)
    except RuntimeError:  # public rows, and operations that raise for shapes alone
        return None
    return whole
