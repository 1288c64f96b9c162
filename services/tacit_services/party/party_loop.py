"""The loop of a vertical party: an edge's tasks, with a role whose state is θ_m and its position.

θ_m is made durable in one transaction with every message: what was answered is never applied twice,
or lost.
"""

from __future__ import annotations

from tacit.algorithms.vafl.party import Party
from tacit_services.journal import snapshot_file
from tacit_services.worker.contract import LoopSettings
from tacit_services.worker.cpu_turns import CpuTurns
from tacit_services.worker.loop import WorkerLoop
from tacit_services.worker.outbox import Outbox
from tacit_services.worker.release_delay import ReleaseDelay
from tacit_services.worker.tasks import task_loop


def party_loop(
    role: Party,
    outbox: Outbox,
    settings: LoopSettings,
    turns: CpuTurns,
    delay: ReleaseDelay | None = None,
    *,
    serves: bool = False,
) -> WorkerLoop:
    """Return the loop of `role`, which goes on from where its last message left it.

    Raises PrivacyError.

    `delay`: what answers are held back for. `serves`: whether requests are answered after the run's
    end as well, for inference.
    """
    restore(role, outbox)
    return task_loop(
        role, outbox, settings, turns, lambda: state_to_keep(role), delay, serves=serves
    )


def restore(role: Party, outbox: Outbox) -> None:
    """Go on from what was kept with the last message, if there was one. Raises PrivacyError."""
    if (state := outbox.state()) is not None:
        role.restore(*snapshot_file.loads(state))


def state_to_keep(role: Party) -> bytes:
    """Return the role's state, as it is kept with a message."""
    return snapshot_file.dumps(*role.state())
