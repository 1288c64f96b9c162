"""What a loop is given: a role, whatever its algorithm, and its settings."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

from tacit.privacy.ledger import Ledger
from tacit.privacy.ledger_chain import Charge
from tacit.protocol.messages import Outgoing


@dataclass(frozen=True, slots=True)
class LoopSettings:
    """What the loop needs besides its role: run, model schema, largest payload, patience in
    seconds, slowdown, and the run definition that Hello says (canonical JSON).
    """

    run_id: str
    schema: bytes
    size: int
    chunk: int
    patience: float
    slowdown: float = 1.0  # so many times as long as computing takes
    definition: str = ""


class Payer(Protocol):
    """What pays for all that a worker says."""

    @property
    def ledger(self) -> Ledger:
        """The data's."""

    @property
    def plan(self) -> Any:
        """Public numbers; `noise_at` among them."""


class Worker(Protocol):
    """What is needed of a role: an edge's, a vertical party's."""

    edge: str
    halted: str
    refusals: int
    refusal: str

    @property
    def releaser(self) -> Payer:
        """Its only way out."""

    def start(self) -> list[Outgoing]:
        """What it says of itself."""

    def on_message(self, message: Any) -> list[Outgoing]:
        """What it makes of the server's word."""

    def task_steps(self, version: int) -> int:
        """Steps that a task on model `version` takes."""

    def next_charge(self) -> Charge | None:
        """What is to be charged with a push, for the task that follows it."""

    def retire(self, reason: str) -> list[Outgoing]:
        """Its last word."""
