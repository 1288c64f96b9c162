"""A user's module as a list of tensor operations, recorded once, on public numbers.

The code of a module is run when the model is made, on one public row, and every operation of torch
that it asks for is written down, from the parameters to that row's gradient. What is computed of a
private row afterwards is this list: none of the user's Python runs there. So the module cannot
branch on a row's numbers, print them, or raise. Nor can it keep them: the list works on copies of
all that it is given and of all constants, made for each row.

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
from torch.overrides import TorchFunctionMode

from tacit.errors import FROM_OWN_CODE
from tacit.models.harmless import harmless, writes_to_its_first
from tacit.models.model_contract import Model

_aten: Any = torch.ops.aten
_INDEXED = (_aten.index, _aten.index_put, _aten.index_put_, _aten._index_put_impl_)
_MASKS = (torch.bool, torch.uint8)
_OTHER_STEPS = "it takes other steps for other numbers (an if, a while, item())"
# What the public rows of the trial are multiplied by: ordinary, negative, far away, and zeros.
_FACTORS = (*[1.0] * 4, *[-1.0] * 4, *[100.0] * 3, *[-100.0] * 3, *[0.0] * 2)
Gradient = Callable[[Tensor, Tensor, Tensor], Tensor]  # params, x and y of one row, or of a batch


@dataclass(frozen=True, eq=False)
class Recorded:
    """One row's gradient as a list of operations.

    Guarantee: every row is computed by the operations of `graph`, in its order, whatever numbers it
    holds; no row raises; and no row, failing or not, changes another, the parameters, or a later
    call. Proof: the list was made before any private row was there, and has no user's code in it
    (`recorded`). It begins with copies of its parameters, its row and its constants, and nothing
    but those copies reads them (`_copied`): what an operation writes to, stated or not, is one of
    the copies or was made by the list, and is gone with the row. `mapped` is there only if no
    operation of the list can raise because of numbers (`models.harmless`), and computes all rows at
    once; else each row goes through the list alone, under `write_alone`.
    """

    graph: fx.GraphModule
    mapped: Gradient | None

    def write(self, params: Tensor, x: Tensor, y: Tensor, out: Tensor) -> None:
        """Write each row's gradient into its row of `out` (B, d); nan for a row that raises."""
        if self.mapped is not None and len(y):
            out.copy_(self.mapped(params, x, y))
            return
        for row, label, gradient in zip(x, y, out, strict=True):
            write_alone(self.graph, params, row, label, gradient)


def write_alone(gradient: Gradient, params: Tensor, x: Tensor, y: Tensor, out: Tensor) -> None:
    """Write one row's gradient into `out` (d,); if computing it raises, nan throughout."""
    write_or_nan(lambda: out.copy_(gradient(params, x, y)), out)


def write_or_nan(write: Callable[[], object], out: Tensor) -> None:
    """Call `write`, which writes one row's gradient into `out` (d,); if it raises, write nan.

    The one place where any exception is caught, as an exception is a message: it would end the
    edge, and the wire would say so. Guarantee: the call returns, whatever `write` raises, and what
    it raised is in nothing that is kept: not its words, not its kind, not its traceback; `out` is a
    function of the row and the parameters, as far as what is written is. Proof: no statement after
    the `try` reads the exception, and `out` is written as a whole in either case, as a copy that
    breaks off is overwritten. SystemExit, MemoryError and RecursionError are caught as well, and
    KeyboardInterrupt where SIGINT does not raise it, so that it comes from the code: an edge, a
    peer and a party hear of signals otherwise (tacit_services.signals). Not caught is what is no
    exception: `os._exit`, a crash of compiled code, a loop without an end.
    """
    try:
        write()
    except BaseException as error:
        if isinstance(error, KeyboardInterrupt) and _raised_by_signals():
            raise
        out.fill_(math.nan)


def _raised_by_signals() -> bool:
    """Check whether Ctrl-C raises KeyboardInterrupt in this process, as at a terminal."""
    return signal.getsignal(signal.SIGINT) is signal.default_int_handler


