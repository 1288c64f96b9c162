"""What a hostile edge sends instead of an honest update: for `tacit_lab.studies.poison`."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from statistics import median

import torch
from torch import Tensor

from tacit.algorithms.base.server import ServerRole
from tacit.protocol.messages import Update

MEMORY = 0.9  # of an edge's mean, as a liar estimates it
Lie = Callable[["LiarsView", Update, Tensor], Tensor]  # (view, honest update, how far it led) → led


@dataclass
class LiarsView:
    """The knowledge of a hostile edge: everything but the others' randomness."""

    server: ServerRole
    direction: Tensor  # (d,), of length 1: towards "everything is a 0"
    random: torch.Generator
    target: str = "edge-4"  # whom `framing` wants to be taken for a liar
    sent: int = 0  # updates that the liar has sent
    sums: dict[str, Tensor] = field(default_factory=dict)  # by edge: Σ MEMORY^k·(update k ago)
    counts: dict[str, tuple[float, float]] = field(default_factory=dict)  # Σ MEMORY^k, squared

    def note(self, edge: str, led: Tensor) -> None:
        """See an honest update, the liar's own before it lies among them."""
        once, squares = self.counts.get(edge, (0.0, 0.0))
        self.sums[edge] = led + MEMORY * self.sums.get(edge, torch.zeros_like(led))
        self.counts[edge] = (1 + MEMORY * once, 1 + MEMORY * MEMORY * squares)

    def mean(self, edge: str) -> Tensor:
        """Return what this edge's honest updates have in common lately."""
        return self.sums[edge] / self.counts[edge][0]

    def others(self, liar: str) -> list[str]:
        """Return all other edges of which updates were seen."""
        return [edge for edge in sorted(self.sums) if edge != liar]

    def usual(self, update: Update) -> float:
        """Return the length of the median of the others' means, without noise."""
        variance = self.server.law(update).deviation ** 2
        lengths = []
        for edge in self.others(update.edge):
            once, squares = self.counts[edge]
            mean = self.mean(edge)
            noise = variance * len(mean) * squares / once**2
            lengths.append(math.sqrt(max(0.0, float(mean @ mean) - noise)))
        if lengths:
            return median(lengths)
        return 0.0

    def left(self) -> int:
        """Return how many updates the liar has still to send, if all send as many."""
        versions = self.server.horizon - self.server.version
        return versions * self.server.uploads // max(1, len(self.server.edges))

    def pull(self, update: Update) -> float:
        """Return the longest mean of an honest update, as rows and clip allow."""
        law = self.server.law(update)
        return law.pull * law.rows

    def noise(self, update: Update, led: Tensor) -> Tensor:
        """Return the noise that an honest update has."""
        drawn = torch.randn(led.shape, generator=self.random)
        return drawn * self.server.law(update).deviation


def turned(view: LiarsView, update: Update, led: Tensor) -> Tensor:
    """Turn the sign of everything."""
    return -led


def tenfold(view: LiarsView, update: Update, led: Tensor) -> Tensor:
    """Send ten times as much."""
    return 10 * led


def turned_tenfold(view: LiarsView, update: Update, led: Tensor) -> Tensor:
    """Send ten times as much with the sign turned."""
    return -10 * led


def huge(view: LiarsView, update: Update, led: Tensor) -> Tensor:
    """Send the largest number that the aggregator reads, everywhere."""
    return torch.full_like(led, 9.9e5)


def nan(view: LiarsView, update: Update, led: Tensor) -> Tensor:
    """Send NaN everywhere."""
    return torch.full_like(led, float("nan"))


def constant(view: LiarsView, update: Update, led: Tensor) -> Tensor:
    """Send one direction, always as far as an honest update."""
    return view.direction * float(torch.linalg.vector_norm(led))


def within(view: LiarsView, update: Update, led: Tensor) -> Tensor:
    """Send one direction as far as the law lets a mean go, and the noise that it asks for."""
    return view.direction * view.pull(update) + view.noise(update, led)


