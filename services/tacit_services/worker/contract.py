"""What the worker loop is given: a role of any algorithm, a connection, and settings."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from tacit.privacy.ledger import Ledger
from tacit.privacy.ledger.chain import Charge
from tacit.protocol.messages import Outgoing


@dataclass(frozen=True, slots=True)
class LoopSettings:
    """The settings of the loop, beside its role.

    run_id: the run. schema: SHA-256 of the model's schema. size: numbers in the largest tensor that
    it is sent. chunk: bytes of the largest payload. patience: seconds to wait for an answer.
    definition: the run definition that Hello states (canonical JSON).
    """

    run_id: str
    schema: bytes
    size: int
    chunk: int
    patience: float
    definition: str
    slowdown: float = 1.0  # a step takes this many times its own time, for experiments


class BrokerConnection(Protocol):
    """The part of a connection to a broker that a worker uses.

    A message that is published may be lost, doubled or overtaken: receipts tell that it came.
    """

    @property
    def up(self) -> bool:
        """Whether there is a connection now."""

    @property
    def listening(self) -> frozenset[str]:
        """The topics that are subscribed to, after every reconnection too."""

    def publish(self, topic: str, payload: bytes, *, retain: bool = False) -> None:
        """Send one message, or queue it while disconnected."""

    def listen(self, subscriptions: Sequence[str]) -> None:
        """Replace the subscriptions by these. Raises BrokerRefuses, as `check` does."""

    def check(self) -> None:
        """Raise BrokerRefuses where the broker drops the connection at one of our messages."""


class Payer(Protocol):
    """The ledger and plan behind all that a worker releases."""

    @property
    def ledger(self) -> Ledger:
        """The ledger of the worker's data."""

    @property
    def plan(self) -> Any:
        """The privacy plan: public numbers, `noise_at` among them."""


class Worker(Protocol):
    """The part of a role that the loop uses: an edge's, a peer's or a party's.

    halt_reason: why the run has ended, "" before. refusals: models refused. refusal: why the latest
    was.
    """

    edge: str
    halt_reason: str
    refusals: int
    refusal: str

    @property
    def halted(self) -> bool:
        """Whether the run is over."""

    @property
    def releaser(self) -> Payer:
        """The only source of what the role sends of its private data."""

    def start(self) -> list[Outgoing]:
        """Return the role's Hello."""

    def on_message(self, message: Any) -> list[Outgoing]:
        """Handle a message of the server, and return the messages to send."""

    def held_steps(self, message: Any) -> int:
        """Return how many delays of one step the answer to `message` is held back for."""

    @property
    def push_size(self) -> int:
        """Numbers in an ordinary message with private numbers."""

    def rehearsals(self) -> list[Callable[[], None]]:
        """Return functions that each do a step's work on public rows, to measure a delay with."""

    def next_charge(self) -> Charge | None:
        """Return what to charge with a push, ahead, for the task that follows it."""

    def retire(self, reason: str) -> list[Outgoing]:
        """Return the last messages of a worker whose budget is spent."""
