"""A graph's layers, as a reviewer reads them: operations, put together by the weights they read.

What belongs together is read off the graph: which values an operation reads, and which weights. A
file may call a weight what it likes, and a name says nothing but itself. Rules:

- An operation that reads weights begins a layer, named after their module, unless it goes on with
  a layer of the same module.
- An operation without weights goes on with the layer that it reads. One that reads several, as an
  addition of a residual path, is a layer of its own.
- What only rearranges numbers is no layer, and what no example reaches belongs to its reader.
- All that others read of a layer is its last result: a layer ends where a path leaves it.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from tacit.graphs.graph_check import CheckedGraph, NodeSize
from tacit.graphs.graph_file import EXAMPLE, GraphFile, GraphWeight, Node, Of
from tacit.graphs.operations import ITEM

_REARRANGING = """
    _to_copy alias chunk clone contiguous detach diagonal expand expand_as flatten item movedim
    narrow permute reshape select slice split split_with_sizes squeeze t to transpose type_as unbind
    unflatten unsqueeze
"""
_REARRANGES = frozenset(_REARRANGING.split())
# Their result has no number of what they read: its shape or type alone.
_BLANK = frozenset({"full_like", "new_full", "new_ones", "new_zeros", "ones_like", "zeros_like"})
_PASSES = 8  # in which layers are parted where a path leaves them
_SMALL = ("bool", "int64", "int32")  # weights of these types are masks and places, and no layer


@dataclass(frozen=True, slots=True)
class GraphLayer:
    """A layer, or several in one.

    name: of the module whose weights it reads, or "". line: where the user's module asked for its
    first operation. operations: in their order, what only rearranges left out. sources: the numbers
    of the layers that it reads, with 0 for the example. shape: of its result for one
    example. weights: those that no earlier layer reads. again: whether an earlier layer reads its
    weights, too. multiply_adds: of a row, forward.
    """

    name: str
    line: str
    operations: tuple[str, ...]
    sources: tuple[int, ...]
    shape: tuple[int, ...]
    weights: tuple[GraphWeight, ...]
    again: bool
    multiply_adds: int

    @property
    def trained(self) -> int:
        """Numbers that are trained, of its weights."""
        return sum(math.prod(weight.shape) for weight in self.weights if weight.trained)

    @property
    def fixed(self) -> int:
        """Numbers that stay as they are, of its weights."""
        return sum(math.prod(weight.shape) for weight in self.weights if not weight.trained)


def layers_of(checked: CheckedGraph) -> tuple[GraphLayer, ...]:
    """Return the layers of a graph's network, in their order: the first one is number 1.

    What the output does not need is no part of any.
    """
    graph = checked.graph
    needed = {step.name for step in checked.network.steps}
    nodes = [node for node in graph.nodes if node.name in needed]
    ends: frozenset[str] = frozenset()
    for _ in range(_PASSES):
        grouping = _Grouping(graph, nodes, ends)
        more = grouping.early_exits(graph.output) - ends
        if not more:
            break
        ends |= more
    return tuple(_layer(draft, checked.sizes, grouping.outlook) for draft in grouping.drafts[1:])


@dataclass(slots=True)
class _Draft:
    """A layer that grows. key: the module of its weights, or None.

    apart: what it reads that no example reaches, and whether weights do.
    """

    key: str | None
    sources: dict[int, None]
    again: bool = False
    nodes: list[Node] = field(default_factory=list)
    apart: list[tuple[Node, bool]] = field(default_factory=list)
    weights: list[GraphWeight] = field(default_factory=list)


class _Grouping:
    """One way of a graph's nodes into layers. ends: values after which a layer goes on no more."""

    def __init__(self, graph: GraphFile, nodes: Sequence[Node], ends: frozenset[str]) -> None:
        self._ends = ends
        self._weights = {weight.name: weight for weight in graph.weights}
        self._apart: dict[str, Node] = {}  # what no example reaches
        self._key: dict[str, str | None] = {}  # of a value that no example reaches
        self._readers: dict[str, _Draft] = {}  # of each weight, the layer that reads it first
        self._same: dict[str, str] = {EXAMPLE: EXAMPLE}  # a value, before it was rearranged
        self._place: dict[str, int] = {EXAMPLE: 0}  # the layer of a value
        self._leaves: list[tuple[str, int]] = []  # a value, and a layer that reads it
        self.outlook: dict[str, str] = {}  # a value, as the first other layer reads it
        self.drafts = [_Draft(None, {})]
        for weight in graph.weights:
            self._key[weight.name] = _module(weight)
        for node in nodes:
            self._add(node)

    def early_exits(self, output: str) -> frozenset[str]:
        """Return the values that are read elsewhere, and after which their layer goes on."""
        leaves = [*self._leaves, (self._same.get(output, output), -1)]
        last = {draft.nodes[-1].name for draft in self.drafts if draft.nodes}
        return frozenset(value for value, reader in leaves if self._place.get(value) != reader) - (
            last | {EXAMPLE}
        )

    def _add(self, node: Node) -> None:
        reads = list(_reads(node))
        live = dict.fromkeys(self._same[name] for name in reads if name in self._same)
        key = next((key for name in reads if (key := self._key.get(name)) is not None), None)
        if not live or _packet(node) in _BLANK:
            self._apart[node.name] = node
            self._key[node.name] = key
            return
        if len(live) == 1 and key is None and _packet(node) in _REARRANGES:
            self._same[node.name] = next(iter(live))
            return
        place = self._joined(live, key) or self._begun(live, key)
        draft = self.drafts[place]
        draft.nodes.append(node)
        self._take_weights(draft, reads)
        self._same[node.name] = node.name
        self._place[node.name] = place
        self._leaves += [(name, place) for name in live]
        for name in reads:
            value = self._same.get(name)
            if value is not None and self._place[value] != place:
                self.outlook.setdefault(value, name)

    def _joined(self, live: Mapping[str, str | None], key: str | None) -> int:
        """Return the layer that goes on with what reads these values; 0: none does."""
        places = {self._place[name] for name in live}
        if any(name in self._ends for name in live):
            return 0
        if key is None:
            return places.pop() if len(places) == 1 else 0
        for place in sorted(places - {0}):
            draft = self.drafts[place]
            if draft.key == key and all(each in draft.sources for each in places - {0, place}):
                draft.sources |= dict.fromkeys(places & {0})
                return place
        return 0

    def _begun(self, live: Mapping[str, str | None], key: str | None) -> int:
        sources = dict.fromkeys(self._place[name] for name in live)
        self.drafts.append(_Draft(key, sources))
        return len(self.drafts) - 1

    def _take_weights(self, draft: _Draft, names: Sequence[str]) -> None:
        """Give a layer the weights that it is the first to read, itself or by what lies apart."""
        waiting = list(reversed(names))
        while waiting:
            name = waiting.pop()
            if name in self._weights:
                if name not in self._readers:
                    self._readers[name] = draft
                    draft.weights.append(self._weights[name])
                draft.again |= self._readers[name] is not draft
            elif (node := self._apart.pop(name, None)) is not None:
                draft.apart.append((node, self._key[name] is not None))
                waiting += reversed(list(_reads(node)))


