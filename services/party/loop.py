"""The party side of a vertical run: an edge's loop whose role has a state of its own, θ_m and where it stands."""

from __future__ import annotations

from services.edge.loop import EdgeLoop, Terms
from services.edge.turns import Turns
from services.runtime import state as state_file
from services.runtime.outbox import Outbox
from tacit.algorithms.vafl_party import Party


class PartyLoop(EdgeLoop):
    """θ_m is made durable in one transaction with every message: what was answered is never applied twice, or lost."""

    def __init__(self, role: Party, outbox: Outbox, terms: Terms, turns: Turns | None = None) -> None:
        super().__init__(role, outbox, terms, turns)
        self._party = role
        if (kept := outbox.state()) is not None:
            role.restore(*state_file.loads(kept))

    def _state(self) -> bytes | None:
        return state_file.dumps(*self._party.state())
