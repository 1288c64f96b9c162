"""Rows that an embedding has no vector for: they become nan, and clipping makes zeros of them.

A module may make its whole numbers of floats, which bound nothing. torch raises for one outside of
an embedding, and that would tell a row. So a frozen graph looks up the nearest word that there is,
and then gives nan in its place.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from tacit.graphs.graph_check import NodeTrial
from tacit.graphs.graph_file import FarFloat, Node, Of

_EMBEDDING = "embedding.default"


def guarded(nodes: Iterable[Node], trial: NodeTrial) -> Iterator[Node]:
    """Yield the nodes, with four more for each embedding whose words are not known to be there.

    trial: knows the example and the weights. Raises ConfigError for a node that does not fit.
    """
    for node in nodes:
        for each in _guarded(node, trial):
            trial.add(each)
            yield each


def _guarded(node: Node, trial: NodeTrial) -> tuple[Node, ...]:
    match node:
        case Node(op=op, args=(Of() as weight, Of() as words, *rest)) if op == _EMBEDDING:
            count = len(trial.value(weight.of))
            limits = trial.limits(words.of)
        case _:
            return (node,)
    if limits is not None and limits.low >= 0 and limits.high < count:
        return (node,)
    nearest, vectors, same, known = (
        f"{node.name}.{part}" for part in ("nearest", "vectors", "same", "known")
    )

    def of(name: str, op: str, *args: object) -> Node:
        return node.model_copy(update={"name": name, "op": op, "args": args, "kwargs": {}})

    return (
        of(nearest, "clamp.default", words, 0, count - 1),
        node.model_copy(update={"name": vectors, "args": (weight, Of(of=nearest), *rest)}),
        of(same, "eq.Tensor", Of(of=nearest), words),
        of(known, "unsqueeze.default", Of(of=same), -1),
        of(node.name, "where.ScalarOther", *(Of(of=known), Of(of=vectors), FarFloat(float="nan"))),
    )
