"""The server's watch over its edges' updates: do they keep the law, agree, and pull alike?

Its verdicts are a pure function of the updates in their order, so a replay of the journal comes to
the same ones. A snapshot keeps its state.
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
# Times the others' mean: as far as unequal data led honest edges (docs/attacks.md).
FAR = 2.0
# t of the bounds on lengths: with probability e^-4 an honest edge loses some weight for a while.
_DOUBT = 4.0
_WALK = ("count", "squared", "pull", "pull2", "most", "deviation")
_SUMS = ("energy", "owed", "most_one")


@dataclass(frozen=True, slots=True)
class Verdict:
    """The consequence of one update.

    weight: the part of it that counts, in [0, 1]. accused: the edges that it completes the proof
    against, each with the reason in words.
    """

    weight: float = 1.0
    accused: dict[str, str] = field(default_factory=dict)


class Watch:
    """The sums of every edge's updates; `judge` adds one update and returns the consequence.

    It holds two vectors (d,) of float64 for each of K edges. More than MOST edges are divided by
    name into groups of about the same size, and agreement is tested in one group at a time. So an
    update costs O(MOST·d) and O(MOST²), whatever K.
    """

    def __init__(self, size: int, edges: int, false_alarm: float, *, agreement: bool) -> None:
        """size: d. edges: how many will take part. agreement: whether to compare edges.

        false_alarm: the probability that a whole run of honest edges accuses any of them.
        """
        self.size, self.agreement = size, agreement
        self.t = math.log(4 * edges / false_alarm)  # -ln of a quarter of one edge's part of it
        self.edges: dict[str, Sums] = {}
        self.names: list[str] = []  # of `edges`, sorted
        self.seen = 0  # updates judged
        self.renewal = 1  # updates an edge at which the current blocks began

    def judge(self, edge: str, vector: Tensor, law: Law) -> Verdict:
        """Add an update of `edge` and judge it; vector: its step (d,). law: what it must keep."""
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
        """Drop this edge's sums, so that it begins anew; the others' stay."""
        if self.edges.pop(edge, None) is not None:
            self.names.remove(edge)

    def _sums(self, edge: str) -> Sums:
        if edge not in self.edges:
            self.edges[edge] = Sums(self.size)
            bisect.insort(self.names, edge)
        return self.edges[edge]

    @property
    def groups(self) -> int:
        """The number of groups that the edges are divided into."""
        return max(1, math.ceil(len(self.names) / MOST))

    def _group(self, number: int) -> dict[str, Sums]:
        """Return the sums of group `number`; neighbours in the order of names are apart."""
        return {name: self.edges[name] for name in self.names[number :: self.groups]}

    def _opponents(self) -> dict[str, str]:
        """Return the edges that work against the others, with the reason.

        One group is tested in as many updates as a group has edges; the groups take turns.
        """
        size = math.ceil(len(self.names) / self.groups)
        turn, left = divmod(self.seen, size)
        if left or self.seen < 2 * len(self.names):  # else it would test at each newcomer
            return {}
        group = self._group(turn % self.groups)
        t = self.t + 2 * math.log(1 + self.seen / size)  # a union bound over all the tests so far
        whole = {name: sums.whole for name, sums in group.items()}
        if found := opponents(whole, t):
            return dict.fromkeys(found, "all its updates work against the other edges'")
        block = {name: sums.block for name, sums in group.items()}
        if found := opponents(block, t, worse=WORSE_LATER, behind=BEHIND_LATER):
            return dict.fromkeys(found, "its latest updates work against the other edges'")
        return {}

    def _weight(self, edge: str) -> float:
        """Return the part of this edge's update that counts, in (0, 1].

        It is below 1 where the edge's mean is longer than the others' median mean can be: an edge
        may pull as far as the others' data shows that data can. Beyond FAR times that it adds less
        than they do, the less the further, so nobody gains by pulling as far as the law allows.
        """
        group = self._group(bisect.bisect_left(self.names, edge) % self.groups)
        if len(group) < FEWEST:
            return 1.0
        share = min(self._share(group, edge, name) for name in ("whole", "block"))
        return share * min(1.0, FAR * share)

    def _share(self, group: dict[str, Sums], edge: str, name: str) -> float:
        walks: dict[str, Walk] = {other: getattr(sums, name) for other, sums in group.items()}
        own, _ = walks.pop(edge).between(_DOUBT)
        others = [walk.between(_DOUBT)[1] if walk.count else math.inf for walk in walks.values()]
        most = median(others)
        return 1.0 if own <= most else most / own

    def _renew(self) -> None:
        """Begin new blocks whenever the number of updates has doubled; they show a late change."""
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
