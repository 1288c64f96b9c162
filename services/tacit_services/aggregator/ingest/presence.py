"""The presence of edges, as they state it, or the broker in their name."""

from __future__ import annotations

import logging
from collections.abc import Set

from tacit.protocol import wire
from tacit_services.transport.inbox import WORD
from tacit_services.transport.mqtt import Inbound

log = logging.getLogger("tacit.presence")


def note(known: dict[str, str], names: Set[str], inbound: Inbound) -> None:
    """Keep the newest word of an edge in `known`, short and printable, and log that it changed.

    names: of the run; of others nothing is kept.
    """
    edge = inbound.topic.rsplit("/", 1)[1]
    if edge in names:
        before, known[edge] = (
            known.get(edge),
            wire.printable(inbound.payload[:WORD].decode("ascii", "replace"), WORD),
        )
        if known[edge] != before:
            log.info("%s is %s", edge, known[edge], extra={"edge": edge})
    inbound.done()
