"""FedBuff's server (Nguyen et al., arXiv:2106.06639): a buffer of distances makes one version."""

from __future__ import annotations

from typing import Any, ClassVar

import torch
from torch import Tensor

from tacit.algorithms.base.algorithm import ServerAlgorithm
from tacit.algorithms.fedasync.fedasync_settings import FedAsync
from tacit.algorithms.fedasync.mixing import MixingServer, staleness_weight
from tacit.config.definition import Definition
from tacit.models import Model
from tacit.protocol.messages import Update
from tacit.robust.rules import combine


class BufferedServer(MixingServer):
    """FedBuff: M deltas make one version.

    Each is taken against its own base and weighted by s; a fresh one weighs 1.
    """

    needs_base = False

    def __init__(self, definition: Definition[FedAsync], model: Model) -> None:
        super().__init__(definition, model)
        self.buffer = torch.zeros_like(self.params)
        self.held = 0
        self.waiting: list[Tensor] = []  # weighted deltas of this version, for a rule

    def base(self, update: Update) -> Tensor:
        """Return 0: an update is a distance."""
        return torch.zeros_like(self.params)

    def mix(self, vector: Tensor, tau: int, room: Tensor | None = None) -> None:
        """Step x ← x + η_g/M·Σ s(t - τ_i)·(x_i - x_{τ_i}) once M have come.

        room: where the sum may be written, `vector`'s own memory or None.
        """
        self.weight = staleness_weight(tau, self.algorithm)
        if self.rule != "mean":
            self.waiting.append(self.weight * vector)
        self.buffer = torch.add(self.buffer, vector, alpha=self.weight, out=room)
        self.held += 1
        if self.held == self.algorithm.buffer:
            total = self.buffer
            if self.rule != "mean":
                total = self.held * combine(self.rule, self.waiting, self.trim)
            self.params = torch.add(
                self.params, total, alpha=self.algorithm.server_rate / self.held
            )
            self.buffer = torch.zeros_like(self.params)
            self.held = 0
            self.waiting = []
            self.version += 1

    def state(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """Return the mixing server's state, with the buffer."""
        tensors, values = super().state()
        buffered = {f"waiting/{number}": vector for number, vector in enumerate(self.waiting)}
        return tensors | buffered | {"buffer": self.buffer}, values | {"held": self.held}

    def restore(self, tensors: dict[str, Tensor], values: dict[str, Any]) -> None:
        """Continue from what `state` returned."""
        super().restore(tensors, values)
        self.buffer = tensors["buffer"]
        self.held = values["held"]
        count = sum(name.startswith("waiting/") for name in tensors)
        self.waiting = [tensors[f"waiting/{number}"] for number in range(count)]


class FedBuffAlgorithm(ServerAlgorithm):
    """FedBuff."""

    settings: ClassVar = FedAsync
    role: ClassVar = BufferedServer
