"""What a hostile edge sends instead of an honest update: for `bench.poison`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from tacit.algorithms.base.server import ServerRole
from tacit.protocol.messages import Update

Lie = Callable[["World", Update, Tensor], Tensor]  # (world, honest update, how far it led) → led


@dataclass
class World:
    """What a hostile edge knows: everything but the others' randomness."""

    server: ServerRole
    direction: Tensor  # (d,), of length 1: towards "everything is a 0"
    random: torch.Generator

    def pull(self, update: Update) -> float:
        """The longest mean of an honest update, as rows and clip allow."""
        law = self.server.law(update)
        return law.pull * law.rows

    def noise(self, update: Update, led: Tensor) -> Tensor:
        """The noise that an honest update has."""
        drawn = torch.randn(led.shape, generator=self.random)
        return drawn * self.server.law(update).deviation


def turned(world: World, update: Update, led: Tensor) -> Tensor:
    """The sign of everything."""
    return -led


def tenfold(world: World, update: Update, led: Tensor) -> Tensor:
    """Ten times as far."""
    return 10 * led


def turned_tenfold(world: World, update: Update, led: Tensor) -> Tensor:
    """Ten times as far the other way."""
    return -10 * led


def huge(world: World, update: Update, led: Tensor) -> Tensor:
    """The largest number that the aggregator reads, everywhere."""
    return torch.full_like(led, 9.9e5)


def nan(world: World, update: Update, led: Tensor) -> Tensor:
    """No number."""
    return torch.full_like(led, float("nan"))


def constant(world: World, update: Update, led: Tensor) -> Tensor:
    """One direction, always as far as an honest update."""
    return world.direction * float(torch.linalg.vector_norm(led))


def within(world: World, update: Update, led: Tensor) -> Tensor:
    """One direction as far as the law lets a mean go, and the noise that it asks for."""
    return world.direction * world.pull(update) + world.noise(update, led)


def quiet(world: World, update: Update, led: Tensor) -> Tensor:
    """The same a tenth as far: about as long as an honest mean."""
    return world.direction * world.pull(update) / 10 + world.noise(update, led)


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
