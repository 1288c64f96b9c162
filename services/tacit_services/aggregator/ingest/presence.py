"""Who is there, as edges state it or the broker in their name, and whom the aggregator hears."""

from __future__ import annotations

import logging
from collections.abc import Set

from tacit.protocol import topics, veto, wire
from tacit_services.transport.inbox import WORD
from tacit_services.transport.mqtt import Inbound

log = logging.getLogger("tacit.presence")


def note(words: dict[str, str], vetoes: dict[str, str], names: Set[str], inbound: Inbound) -> None:
    """Keep the newest word of an edge in `words`, short and printable, and log that it changed.

    An edge whose policy forbids the run has left, and stands in `vetoes` with the key. names: of
    the run; of others nothing is kept.
    """
    edge = inbound.topic.rsplit("/", 1)[1]
    if edge in names:
        word = wire.printable(inbound.payload[:WORD].decode("ascii", "replace"), WORD)
        key = veto.key_of(word)
        if key is None:
            vetoes.pop(edge, None)
        elif vetoes.get(edge) != key:
            vetoes[edge] = key
            log.warning("%s takes no part: %s", edge, veto.words(key), extra={"edge": edge})
        word = word if key is None else "left"
        if words.get(edge) != word:
            words[edge] = word
            if key is None:
                log.info("%s is %s", edge, word, extra={"edge": edge})
    inbound.done()


def everybody(run: str) -> list[str]:
    """Return the topics to subscribe to where no edge floods."""
    return [topics.up_all(run), topics.presence_all(run)]


def all_but(run: str, names: Set[str], flooding: Set[str]) -> list[str]:
    """Return the topics to subscribe to in a run of these `names`.

    Edges that are `flooding` are left out ("": senders with other names). It is one wildcard until
    an edge floods. Then it is all others by name. These are all that the run may have, so a
    newcomer is received as soon as it connects. A message without a subscriber costs the broker a
    read and an acknowledgement, and the aggregator nothing.
    """
    if not flooding:
        return everybody(run)
    heard = sorted(names - flooding)
    return [topic(run, name) for name in heard for topic in (topics.presence, topics.up_of)]
