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

from tacit.robust.agreement import (
    AWAY,
    BEHIND_LATER,
    FEWEST,
    STILL_AWAY,
    WORSE_LATER,
    opponents,
    worsened,
)
from tacit.robust.law import Law, Sums, Walk

# Sums of an edge's latest updates, by `keep`: as good as plain means of 3, 7 and 15.
RECENT = (1 / 2, 3 / 4, 7 / 8)
MOST = 200  # edges that are compared with one another; more are dealt to groups
# Times the others' mean. At 2 and 1.5 an honest edge with a class of its own lost it: its pull
# against a liar counted for less than the lie (docs/attacks.md).
FAR = 3.0
LATEST = 2.0  # the same over an edge's latest updates
NEAR = 1.0  # the same for an edge that stands apart from the others
# Of an edge that works against the others, in a round that waits for it: it may be its data.
OPPOSED_WEIGHT = 0.1
# t of the bounds on lengths: an honest edge may lose some weight for a while by its noise.
_DOUBT = 1.0
_ANY = math.inf  # no margin
_SLOW = 2  # of an edge's sums, those over its life and a block; the others are of its latest
_UNKNOWN = [(0.0, math.inf)] * (_SLOW + len(RECENT))
_WALK = ("count", "squared", "pull", "pull2", "most", "deviation")
_NAMES = ("whole", "block", *(f"recent{number}" for number in range(len(RECENT))))
_SUMS = ("energy", "owed", "most_one")


@dataclass(frozen=True, slots=True)
class GuardVerdict:
    """The consequence of one update.

    weight: the part of it that counts, in [0, 1]. accused: the edges that it completes the proof
    against, each with the reason in words.
    """

    weight: float = 1.0
    accused: dict[str, str] = field(default_factory=dict)


