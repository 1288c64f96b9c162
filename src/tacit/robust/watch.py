"""All that a server watches of its edges' updates: their law, their agreement, their length.

A pure function of the updates in their order, so a replay of the journal comes to the same
verdicts, and a snapshot keeps it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from statistics import median
from typing import Any

from torch import Tensor

from tacit.robust.agreement import BEHIND_LATER, FEWEST, WORSE_LATER, opponents
from tacit.robust.law import Law, Sums, Walk

_DOUBT = 4.0  # e^-4: of a length that takes weight from an honest edge, a little, for a while
_WALK = ("count", "squared", "pull", "pull2", "most", "deviation")
_SUMS = ("energy", "owed", "most_one")


@dataclass(frozen=True, slots=True)
class Verdict:
    """Of one update: what part of it counts, and whom it is the last proof against, and why."""

    weight: float = 1.0
    accused: dict[str, str] = field(default_factory=dict)


class Watch:
    """Sums of every edge; `judge` takes one update and says what follows."""

    def __init__(self, size: int, edges: int, false_alarm: float, *, agreement: bool) -> None:
        """size: d. edges: how many there will be. false_alarm: of a whole run of honest edges."""
        self.size, self.agreement = size, agreement
        self.t = math.log(4 * edges / false_alarm)  # of one edge and one of four uses
        self.edges: dict[str, Sums] = {}
        self.seen = 0  # updates
        self.renewal = 1  # of the blocks, at this many updates an edge

    def judge(self, edge: str, vector: Tensor, law: Law) -> Verdict:
        """One more update of `edge`: how far it led (d,), and its law."""
        sums = self.edges.setdefault(edge, Sums(self.size))
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
        self.edges.pop(edge, None)

    def _opponents(self) -> dict[str, str]:
        """Whom the others' sums accuse; asked once in as many updates as there are edges."""
        if self.seen % max(1, len(self.edges)):
            return {}
        t = self.t + 2 * math.log(1 + self.seen / len(self.edges))  # over all that are asked
        whole = {name: sums.whole for name, sums in self.edges.items()}
        if found := opponents(whole, t):
            return dict.fromkeys(found, "all its updates work against the other edges'")
        block = {name: sums.block for name, sums in self.edges.items()}
        if found := opponents(block, t, worse=WORSE_LATER, behind=BEHIND_LATER):
            return dict.fromkeys(found, "its latest updates work against the other edges'")
        return {}

    def _weight(self, edge: str) -> float:
        """What part of its update counts:

        less than all where its mean is longer than the others' median can be. So that an edge adds
        what the others' data show that data can.
        """
        if len(self.edges) < FEWEST:
            return 1.0
        return min(self._share(edge, "whole"), self._share(edge, "block"))

    def _share(self, edge: str, name: str) -> float:
        walks: dict[str, Walk] = {other: getattr(sums, name) for other, sums in self.edges.items()}
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
        self.seen, self.renewal, self.edges = values["seen"], values["renewal"], {}
        for edge, kept in values["edges"].items():
            sums = self.edges[edge] = Sums(self.size)
            for key in _SUMS:
                setattr(sums, key, kept[key])
            sums.whole = Walk(tensors[f"watch/whole/{edge}"], **kept["whole"])
            sums.block = Walk(tensors[f"watch/block/{edge}"], **kept["block"])
