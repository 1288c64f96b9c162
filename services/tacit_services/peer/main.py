"""`tacit peer`: take an identity, load rows and durable state, and gossip to the run's end."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import closing, contextmanager

from tacit.algorithms.base.edge import EdgeRole
from tacit.algorithms.gossip.adp2sgd import Peer
from tacit.algorithms.gossip.worker import GossipWorker
from tacit.errors import ConfigError
from tacit_services.peer.peer_loop import peer_loop
from tacit_services.peer.peer_state import PeerState
from tacit_services.settings import EdgeSettings
from tacit_services.worker import release_delay, row_owner
from tacit_services.worker.contract import LoopSettings
from tacit_services.worker.loop import WorkerLoop
from tacit_services.worker.resources import WorkerResources


def main(settings: EdgeSettings) -> None:
    """Run one peer to its end. Raises TacitError."""
    row_owner.work(settings, "peer", _loop)


@contextmanager
def _loop(
    role: EdgeRole, resources: WorkerResources, settings: LoopSettings
) -> Iterator[WorkerLoop]:
    assert isinstance(role, GossipWorker)
    with closing(PeerState(resources.identity.path / "peer.db", settings.run_id)) as state:
        restore(role, state)
        turns = resources.turns
        folder = resources.identity.path
        delay = release_delay.of_edge(role, turns, folder, settings.run_id)
        every = role.settings.report_every
        yield peer_loop(role, resources.outbox, settings, state, every, turns, delay)


def restore(role: GossipWorker, state: PeerState) -> None:
    """Continue from `state`, or begin a new life.

    Raises ConfigError when it is of another model.
    """
    saved = state.load()
    if saved is None:
        if isinstance(role, Peer):
            role.life = time.time_ns()
        state.save(*role.state())
        return
    tensors, values = saved
    if tensors["params"].numel() != role.model.size or "counts" not in values:
        raise ConfigError(
            f"peer state of {role.edge}: is of another model; a new run needs a new TACIT_RUN_ID"
        )
    role.restore(tensors, values)
