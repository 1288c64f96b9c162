"""The edge role that algorithms share: it talks, and is given a private sum over its rows.

Idea. A role turns a message into messages, without I/O or a clock. It holds no row itself: its
`PrivateSum` draws and clips (`privacy/private_sum`), and its `Releaser` charges and adds the noise
(`privacy/release`).

What a reader finds. `start` is Hello, the public privacy configuration. `on_message` refuses a
model that the plan does not allow, and otherwise does the algorithm's `work`. `retire` is the last
message of an edge whose budget is spent.

Guarantee. Only a `Released` leaves, for every message of a server. A refused model costs no budget,
and a spent budget ends in `Retired` before anything is computed.

>>> import torch
>>> from tacit import config, datasets
>>> from tacit.algorithms import registry
>>> from tacit.privacy.ledger import Ledger
>>> from tacit.privacy.noise.randomness import Random
>>> text = '''
... run.updates = 5
... data.dataset = "digits"
... model.name = "logistic"
... algorithm.name = "mapa"
... '''
>>> run = config.parse(text, "example").define()
>>> model = run.build_model()
>>> rows = datasets.load("digits", "train", None).take(torch.arange(250))
>>> releaser = Releaser(run.plans.plan(0, len(rows)), Ledger(":memory:", "digits"), Random())
>>> role = registry.edge(run, "edge-0", rows, model, releaser)
>>> (push,) = role.on_message(GlobalModel(0, model.init(1), 1.0, run.terms))
>>> push.to, push.message.base_version, releaser.ledger.charged().count
('server', 0, 1)
>>> role.on_message(GlobalModel(1, model.init(1), 1e9, run.terms))
[]
>>> role.refusals, releaser.ledger.charged().count
(1, 1)
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import partial

from tacit.algorithms.base.edge_judge import EdgeJudge
from tacit.errors import BudgetSpent
from tacit.models import Model
from tacit.privacy.ledger.chain import Charge
from tacit.privacy.model_refusal import refusal
from tacit.privacy.private_sum.way import PrivateSum
from tacit.privacy.release import Releaser
from tacit.protocol.messages import (
    SERVER,
    GlobalModel,
    Halt,
    Hello,
    Outgoing,
    Push,
    Retired,
    ServerOutput,
)


class EdgeRole(ABC):
    """An edge: all that it sends has passed its `Releaser`; `work` is the algorithm's.

    A gradient's way: `on_message` → `work` → `Releaser.release` → `PrivateSum.compute`.
    """

    def __init__(
        self, edge: str, model: Model, releaser: Releaser, private_sum: PrivateSum
    ) -> None:
        """private_sum: over the edge's rows, with the plan and the randomness of `releaser`."""
        self.edge = edge
        self.model = model
        self.releaser = releaser
        self.private_sum = private_sum
        self.halt_reason = ""
        # models refused, and why the latest one was
        self.refusals = 0
        self.refusal = ""
        self.judge: EdgeJudge | None = None  # of a run that judges on rows held out here
        self.looked = 0  # the last look that this process is done with
        # q that the server takes this edge to have, where it is a member that states its own rows
        self.run_rate: float | None = None

    @property
    def halted(self) -> bool:
        """Whether the run is over."""
        return bool(self.halt_reason)

    @abstractmethod
    def work(self, message: GlobalModel) -> list[Outgoing]:
        """Do one task on the model in `message`. Raises BudgetSpent before anything is computed."""

    def task_steps(self, version: int) -> int:
        """Return how many local steps, each a release, a task on model `version` takes."""
        return 1

    def held_steps(self, message: ServerOutput) -> int:
        """Return how many delays of one step the answer to `message` is held back for."""
        if isinstance(message, GlobalModel) and not message.look:
            return self.task_steps(message.version)
        return 1

    @property
    def push_size(self) -> int:
        """Numbers in a push."""
        return self.model.size

    @property
    def most_steps(self) -> int:
        """Releases that its largest task takes."""
        return 1

    def next_charge(self) -> Charge | None:
        """Return the charge that pays ahead for the next task of any kind."""
        return self.releaser.next_charge(self.most_steps)

    def start(self) -> list[Outgoing]:
        """Return Hello, the public privacy configuration; sent again to ask for a model."""
        plan = self.releaser.plan
        ledger = self.releaser.ledger
        hello = Hello(
            self.edge,
            plan.epsilon,
            plan.delta,
            plan.declared,
            plan.noise_variance(self.model.size),
            plan.clip_min,
            plan.clip_max,
            ledger.history(),
            ledger.charged(),
            self.refusals,
            self.refusal,
            self.looked,
        )
        return [Outgoing(SERVER, hello)]

    def refuses(self, message: GlobalModel) -> str | None:
        """Return why this edge refuses the model, in one line; None: it accepts it.

        See privacy.policy.refusal.
        """
        plan = self.releaser.plan
        return refusal(plan, message.params, message.clip, message.terms, self.run_rate)

    def on_message(self, message: ServerOutput) -> list[Outgoing]:
        """Do the task that a model brings, or end at Halt; return the messages to send.

        A model that the edge's plan does not allow is only counted: nothing is charged or released.
        So is what a server sends to parties of a vertical run.
        """
        if isinstance(message, Halt):
            self.halt_reason = message.reason or "halted"
            return []
        if self.halted:  # a model that was under way
            return []
        if not isinstance(message, GlobalModel):
            return self._refuse(f"{type(message).__name__}: this edge works on models only")
        if why := self.refuses(message):
            return self._refuse(why)
        if message.look:
            return self._look(message)
        try:
            return self.work(message)
        except BudgetSpent as spent:
            return self.retire(str(spent))

    def _look(self, message: GlobalModel) -> list[Outgoing]:
        """Judge the model, once for each look; Hello says of a look that is not paid for."""
        if self.judge is None:
            return self._refuse(f"look={message.look}: this edge holds no rows out")
        if message.look <= self.looked:
            return self.start()
        try:
            released = self.judge.answer(message.params)
        except BudgetSpent:
            self.looked = message.look
            return self.start()
        self.looked = message.look
        return [Outgoing(SERVER, Push(self.edge, message.version, released, message.look))]

    def _refuse(self, why: str) -> list[Outgoing]:
        self.refusals += 1
        self.refusal = why
        return []

    def retire(self, reason: str) -> list[Outgoing]:
        """Return the last message of an edge whose budget is spent."""
        ledger = self.releaser.ledger
        return [Outgoing(SERVER, Retired(self.edge, reason, ledger.history(), ledger.charged()))]

    def rehearsals(self) -> list[Callable[[], None]]:
        """Return functions that each do one step's work on public rows and drop the result."""
        clip = self.releaser.plan.clip_max
        works = self.private_sum.rehearsals()
        return [partial(self.releaser.rehearse, clip, work) for work in works]