@lru_cache(maxsize=16)
def recorded(model: Model, device: str, x: torch.dtype, y: torch.dtype) -> Recorded | str:
    """Return the recorded list for rows of these types on `device`, or why there can be none.

    There is none for code that asks for a number of a row (a branch, an index of Python's, numpy),
    makes a size of numbers (a mask in brackets), draws at random, writes to its parameters or
    buffers, or calls what is not torch's own. Nor for code whose gradients are others than the
    list's on some public rows: it follows numbers in a way that was not seen (`_tried`).
    """
    rows, labels = model.random_batch(2, torch.Generator().manual_seed(0))
    rows = rows.to(device, x)
    labels = labels.to(device, y)
    params = model.init(0).to(device)
    fresh = model.anew()

    def gradient(params: Tensor, x: Tensor, y: Tensor) -> Tensor:
        result: Tensor = grad(fresh.loss)(params, x, y)
        return result

    try:
        with _Asked():
            graph = make_fx(gradient)(params, rows[0], labels[0])
    except FROM_OWN_CODE as error:  # these rows are public
        return _in_words(error)
    if (why := _refused(graph)) is not None:
        return why
    _copied(graph)
    safe = _with_safe_words(graph)
    if (why := _tried(graph, model, params, x, y)) is not None:
        return why
    return Recorded(graph, _mapped(graph, params, rows, labels) if safe else None)


class _Asked(TorchFunctionMode):
    """Lets `tolist` and `numpy` take the way of `item()`, which raises for a number of a row."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Call `func`."""
        if func in (Tensor.tolist, Tensor.numpy, Tensor.__array__) and args[0].numel():
            args[0].detach().flatten()[0].item()
        return func(*args, **(kwargs or {}))


def _in_words(error: BaseException) -> str:
    lines = str(error).splitlines()
    if lines and ("tracing tensor" in lines[0] or "data-dependent" in lines[0]):
        return _OTHER_STEPS
    return f"{type(error).__name__}: {lines[0] if lines else ''}".rstrip(": ")


def _refused(graph: fx.GraphModule) -> str | None:
    """Return why the list may not be used; None: it may."""
    inputs = _inputs(graph)
    for node in graph.graph.nodes:
        if node.op != "call_function" or node.target is operator.getitem:
            continue
        if not isinstance(node.target, torch._ops.OpOverload) or node.target.namespace != "aten":
            return f"{node.target} is not an operation of torch"
        if torch.Tag.nondeterministic_seeded in node.target.tags:
            return f"{node.target} draws at random"
        if _shaped_by_numbers(node):
            return f"{node.target} gives a size by numbers, as a mask in brackets does"
        if _writes(node) and (not writes_to_its_first(node.target) or node.args[0] in inputs):
            return f"{node.target} writes, or may write, to parameters, buffers or rows"
    return None


def _shaped_by_numbers(node: fx.Node) -> bool:
    """Check whether the size of an operation's result follows numbers.

    The recorded size is one row's. An index follows numbers only if it is a mask.
    """
    operation: Any = node.target
    if operation.overloadpacket in _INDEXED:
        places: Any = node.args[1]
        return any(place is not None and place.meta["val"].dtype in _MASKS for place in places)
    return bool(
        {torch.Tag.dynamic_output_shape, torch.Tag.data_dependent_output} & {*operation.tags}
    )


def _writes(node: fx.Node) -> bool:
    return any(
        argument.alias_info is not None and argument.alias_info.is_write
        for argument in node.target._schema.arguments  # type: ignore[union-attr]
    )


def _inputs(graph: fx.GraphModule) -> set[Any]:
    """Return the values that are, or may share memory with, the list's inputs or its state."""
    inputs: set[Any] = set()
    for node in graph.graph.nodes:
        if node.op != "call_function" or not inputs.isdisjoint(_shared(node)):
            inputs.add(node)
    return inputs


def _shared(node: fx.Node) -> set[fx.Node]:
    """Return the arguments that an operation's result may share memory with."""
    schema: Any = getattr(node.target, "_schema", None)
    if schema is None or "unsafe" in schema.name:  # views that torch does not count as such
        return {*node.all_input_nodes}
    names = [
        argument.name if argument.alias_info is not None else "" for argument in schema.arguments
    ]
    arguments = {**dict(zip(names, node.args, strict=False)), **node.kwargs}
    aliased: list[Any] = [value for name, value in arguments.items() if name in names and name]
    return {source for value in aliased for source in _nodes(value)}


def _nodes(value: Any) -> list[fx.Node]:
    """Return the nodes of an argument, which may be a list of them."""
    if isinstance(value, list | tuple):
        values = value
    else:
        values = [value]
    return [node for node in values if isinstance(node, fx.Node)]


