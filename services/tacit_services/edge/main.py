"""`tacit edge`: take an identity, load its rows, and work until Halt."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext

from tacit.algorithms.base.edge import EdgeRole
from tacit.config import RunFile
from tacit_services.settings import EdgeSettings
from tacit_services.worker import release_delay, row_owner
from tacit_services.worker.contract import LoopSettings
from tacit_services.worker.loop import WorkerLoop
from tacit_services.worker.resources import WorkerResources
from tacit_services.worker.tasks import task_loop


def main(settings: EdgeSettings, run: RunFile | None = None) -> None:
    """Run one edge to its end. Raises TacitError.

    run: of a federation, with the member's own rows; None: the run file that `settings` name.
    """
    row_owner.work(settings, "edge", edge_loop, run)


def edge_loop(
    role: EdgeRole, resources: WorkerResources, settings: LoopSettings
) -> AbstractContextManager[WorkerLoop]:
    """Return the loop of an edge that has a server."""
    turns = resources.turns
    folder = resources.identity.path
    delay = release_delay.of_edge(role, turns, folder, settings.run_id)
    looks = release_delay.of_looks(role, turns, folder, settings.run_id)
    loop = task_loop(role, resources.outbox, settings, turns, delay=delay, look_delay=looks)
    return nullcontext(loop)