def quiet(view: LiarsView, update: Update, led: Tensor) -> Tensor:
    """Send `within` a tenth as far: about as long as an honest mean."""
    return view.direction * view.pull(update) / 10 + view.noise(update, led)


def _along(view: LiarsView, update: Update, direction: Tensor, length: float) -> Tensor:
    """Return a mean of this direction and length, with the noise that the law asks for."""
    size = float(torch.linalg.vector_norm(direction))
    scaled = direction * (length / size) if size else direction
    return scaled + view.noise(update, direction)


def turned_quietly(view: LiarsView, update: Update, led: Tensor) -> Tensor:
    """Send its own mean with the sign turned, as long as the others' means are."""
    return _along(view, update, -view.mean(update.edge), view.usual(update))


def inner_product(view: LiarsView, update: Update, led: Tensor) -> Tensor:
    """Push against the mean of all others, as long as their means are."""
    others = view.others(update.edge)
    if not others:
        return led
    average = torch.stack([view.mean(edge) for edge in others]).mean(0)
    return _along(view, update, -average, view.usual(update))


def alie(view: LiarsView, update: Update, led: Tensor) -> Tensor:
    """Send the others' mean less one and a half of their spread, in every coordinate."""
    others = view.others(update.edge)
    if len(others) < 2:
        return led
    means = torch.stack([view.mean(edge) for edge in others])
    return means.mean(0) - 1.5 * means.std(0) + view.noise(update, led)


def framing(view: LiarsView, update: Update, led: Tensor) -> Tensor:
    """Join all others against one of them, twice as long as their means are."""
    friends = [edge for edge in view.others(update.edge) if edge != view.target]
    if not friends or view.target not in view.sums:
        return led
    average = torch.stack([view.mean(edge) for edge in friends]).mean(0)
    against = view.mean(view.target)
    parts = [part / torch.linalg.vector_norm(part) for part in (average, against)]
    return _along(view, update, parts[0] - parts[1], 2 * view.usual(update))


def sprint(view: LiarsView, update: Update, led: Tensor) -> Tensor:
    """Stay honest for five sixths of the run, then push as far as the law allows."""
    late = 6 * view.server.version > 5 * view.server.horizon
    if late:
        return within(view, update, led)
    return led


def wave(length: int, part: float, *, timed: bool = True) -> Lie:
    """Send one direction for `length` updates, then back, with `part` of what the law allows.

    timed: it ends on a crest, by a liar who knows when the run ends; else it begins with one.
    """

    def lie(view: LiarsView, update: Update, led: Tensor) -> Tensor:
        number = view.left() if timed else view.sent - 1
        sign = 1 if number // length % 2 == 0 else -1
        return view.direction * (sign * part * view.pull(update)) + view.noise(update, led)

    return lie


WAVES: dict[str, Lie | None] = {
    f"wave of {length}, {part:g}{'' if timed else ', untimed'}": wave(length, part, timed=timed)
    for length, part, timed in (
        (1, 1.0, True),
        (4, 1.0, True),
        (6, 1.0, True),
        (12, 1.0, True),
        (12, 0.6, True),
        (25, 0.6, True),
        (40, 0.4, True),
        (12, 0.2, True),
        (6, 1.0, False),
        (12, 1.0, False),
        (25, 0.6, False),
    )
}
UNEQUALLY: dict[str, Lie | None] = {
    "sign flip": turned,
    "sign flip, quiet": turned_quietly,
    "wrong labels": None,
    "pull within the law": within,
    "a tenth of it": quiet,
    "inner product": inner_product,
    "ALIE": alie,
    "framing": framing,
    "late sprint": sprint,
}
LIES: dict[str, Lie | None] = {
    "sign flip": turned,
    "x10": tenfold,
    "flip x10": turned_tenfold,
    "all 9.9e5": huge,
    "NaN": nan,
    "constant": constant,
    "constant, fast": constant,
    "wrong labels": None,
    "pull within the law": within,
    "a tenth of it": quiet,
}
EVERY = LIES | UNEQUALLY | WAVES
