"""The aggregator's subscriptions: one wildcard, until an edge floods; then all others by name.

A message without a subscriber costs the broker a read and an acknowledgement, and the aggregator
nothing. The names are all that the run may have, so a newcomer is heard as soon as it connects.
"""

from __future__ import annotations

from collections.abc import Set

from tacit.protocol import topics


def everybody(run: str) -> list[str]:
    """Return the topics to subscribe to where no edge floods."""
    return [topics.up_all(run), topics.presence_all(run)]


def subscriptions(run: str, names: Set[str], flooding: Set[str]) -> list[str]:
    """Return the topics to subscribe to in a run of these `names`.

    Edges that are `flooding` are left out ("": senders with other names).
    """
    if not flooding:
        return everybody(run)
    heard = sorted(names - flooding)
    return [topic(run, name) for name in heard for topic in (topics.presence, topics.up_of)]