class Watch:
    """The sums of every edge's updates; `judge` adds one update and returns the consequence.

    It holds two vectors (d,) of float64 for each of K edges, and with `agreement` five. More than
    MOST edges are divided by name into groups of about the same size, and agreement is tested in
    one group at a time. So an update costs O(MOST·d) and O(MOST²), for every K.
    """

    def __init__(self, size: int, edges: int, false_alarm: float, *, agreement: bool) -> None:
        """size: d. edges: how many will take part. agreement: whether to compare edges.

        false_alarm: the probability that a whole run of honest edges accuses any of them.
        """
        self.size = size
        self.agreement = agreement
        self.t = math.log(4 * edges / false_alarm)  # -ln of a quarter of one edge's part of it
        self.edges: dict[str, Sums] = {}
        self.names: list[str] = []  # of `edges`, sorted
        self.judged = 0  # updates judged
        self.renewal = 1  # updates an edge at which the current blocks began
        self.apart: frozenset[str] = frozenset()  # edges that pull away from the others
        self.opposed: frozenset[str] = frozenset()  # those of them that work against the others
        # Of every edge: (lower, upper) bounds of its mean's length, over each of its sums.
        self._lengths: dict[str, list[tuple[float, float]]] = {}

    def judge(self, edge: str, vector: Tensor, law: Law) -> GuardVerdict:
        """Add an update of `edge` and judge it; vector: its step (d,). law: what it must keep."""
        sums = self._sums(edge)
        sums.add(vector, law)
        self._measure(edge)
        self.judged += 1
        if why := sums.broken(self.t):
            return GuardVerdict(0.0, {edge: why})
        weight = 1.0
        if self.agreement:
            self._compare()
            weight = min(self._weight(edge), OPPOSED_WEIGHT if edge in self.opposed else 1.0)
        self._renew()
        return GuardVerdict(weight)

    def forget(self, edge: str) -> None:
        """Drop this edge's sums, so that it begins anew; the others' stay."""
        if self.edges.pop(edge, None) is not None:
            self.names.remove(edge)
            self.apart = self.apart - {edge}
            self.opposed = self.opposed - {edge}
            self._lengths.pop(edge, None)

    def _sums(self, edge: str) -> Sums:
        if edge not in self.edges:
            self.edges[edge] = Sums(self.size, RECENT if self.agreement else ())
            bisect.insort(self.names, edge)
        return self.edges[edge]

    @property
    def groups(self) -> int:
        """The number of groups that the edges are divided into."""
        return max(1, math.ceil(len(self.names) / MOST))

    def _group(self, number: int) -> dict[str, Sums]:
        """Return the sums of group `number`; neighbours in the order of names are apart."""
        return {name: self.edges[name] for name in self.names[number :: self.groups]}

    def _measure(self, edge: str) -> None:
        if self.agreement:
            walks = self.edges[edge].walks
            self._lengths[edge] = [walk.between(_DOUBT) for walk in walks]

    def _compare(self) -> None:
        """Note which edges stand apart from the others, and which of them work against them.

        One group is tested in as many updates as a group has edges; the groups take turns. An
        edge that worked against the others once is held to do so while it stands apart.
        """
        size = math.ceil(len(self.names) / self.groups)
        turn, remainder = divmod(self.judged, size)
        if remainder or self.judged < 2 * len(self.names):  # else it would test at each newcomer
            return
        group = self._group(turn % self.groups)
        t = self.t + 2 * math.log(1 + self.judged / size)  # a union bound over all the tests so far
        all_walks = {name: sums.whole for name, sums in group.items()}
        block = {name: sums.block for name, sums in group.items()}
        apart = {*opponents(all_walks, t, worse=_ANY, behind=_ANY)} | {
            *opponents(block, t, worse=_ANY, behind=_ANY)
        }
        if apart:
            against = {*opponents(all_walks, t)}
        else:
            against = set()
        if apart and not against:
            against = {*opponents(block, t, worse=WORSE_LATER, behind=BEHIND_LATER)}
        if 2 * len(against | (hurt := self._worsened(all_walks, t))) < len(group):
            apart = apart | hurt
            against = against | hurt
        against |= self.opposed & apart
        self.apart = (self.apart - group.keys()) | apart
        self.opposed = (self.opposed - group.keys()) | against

    def _worsened(self, all_walks: dict[str, Walk], t: float) -> set[str]:
        """Return the edges that all updates together work against, of nearly nobody's mind."""
        return {
            name
            for name, cosine in worsened(all_walks, t).items()
            if cosine <= (STILL_AWAY if name in self.opposed else AWAY)
        }

    def _weight(self, edge: str) -> float:
        """Return the part of this edge's update that counts, in (0, 1].

        It is below 1 if the edge's mean over its life or a block is longer than FAR times the
        others' median mean can be. The edge then adds no more than that. Beyond twice as far it
        adds the less, the further it pulls. So it is for an edge that stands apart, with NEAR. The
        same holds for its latest updates with LATEST, and beyond it adds less at once. That is for
        an edge that goes as far as the law allows, back and forth, before the end.
        """
        group = self._group(bisect.bisect_left(self.names, edge) % self.groups)
        if len(group) < FEWEST:
            return 1.0
        lengths = [self._lengths.get(name, _UNKNOWN) for name in group if name != edge]
        typical = [
            median(high for _, high in others) / max(length, 1e-300)
            for (length, _), others in zip(
                self._lengths[edge], zip(*lengths, strict=True), strict=True
            )
        ]
        far = NEAR if edge in self.apart else FAR
        slow = min(1.0, *(far * share for share in typical[:_SLOW]))
        fast = min(1.0, *(LATEST * share for share in typical[_SLOW:]))
        return float(min(slow * min(1.0, 2 * slow), fast * fast))

    def _renew(self) -> None:
        """Begin new blocks whenever the number of updates has doubled; they show a late change."""
        if self.judged >= 2 * self.renewal * len(self.edges):
            self.renewal *= 2
            for edge, sums in self.edges.items():
                sums.renew()
                self._measure(edge)

    # -- persistence -------------------------------------------------------------------------------

    def state(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """Return (tensors, JSON values) from which `restore` continues to the same bits."""
        tensors: dict[str, Tensor] = {}
        values: dict[str, Any] = {}
        for edge, sums in self.edges.items():
            walks = dict(zip(_NAMES, sums.walks, strict=False))
            tensors |= {f"watch/{name}/{edge}": walk.total for name, walk in walks.items()}
            values[edge] = {key: getattr(sums, key) for key in _SUMS} | {
                name: {key: getattr(walk, key) for key in _WALK} for name, walk in walks.items()
            }
        totals = {"seen": self.judged, "renewal": self.renewal, "edges": values}
        return tensors, totals | {"apart": sorted(self.apart), "opposed": sorted(self.opposed)}

    def restore(self, tensors: dict[str, Tensor], values: dict[str, Any]) -> None:
        """Continue from what `state` returned."""
        self.judged = values["seen"]
        self.renewal = values["renewal"]
        self.edges = {}
        self.names = []
        for edge, stored in values["edges"].items():
            sums = self._sums(edge)
            for key in _SUMS:
                setattr(sums, key, stored[key])
            for name, walk in zip(_NAMES, sums.walks, strict=False):
                if name in stored:  # a snapshot of 0.2 has no latest updates
                    walk.total = tensors[f"watch/{name}/{edge}"]
                    for key in _WALK:
                        setattr(walk, key, stored[name][key])
            self._measure(edge)
        self.apart = frozenset(values.get("apart", ()))
        self.opposed = frozenset(values.get("opposed", ()))
