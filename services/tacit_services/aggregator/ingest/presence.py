"""What edges, or the broker in their name, say of themselves."""

from __future__ import annotations

import logging

from tacit.protocol import topics, wire
from tacit_services.transport.mqtt import Inbound

log = logging.getLogger("tacit.presence")
MAX_PRESENCE = 100_000  # names; whoever may publish there must not fill our memory


def note(known: dict[str, str], inbound: Inbound) -> None:
    """Keep the newest word of an edge in `known`, short and printable, and log that it changed."""
    edge = inbound.topic.rsplit("/", 1)[1]
    if topics.is_name(edge) and (edge in known or len(known) < MAX_PRESENCE):
        before, known[edge] = (
            known.get(edge),
            wire.printable(inbound.payload[:20].decode("ascii", "replace"), 20),
        )
        if known[edge] != before:
            log.info("%s is %s", edge, known[edge], extra={"edge": edge})
    inbound.done()