def _layer(draft: _Draft, sizes: Mapping[str, NodeSize], outlook: Mapping[str, str]) -> GraphLayer:
    apart = draft.apart[::-1]
    counts = Counter(
        _packet(node)
        for node in (*(node for node, weights in apart if weights), *draft.nodes)
        if _packet(node) not in _REARRANGES
    )
    nodes = [*(node for node, _ in apart), *draft.nodes]
    return GraphLayer(
        draft.key or "",
        next((node.line for node in draft.nodes if node.line), ""),
        tuple(name if count == 1 else f"{name} ×{count}" for name, count in counts.items()),
        tuple(sorted(draft.sources)),
        _given(draft.nodes[-1].name, sizes, outlook),
        tuple(draft.weights),
        draft.again,
        sum(sizes[node.name].multiply_adds for node in nodes),
    )


def _given(
    value: str, sizes: Mapping[str, NodeSize], outlook: Mapping[str, str]
) -> tuple[int, ...]:
    """Return the shape of a layer's result: as the next layer reads it, if that is simpler.

    An attention's heads are put together so. What is flattened keeps its own shape.
    """
    own = of_one(sizes[value].shape)
    read = of_one(sizes[outlook.get(value, value)].shape)
    if 1 < len(read) < len(own) and math.prod(read) == math.prod(own):
        return read
    return own


def of_one(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return the shape of one example's part of a batch of one, where the batch comes first."""
    return shape[1:] if shape[:1] == (1,) else shape


def _module(weight: GraphWeight) -> str | None:
    if weight.dtype in _SMALL or not (weight.trained or weight.shape):
        return None
    return weight.name.rpartition(".")[0] or weight.name


def _packet(node: Node) -> str:
    return node.op.partition(".")[0]


def _reads(node: Node) -> Iterator[str]:
    for value in (*node.args, *node.kwargs.values()):
        for item in value if isinstance(value, tuple) else (value,):
            if isinstance(item, Of):
                yield item.of


assert ITEM in _REARRANGES
