"""The loop's settings and the connection, for edge, party and peer alike."""

from __future__ import annotations

import logging
import threading
from typing import Any

from tacit.config.definition import Definition
from tacit.digests import canonical
from tacit.models import Model
from tacit.protocol import topics
from tacit_services.settings import ANOTHER_RUN, EdgeSettings
from tacit_services.signals import stopping as stopping
from tacit_services.transport.mqtt import Connection, Will
from tacit_services.worker.contract import LoopSettings
from tacit_services.worker.loop import WorkerLoop
from tacit_services.worker.resources import WorkerResources
from tacit_services.worker.session import Standing

log = logging.getLogger("tacit.edge")


def loop_settings(
    settings: EdgeSettings, definition: Definition[Any], model: Model, largest: int, number: int
) -> LoopSettings:
    """Return the settings of the loop of worker `number`.

    largest: numbers in the largest tensor that it is sent.
    """
    return LoopSettings(
        settings.run_id,
        model.schema_hash(),
        largest,
        settings.chunk,
        settings.patience,
        canonical(definition.agreed),
        definition.edges.slowdown_of(number),
    )


def serve(loop: WorkerLoop, stop: threading.Event, resources: WorkerResources) -> None:
    """Enrol if need be, connect, run the loop to its end, and log how it ended.

    Before this call a worker has sent nothing: its role, and so its rows, are there already.
    """
    edge = loop.role.edge
    run = resources.run
    broker = resources.broker
    tls = broker.credentials.obtain(stop)
    if stop.is_set():
        return
    topic = topics.presence(run, edge)
    standing = Standing.ONLINE.value

    def present(state: str) -> None:
        nonlocal standing
        standing = state
        resources.heartbeat.stands(state)
        connection.publish(topic, state.encode(), retain=True)

    def leaves(where: str, size: int) -> None:
        resources.departures.note("presence" if where == topic else "messages", size)

    def up() -> None:
        connection.publish(topic, standing.encode(), retain=True)
        loop.mailbox.connected()

    connection = Connection(
        broker.address,
        f"{run}-{edge}",
        loop.subscriptions(),
        loop.receive,
        on_up=up,
        on_publish=leaves,
        will=Will(topic, b"offline"),
        tls=tls,
        proxies=broker.proxies,
    )
    if tls is not None:
        resources.heartbeat.certificate(tls.ends)
    connection.start(broker.timeout, stop)
    resources.heartbeat.stands(standing)
    resources.heartbeat.watch(lambda: connection.hears)
    ledger = loop.role.releaser.ledger
    before = loop.role.releaser.ledger.charged().count
    try:
        log.info("%s ends: %s", edge, loop.run(connection, stop, present))
        if loop.role.halted and ledger.charged().count == before:
            log.warning(
                "%s released nothing: run %r is over (%s). %s",
                edge,
                run,
                loop.role.halt_reason,
                ANOTHER_RUN,
            )
    finally:
        connection.stop(Will(topic, b"left"))
