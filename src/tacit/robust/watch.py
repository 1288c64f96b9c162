"""All that a server watches of its edges' updates: their law, their agreement, their length.

A pure function of the updates in their order, so a replay of the journal comes to the same
verdicts, and a snapshot keeps it.
"""

from __future__ import annotations

import bisect
import math
from dataclasses import dataclass, field
from statistics import median
from typing import Any

from torch import Tensor

from tacit.robust.agreement import BEHIND_LATER, FEWEST, WORSE_LATER, opponents
from tacit.robust.law import Law, Sums, Walk

MOST = 200  # edges that are compared with one another; more are dealt to groups
_DOUBT = 4.0  # e^-4: of a length that takes weight from an honest edge, a little, for a while
_WALK = ("count", "squared", "pull", "pull2", "most", "deviation")
_SUMS = ("energy", "owed", "most_one")


@dataclass(frozen=True, slots=True)
class Verdict:
    """Of one update: what part of it counts, and whom it is the last proof against, and why."""

    weight: float = 1.0
    accused: dict[str, str] = field(default_factory=dict)


class Watch:
    """Sums of every edge; `judge` takes one update and says what follows.

    Of K edges it holds two vectors (d,) of float64 each. More than MOST are dealt by their names to
    groups of about the same size, of which agreement is asked in turn: an update costs O(MOST·d)
    and O(MOST²), whatever K.
    """

    def __init__(self, size: int, edges: int, false_alarm: float, *, agreement: bool) -> None:
        """size: d. edges: how many there will be. false_alarm: of a whole run of honest edges."""
        self.size, self.agreement = size, agreement
        self.t = math.log(4 * edges / false_alarm)  # of one edge and one of four uses
        self.edges: dict[str, Sums] = {}
        self.names: list[str] = []  # of `edges`, sorted
        self.seen = 0  # updates
        self.renewal = 1  # of the blocks, at this many updates an edge

    def judge(self, edge: str, vector: Tensor, law: Law) -> Verdict:
        """One more update of `edge`: how far it led (d,), and its law."""
        sums = self._sums(edge)
        sums.add(vector, law)
        self.seen += 1
        if why := sums.broken(self.t):
            return Verdict(0.0, {edge: why})
        accused = self._opponents() if self.agreement else {}
        weight = self._weight(edge) if self.agreement else 1.0
        self._renew()
        return Verdict(0.0 if edge in accused else weight, accused)

    def forget(self, edge: str) -> None:
        """Begin anew with this edge; the others' updates stay."""
        if self.edges.pop(edge, None) is not None:
            self.names.remove(edge)

    def _sums(self, edge: str) -> Sums:
        if edge not in self.edges:
            self.edges[edge] = Sums(self.size)
            bisect.insort(self.names, edge)
        return self.edges[edge]

    @property
    def groups(self) -> int:
        """How many groups the edges are dealt to."""
        return max(1, math.ceil(len(self.names) / MOST))

    def _group(self, number: int) -> dict[str, Sums]:
        """One of them. Names that follow one another are in different ones."""
        return {name: self.edges[name] for name in self.names[number :: self.groups]}

    def _opponents(self) -> dict[str, str]:
        """Whom the others' sums accuse; a group is asked once in as many updates as it has edges,
        each in its turn.
        """
        size = math.ceil(len(self.names) / self.groups)
        turn, left = divmod(self.seen, size)
        if left or self.seen < 2 * len(self.names):  # while they come, each is one more
            return {}
        group = self._group(turn % self.groups)
        t = self.t + 2 * math.log(1 + self.seen / size)  # over all that are asked
        whole = {name: sums.whole for name, sums in group.items()}
        if found := opponents(whole, t):
            return dict.fromkeys(found, "all its updates work against the other edges'")
        block = {name: sums.block for name, sums in group.items()}
        if found := opponents(block, t, worse=WORSE_LATER, behind=BEHIND_LATER):
            return dict.fromkeys(found, "its latest updates work against the other edges'")
        return {}

    def _weight(self, edge: str) -> float:
        """What part of its update counts:

        less than all where its mean is longer than the others' median can be. So that an edge adds
        what the others' data show that data can.
        """
        group = self._group(bisect.bisect_left(self.names, edge) % self.groups)
        if len(group) < FEWEST:
            return 1.0
        return min(self._share(group, edge, name) for name in ("whole", "block"))

    def _share(self, group: dict[str, Sums], edge: str, name: str) -> float:
        walks: dict[str, Walk] = {other: getattr(sums, name) for other, sums in group.items()}
        own, _ = walks.pop(edge).between(_DOUBT)
        others = [walk.between(_DOUBT)[1] if walk.count else math.inf for walk in walks.values()]
        most = median(others)
        return 1.0 if own <= most else most / own

    def _renew(self) -> None:
        """Blocks begin anew whenever twice as many updates have come: they see what is late."""
        if self.seen >= 2 * self.renewal * len(self.edges):
            self.renewal *= 2
            for sums in self.edges.values():
                sums.renew()

    # -- persistence -------------------------------------------------------------------------------

    def state(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """(tensors, JSON values) from which `restore` continues to the same bits."""
        tensors: dict[str, Tensor] = {}
        values: dict[str, Any] = {}
        for edge, sums in self.edges.items():
            walks = {"whole": sums.whole, "block": sums.block}
            tensors |= {f"watch/{name}/{edge}": walk.total for name, walk in walks.items()}
            values[edge] = {key: getattr(sums, key) for key in _SUMS} | {
                name: {key: getattr(walk, key) for key in _WALK} for name, walk in walks.items()
            }
        return tensors, {"seen": self.seen, "renewal": self.renewal, "edges": values}

    def restore(self, tensors: dict[str, Tensor], values: dict[str, Any]) -> None:
        """Continue from what `state` returned."""
        self.seen, self.renewal = values["seen"], values["renewal"]
        self.edges, self.names = {}, []
        for edge, kept in values["edges"].items():
            sums = self._sums(edge)
            for key in _SUMS:
                setattr(sums, key, kept[key])
            sums.whole = Walk(tensors[f"watch/whole/{edge}"], **kept["whole"])
            sums.block = Walk(tensors[f"watch/block/{edge}"], **kept["block"])
