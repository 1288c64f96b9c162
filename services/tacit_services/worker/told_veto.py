"""Tells the aggregator that an owner's policy forbids the run, so that nobody waits for the edge.

The edge has read no row by then, and opened no ledger: what it says follows from the run file and
the policy alone.
"""

from __future__ import annotations

import logging
import threading

from tacit.errors import ConfigError, ServiceError
from tacit.protocol import topics, veto
from tacit_services.identity.folder import Identity
from tacit_services.settings import EdgeSettings
from tacit_services.transport.mqtt import Connection
from tacit_services.worker.enroll import prepared

log = logging.getLogger("tacit.edge")
_SECONDS = 10.0  # the longest wait for the broker: the edge leaves in any case


def tell(settings: EdgeSettings, identity: Identity, key: str, stop: threading.Event) -> None:
    """Say in the edge's presence, which the broker keeps, which key of the policy forbids the run.

    Where there is no way to the broker, that is logged.
    """
    run = settings.run_id
    try:
        tls = prepared(settings, identity).obtain(stop)
        if stop.is_set():
            return
        connection = Connection(
            settings.broker,
            f"{run}-{identity.edge}",
            [],
            lambda inbound: inbound.done(),
            tls=tls,
            proxies=settings.proxies(),
        )
        connection.start(min(_SECONDS, settings.connect_timeout), stop)
        connection.publish(
            topics.presence(run, identity.edge), veto.word(key).encode(), retain=True
        )
        connection.stop()
    except (ConfigError, ServiceError) as error:
        log.warning("the aggregator was not told that the policy forbids the run: %s", error)
