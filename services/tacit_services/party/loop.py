"""The party side of a vertical run:

an edge's loop whose role has a state of its own, θ_m and where it stands.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from tacit.algorithms.vafl.party import Party
from tacit_services.journal import snapshot_file as state_file
from tacit_services.transport.mqtt import Connection
from tacit_services.worker.cpu_turns import Turns
from tacit_services.worker.loop import EdgeLoop, LoopSettings
from tacit_services.worker.outbox import Outbox


class PartyLoop(EdgeLoop):
    """θ_m is made durable in one transaction with every message:

    what was answered is never applied twice, or lost.
    """

    def __init__(
        self,
        role: Party,
        outbox: Outbox,
        terms: LoopSettings,
        turns: Turns | None = None,
        *,
        serves: bool = False,
    ) -> None:
        """`serves`: whether requests are answered after the run's end as well, for inference."""
        super().__init__(role, outbox, terms, turns)
        self._party, self._serves = role, serves
        if (kept := outbox.state()) is not None:
            role.restore(*state_file.loads(kept))

    def run(
        self, connection: Connection, stop: threading.Event, present: Callable[[str], None]
    ) -> str:
        """As every edge's; with `serves` then on, until `stop` or until the budget is spent."""
        why = super().run(connection, stop, present)
        if not self._serves or not self.role.halted:
            return why
        self._model = None  # of the training, if anything
        while not stop.is_set() and not (self.retired and self.outbox.oldest() is None):
            self._take()
            if self.outbox.oldest() is not None:
                self._send_when_due()
            elif self._model is not None:
                self._step()
        return "stopped"

    def _state(self) -> bytes | None:
        return state_file.dumps(*self._party.state())
