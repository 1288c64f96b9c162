"""VAFL, the clients' side of Algorithms 1 and 2.

Paper: arXiv:2007.06081. The server's side, the notation and what differs are in label_server.py.
"""

from __future__ import annotations

import copy
import hashlib
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.func import grad, vmap

from tacit.algorithms.vafl.step_rules import Protocol, batch_rows
from tacit.datasets.alignment import NameHashes, align
from tacit.errors import BudgetSpent, DataError
from tacit.models.vectors import learnable
from tacit.models.zoo.embedding_networks import Embedding
from tacit.privacy.ledger import Ledger
from tacit.privacy.ledger.chain import Charge
from tacit.privacy.noise.randomness import Random
from tacit.privacy.release.embeddings import FROZEN, EmbeddingReleaser, clip_rows
from tacit.protocol.messages import (
    SERVER,
    GlobalModel,
    Halt,
    Hello,
    Outgoing,
    Retired,
    ServerOutput,
)
from tacit.protocol.vertical import Embed, Feedback, Request, Roster, UploadPart


class Party:
    """A client of Algorithms 1 and 2, with private features.

    All that it says has passed its EmbeddingReleaser.
    """

    def __init__(
        self,
        edge: str,
        number: int,
        protocol: Protocol,
        x: Tensor,
        names: NameHashes,
        embedding: Embedding,
        releaser: EmbeddingReleaser,
        regularization: float = 0.0,
        device: str = "cpu",
        private: int | None = None,
    ) -> None:
        """x: (n', *shape) of the records called `names`, in this party's own order.

        private: how many records are private, the first ones. The others are public people, who are
        tested on, and whose embeddings no noise hides. None: noise hides everybody's.

        regularization: λ of r(θ_m). device: where embeddings and their gradients are computed;
        what is released, and θ_m, are on the CPU.
        """
        self.edge = edge
        self.number = number
        self.protocol = protocol
        self.embedding = embedding
        self.releaser = releaser
        self.regularization = regularization
        self.device = device
        self.private = private
        self._x = x
        self._names = names
        # a party follows its own plan whatever the server says
        self.refusals = 0
        self.refusal = ""
        self.place: Tensor | None = None  # the place of each roster row among this party's own rows
        self.records = 0
        self.theta = embedding.init(protocol.seed + number)  # line 1
        # the latest activation, and the latest request answered
        self.step = -1
        self.request = 0
        self.iteration = 0  # k of the latest answer, from which θ_m comes
        self.halt_reason = ""

    @property
    def halted(self) -> bool:
        """Whether the run is over."""
        return bool(self.halt_reason)

    def start(self) -> list[Outgoing]:
        """Send Hello with the privacy plan. Sent again whenever the party has nothing to do."""
        plan = self.releaser.plan
        ledger = self.releaser.ledger
        hello = Hello(
            self.edge,
            plan.epsilon,
            plan.delta,
            plan.declared,
            plan.noise_variance(self.embedding.classes),
            plan.bound,
            plan.bound,
            ledger.history(),
            ledger.charged(),
        )
        return [Outgoing(SERVER, hello)]

    def on_message(self, message: ServerOutput) -> list[Outgoing]:
        """Do lines 3 to 7; after the end, answer requests only, for inference.

        Raises DataError when the roster names a record that this party does not have.
        """
        if isinstance(message, Halt):
            self.halt_reason = message.reason or "halted"
        if self.halted and not isinstance(message, Request):
            return []
        if not self._sensible(message):
            self.refusals += 1
            self.refusal = f"the server's {type(message).__name__} fits no record"
            return []
        try:
            match message:
                case Roster():
                    return self._table(message)
                case Feedback():
                    return self._activate(message)
                case Request(number=number, rows=rows) if number > self.request and self.step >= 0:
                    self.request = number
                    return self._upload(rows, number)
        except BudgetSpent as spent:
            return self.retire(str(spent))
        return []

    def task_steps(self, version: int) -> int:
        """Return 1: an answer is one activation."""
        return 1

    def held_steps(self, message: ServerOutput) -> int:
        """Return the activations that have as many rows as the answer: it is held back for each."""
        match message:
            case Roster():
                rows = len(message.names)
            case Request():
                rows = len(message.rows)
            case _:
                rows = 1
        return max(1, math.ceil(rows / self.protocol.batch))

    @property
    def push_size(self) -> int:
        """Numbers in an activation."""
        return self.protocol.batch * self.embedding.classes

    def rehearsals(self) -> list[Callable[[], None]]:
        """Return a function that does one activation's work on public rows and drops the result.

        Nothing private is touched, and nothing is charged but a ledger of nobody's data.
        """
        count = self.protocol.batch
        x = torch.rand(count, *self._x.shape[1:], generator=torch.Generator().manual_seed(1))

        def activation() -> None:
            party = copy.copy(self)
            ledger = Ledger(":memory:", "rehearsal")
            party.releaser = EmbeddingReleaser(self.releaser.plan, ledger, Random(), count)
            party._x = x
            party.place = torch.arange(count)
            party.records = count
            party.step = 1
            rows = party._batch(1)
            if party.releaser.plan.mode not in FROZEN:
                party._learn(1, torch.zeros(len(rows), self.embedding.classes))
            party.releaser.release(rows, lambda: party._embed(party.theta, rows))

        return [activation]

    def next_charge(self) -> Charge | None:
        """Return None: an answer's cost depends on the records that are asked for."""
        return None

    def retire(self, reason: str) -> list[Outgoing]:
        """Return the last message of a party whose budget is spent."""
        ledger = self.releaser.ledger
        return [Outgoing(SERVER, Retired(self.edge, reason, ledger.history(), ledger.charged()))]

    def state(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """Return (tensors, JSON values) from which `restore` goes on.

        The driver makes it durable with the party's message.
        """
        tensors = {"theta": self.theta} | ({} if self.place is None else {"place": self.place})
        return tensors, {
            "step": self.step,
            "request": self.request,
            "iteration": self.iteration,
            "records": self.records,
        }

    def restore(self, tensors: dict[str, Tensor], values: dict[str, Any]) -> None:
        """Continue from what `state` returned."""
        self.theta = tensors["theta"]
        self.place = tensors.get("place")
        self.step = values["step"]
        self.request = values["request"]
        self.iteration = values["iteration"]
        self.records = values["records"]

    def _sensible(self, message: ServerOutput) -> bool:
        """Check whether the server's message can be followed, before anything is charged.

        Rows must exist, and a gradient must have the shape of what it answers. A model is for edges
        of other runs.
        """
        if isinstance(message, GlobalModel):
            return False
        if isinstance(message, Request) and self.place is not None:
            rows = message.rows
            return len(rows) > 0 and int(rows.min()) >= 0 and int(rows.max()) < len(self.place)
        if (
            isinstance(message, Feedback)
            and message.step == self.step
            and message.gradient is not None
        ):
            shape = (len(self._batch(self.step)), self.embedding.classes)
            return self.step > 0 and message.gradient.shape == shape and learnable(message.gradient)
        return True

    # -- Algorithm 1, client side ------------------------------------------------------------------

    def _table(self, roster: Roster) -> list[Outgoing]:
        """Align, and upload h_{n,m}(θ_m^0) of every record (step 0, the note below Algorithm 1)."""
        if self.step >= 0:
            return []
        self.place = torch.from_numpy(self._aligned(roster))
        self.records = roster.records
        self.releaser.hold(len(self.place))
        self.step = 0
        frozen_once = self.releaser.plan.mode == "cached"
        return self._upload(torch.arange(len(self.place) if frozen_once else self.records), 0)

    def _aligned(self, roster: Roster) -> NDArray[np.int64]:
        """Return the place of each roster row. Raises DataError.

        What is public is this party's word: the server cannot name a private record as public.
        """
        place = align(roster.names, self._names, self.edge)
        if self.private is not None and not np.array_equal(
            place < self.private, np.arange(len(place)) < roster.records
        ):
            raise DataError(
                f"{self.edge}: the run's roster takes private records for public ones, or the "
                "other way round"
            )
        return place

    def _activate(self, feedback: Feedback) -> list[Outgoing]:
        if feedback.step != self.step:  # an answer that was dealt with before
            return []
        if feedback.gradient is not None and self.releaser.plan.mode not in FROZEN:
            self._learn(feedback.iteration, feedback.gradient)  # line 7
        self.iteration = feedback.iteration
        self.step += 1
        return self._upload(self._batch(self.step), 0)  # lines 4 and 5

    def _upload(self, rows: Tensor, request: int) -> list[Outgoing]:
        ledger = self.releaser.ledger
        if self.releaser.plan.mode != "cached":
            released = self.releaser.release(rows, lambda: self._embed(self.theta, rows))
        elif self.step == 0 and not request:
            public = 0 if self.private is None else len(rows) - self.records
            released = self.releaser.release_once(
                self._name(), rows, lambda: self._embed(self.theta, rows), public
            )
        else:
            released = None  # the server has them
        embed = Embed(
            self.edge,
            self.iteration,
            UploadPart(self.step, request, rows),
            released,
            ledger.history(),
            ledger.charged(),
        )
        return [Outgoing(SERVER, embed)]

    def _name(self) -> str:
        """Return the table's name in the store: a digest of all that it depends on but noise."""
        assert self.place is not None
        plan = self.releaser.plan
        digest = hashlib.sha256(
            f"{self.number} {self.protocol.seed} {plan!r} {self.embedding!r}".encode()
        )
        for tensor in (self.place, self.theta, self._x):
            digest.update(f"{tuple(tensor.shape)}".encode())
            digest.update(tensor.contiguous().numpy().tobytes())
        if self.private is not None:
            digest.update(f"the first {self.records} are private".encode())
        return digest.hexdigest()

    def _learn(self, k: int, gradient: Tensor) -> None:
        """Step θ_m ← θ_m - η(∇_θ h·∇_h ℓ + λθ_m) (4a).

        gradient: (b, width) of the batch's mean loss.
        """
        rows = self._batch(self.step)
        if self.releaser.plan.mode == "dp_sgd":
            total = self.releaser.step(rows, lambda: self._each(rows, len(rows) * gradient)) / len(
                rows
            )
        else:
            total = self.releaser.step(rows, lambda: self._jointly(rows, gradient))
        self.theta = self.theta - self.protocol.steps.party(k) * (
            total + self.regularization * self.theta
        )

    def _batch(self, step: int) -> Tensor:
        return batch_rows(self.protocol, self.number, step, self.records)

    def _features(self, rows: Tensor) -> Tensor:
        assert self.place is not None  # there is no step before the roster
        return self._x[self.place[rows]].to(self.device)

    def _embed(self, theta: Tensor, rows: Tensor) -> Tensor:
        """Return u_L (b, width) with the smoothing neurons of (10), not yet clipped.

        The same again for the same step.
        """
        smooth = torch.Generator().manual_seed(self.protocol.seed + 1000 * self.step + self.number)
        theta = theta.to(self.device)
        parts = [
            self.embedding.embed(theta, self._features(part), smooth).cpu()
            for part in torch.split(rows, 4096)
        ]
        return torch.cat(parts)

    def _jointly(self, rows: Tensor, gradient: Tensor) -> Tensor:
        """Return Σ_n ∇_θ h_n·∇_{h_n} ℓ (1, d_m), through the clipping."""
        with torch.enable_grad():
            theta = self.theta.clone().requires_grad_()
            (total,) = torch.autograd.grad(self._clipped(self._embed(theta, rows)), theta, gradient)
        return total[None]

    def _each(self, rows: Tensor, gradient: Tensor) -> Tensor:
        """Return every record's own ∇_θ h_n·∇_{h_n} ℓ_n (b, d_m)."""

        def alone(theta: Tensor, x: Tensor, g: Tensor) -> Tensor:
            return (self._clipped(self.embedding.embed(theta, x[None]))[0] * g).sum()

        gradients: Tensor = vmap(grad(alone), in_dims=(None, 0, 0))(
            self.theta.to(self.device), self._features(rows), gradient.to(self.device)
        )
        return gradients.cpu()

    def _clipped(self, embeddings: Tensor) -> Tensor:
        plan = self.releaser.plan
        if plan.private:
            return clip_rows(embeddings, plan.bound)
        return embeddings