def _copied(graph: fx.GraphModule) -> None:
    """Let the list read copies alone of what it is given and of what it keeps.

    Without this an operation that writes, or hands its argument on, without saying so in its schema
    (`native_batch_norm`) would keep something of a row.
    """
    nodes = graph.graph
    sources = [node for node in nodes.nodes if node.op in ("placeholder", "get_attr")]
    for node in sources:
        with nodes.inserting_after(node):
            copy = nodes.call_function(_aten.clone.default, (node,))
        node.replace_all_uses_with(copy, delete_user_cb=lambda user, copy=copy: user is not copy)
    graph.recompile()


def _with_safe_words(graph: fx.GraphModule) -> bool:
    """Let unknown words of embeddings give nan instead of raising; then: can nothing raise?"""
    for node in graph.graph.nodes:
        node.target = _SAFE.get(node.target, node.target)
    graph.recompile()
    called = [node.target for node in graph.graph.nodes if node.op == "call_function"]
    return all(operation in _OWN or harmless(operation) for operation in called)


def _words(weight: Tensor, words: Tensor, *options: Any) -> Tensor:
    """Call aten.embedding, with nan for a word that is not in `weight`."""
    clamped = words.clamp(0, len(weight) - 1)
    vectors: Tensor = _aten.embedding.default(weight, clamped, *options)
    return torch.where((clamped == words).unsqueeze(-1), vectors, math.nan)


def _words_backward(delta: Tensor, words: Tensor, count: int, *options: Any) -> Tensor:
    """Call aten.embedding_dense_backward so that no word makes it raise."""
    gradient: Tensor = _aten.embedding_dense_backward.default(
        delta, words.clamp(0, count - 1), count, *options
    )
    return gradient


_SAFE: dict[Any, Any] = {
    _aten.embedding.default: _words,
    _aten.embedding_dense_backward.default: _words_backward,
}
_OWN = (*_SAFE.values(), operator.getitem)


def _mapped(graph: fx.GraphModule, params: Tensor, x: Tensor, y: Tensor) -> Gradient | None:
    """Return the list for a whole batch, tried on public rows; None where torch cannot map it."""
    mapped: Gradient = vmap(graph, in_dims=(None, 0, 0))
    try:
        mapped(params, x, y)
    except RuntimeError:  # public rows, and operations that raise for shapes alone
        return None
    return mapped


def _tried(
    graph: fx.GraphModule, model: Model, params: Tensor, x: torch.dtype, y: torch.dtype
) -> str | None:
    """Return why the list may not be used, by public rows and two vectors; None: it may.

    It must give the gradients of the code, and leave alone what it is given, however far the rows
    are from those that it was recorded with. A row where neither is finite (one that both raise at
    is not) counts as equal. A trial, not a proof: code may follow numbers that no public row has.
    """
    rows, labels = model.random_batch(len(_FACTORS), torch.Generator().manual_seed(4))
    if x.is_floating_point:
        rows = rows * torch.tensor(_FACTORS).view(-1, *[1] * (rows.dim() - 1))
    else:  # whole numbers stay among those that are declared; the last row is of zeros
        rows[-1] = 0
    far = rows.to(params.device, x)
    labels = labels.to(params.device, y)
    code = grad(model.anew().loss)
    for vector in (params, -2 * model.init(1).to(params.device)):
        inputs = (vector, far, labels, *graph.buffers())
        copies = [tensor.clone() for tensor in inputs]
        first = _alone(graph, vector, far[0], labels[0])
        for row, label in zip(far, labels, strict=True):
            if not _alike(*(_alone(function, vector, row, label) for function in (graph, code))):
                return _OTHER_STEPS
        again = _alone(graph, vector, far[0], labels[0])
        if not all(map(torch.equal, copies, inputs)) or not _alike(first, again):
            return "it keeps something of a row for the next"
    return None


def _alone(gradient: Gradient, params: Tensor, x: Tensor, y: Tensor) -> Tensor:
    out = torch.empty_like(params)
    write_alone(gradient, params, x.clone(), y.clone(), out)
    return out


def _alike(first: Tensor, second: Tensor) -> bool:
    """Check whether two gradients (d,) differ by rounding alone, or neither is finite."""
    finite = bool(first.isfinite().all()), bool(second.isfinite().all())
    if not all(finite):
        return not any(finite)
    allowed = 1e-3 * second.abs() + 1e-5 * max(1.0, float(second.abs().max()))
    return bool(((first - second).abs() <= allowed).all())
