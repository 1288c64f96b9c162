"""`tacit edge`: take an identity, load its rows, and work until Halt."""

from __future__ import annotations

import hashlib
import logging
import signal
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext

import torch

from tacit import datasets
from tacit.algorithms import registry
from tacit.algorithms.base.edge import EdgeRole
from tacit.config import RunFile
from tacit.config.algorithms import Gossip
from tacit.errors import ConfigError
from tacit.models import Model
from tacit.privacy.denormals import flush_pool
from tacit.privacy.ledger import Ledger
from tacit.privacy.release import Releaser
from tacit.privacy.sampling import Random
from tacit.protocol import topics
from tacit_services.identity.folder import Identity
from tacit_services.settings import EdgeSettings
from tacit_services.transport.mqtt import Connection, Will
from tacit_services.transport.tls import Tls
from tacit_services.worker.loop import UP, EdgeLoop, Terms
from tacit_services.worker.resources import Workplace, workplace
from tacit_services.worker.rows import dealt

log = logging.getLogger("tacit.edge")
Loops = Callable[[RunFile, EdgeRole, Workplace, Terms], AbstractContextManager[EdgeLoop]]


def edge_loop(run: RunFile, role: EdgeRole, place: Workplace, terms: Terms) -> AbstractContextManager[EdgeLoop]:
    """The loop of an edge that has a server. Raises ConfigError where the run has none."""
    if isinstance(run.algorithm, Gossip):
        raise ConfigError(f"algorithm.name={run.algorithm.name}: has no server; its workers are started by tacit peer")
    return nullcontext(EdgeLoop(role, place.outbox, terms, place.turns))


def main(settings: EdgeSettings, loops: Loops = edge_loop) -> None:
    """Run one edge (or, with other `loops`, one peer) to its end. Raises TacitError."""
    stop = stopping()
    torch.set_num_threads(settings.threads)
    flush_pool()
    run = settings.load_run()
    model = run.build_model()
    with workplace(settings, run, stop) as place:
        if place is None:
            return
        role = build_role(settings, run, model, place.identity, place.ledger)
        left = role.releaser.left
        log.info("%s: %s", role.edge, "no guarantee" if left is None else f"{left} pushes left")
        with loops(run, role, place, terms(settings, run, model, model.size, place.identity.number)) as loop:
            serve(settings, loop, stop, place.tls)


def stopping() -> threading.Event:
    """What SIGTERM and SIGINT set."""
    stop = threading.Event()
    for name in (signal.SIGTERM, signal.SIGINT):
        signal.signal(name, lambda *_: stop.set())
    return stop


def build_role(settings: EdgeSettings, run: RunFile, model: Model, identity: Identity, ledger: Ledger) -> EdgeRole:
    """The edge role of this identity with its own rows. Raises ConfigError, DataError, PrivacyError."""
    try:
        device = torch.device(settings.device)
        torch.zeros(1, device=device)
    except RuntimeError as error:
        raise ConfigError(f"TACIT_DEVICE={settings.device!r}: {str(error).splitlines()[0]}") from error
    data, rows = run.data, dealt(run, settings.data)[identity.number]
    plan = run.plan(identity.number, len(rows))
    settings.load_policy().check(plan, run.algorithm.name, run.model.name)
    part = datasets.load(data.dataset, "train", settings.data, rows, data.features, data.text)
    releaser = Releaser(plan, ledger, Random())
    return registry.edge(run, identity.edge, part, model, releaser, settings.device)


def schema_hash(model: Model) -> bytes:
    """What a message must carry to be for this model: SHA-256 of its layer names and shapes."""
    return hashlib.sha256(model.schema().encode()).digest()


def terms(settings: EdgeSettings, run: RunFile, model: Model, largest: int, number: int) -> Terms:
    """What the loop of worker `number` needs; `largest`: elements of the largest tensor that it is sent."""
    slowdown = run.edges.slowdown[number] if number < len(run.edges.slowdown) else 1.0
    return Terms(settings.run_id, schema_hash(model), largest, settings.chunk, settings.patience, slowdown)


def serve(settings: EdgeSettings, loop: EdgeLoop, stop: threading.Event, tls: Tls | None) -> None:
    """Connect, run the loop to its end, and say how it ended."""
    role = loop.role
    topic = topics.presence(settings.run_id, role.edge)
    present: Callable[[str], None] = lambda state: connection.publish(topic, state.encode(), retain=True)  # noqa: E731

    def up() -> None:
        present(loop.state)
        loop.inbox.put(UP)

    connection = Connection(
        settings.broker, f"{settings.run_id}-{role.edge}",
        loop.subscriptions(), loop.receive, on_up=up, will=Will(topic, b"offline"), chunk=settings.chunk, tls=tls,
    )  # fmt: skip
    connection.start(settings.connect_timeout, stop)
    reason = "error"
    try:
        reason = loop.run(connection, stop, present)
        log.info("%s ends: %s", role.edge, reason)
    finally:
        connection.stop(Will(topic, b"retired" if loop.retired else b"left"))
