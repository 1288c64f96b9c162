"""`tacit edge`: take an identity, load its rows, and work until Halt."""

from __future__ import annotations

import hashlib
import logging
import signal
import threading
from collections.abc import Callable
from contextlib import closing

import torch

from services.edge.enroll import credentials
from services.edge.loop import UP, EdgeLoop, Terms
from services.edge.turns import Turns
from services.runtime import identity as identities
from services.runtime import lineage
from services.runtime.identity import Identity
from services.runtime.mqtt import Connection, Will
from services.runtime.outbox import Outbox
from services.runtime.settings import EdgeSettings
from services.runtime.tls import Tls
from tacit import datasets, topics
from tacit.algorithms.mapa import Edge
from tacit.config import RunFile
from tacit.errors import ConfigError
from tacit.models import Model
from tacit.privacy.ledger import Ledger
from tacit.privacy.plan import Releaser
from tacit.privacy.probe import require_separate_examples
from tacit.privacy.sampling import Random

log = logging.getLogger("tacit.edge")


def main(settings: EdgeSettings) -> None:
    """Run one edge to its end. Raises TacitError."""
    stop = threading.Event()
    for name in (signal.SIGTERM, signal.SIGINT):
        signal.signal(name, lambda *_: stop.set())
    torch.set_num_threads(settings.threads)
    run = settings.load_run()
    model = run.build_model()
    identity = identities.acquire(settings.identities, parts(run), settings.identity, stop)
    if identity is None:
        return
    # Order: the connection is down (in _serve), then outbox, ledger, and last the identity they belong to.
    with (
        closing(identity),
        lineage.ledger(identity, settings.ledger, run.data.dataset) as ledger,
        closing(Outbox(identity.path / "outbox.db", settings.run_id)) as outbox,
        closing(Turns(settings.turns)) as turns,
    ):
        tls = credentials(settings, identity, stop)
        if stop.is_set():
            return
        role = build_role(settings, run, model, identity, ledger)
        left = role.releaser.left
        log.info("%s: %s", identity.edge, "no guarantee" if left is None else f"{left} pushes left")
        _serve(settings, EdgeLoop(role, outbox, _terms(settings, model), turns), stop, tls)


def parts(run: RunFile) -> int:
    """How many identities the run deals its data to: the edges, and the spare ones that may join."""
    return run.edges.count + run.data.spare


def build_role(settings: EdgeSettings, run: RunFile, model: Model, identity: Identity, ledger: Ledger) -> Edge:
    """The edge role of this identity with its own rows. Raises ConfigError, DataError, PrivacyError."""
    try:
        device = torch.device(settings.device)
        torch.zeros(1, device=device)
    except RuntimeError as error:
        raise ConfigError(f"TACIT_DEVICE={settings.device!r}: {str(error).splitlines()[0]}") from error
    plan = run.plan(identity.number)
    settings.load_policy().check(plan, run.algorithm.name, run.model.name)
    if plan.private:
        require_separate_examples(model, settings.device)
    data = run.data
    rows = datasets.shard(
        datasets.load_labels(data.dataset, "train", settings.data), identity.number, shards=run.edges.count,
        method=data.partition, seed=run.run.seed, alpha=data.alpha, spare=data.spare, spare_weight=data.spare_weight,
    )  # fmt: skip
    part = datasets.load(data.dataset, "train", settings.data, rows, data.features)
    releaser = Releaser(plan, ledger, Random())
    return Edge(identity.edge, part, model, releaser, settings.device)


def schema_hash(model: Model) -> bytes:
    """What a message must carry to be for this model: SHA-256 of its layer names and shapes."""
    return hashlib.sha256(model.schema().encode()).digest()


def _terms(settings: EdgeSettings, model: Model) -> Terms:
    return Terms(settings.run_id, schema_hash(model), model.size, settings.chunk, settings.patience)


def _serve(settings: EdgeSettings, loop: EdgeLoop, stop: threading.Event, tls: Tls | None) -> None:
    role = loop.role
    topic = topics.presence(settings.run_id, role.edge)
    present: Callable[[str], None] = lambda state: connection.publish(topic, state.encode(), retain=True)  # noqa: E731

    def up() -> None:
        present(loop.state)
        loop.inbox.put(UP)

    connection = Connection(
        settings.broker, f"{settings.run_id}-{role.edge}",
        [topics.down_all(settings.run_id, role.edge), topics.model(settings.run_id)],
        loop.inbox.put, on_up=up, will=Will(topic, b"offline"), chunk=settings.chunk, tls=tls,
    )  # fmt: skip
    connection.start(settings.connect_timeout, stop)
    reason = "error"
    try:
        reason = loop.run(connection, stop, present)
        log.info("%s ends: %s", role.edge, reason)
    finally:
        connection.stop(Will(topic, b"retired" if loop.retired else b"left"))
