"""Whom the aggregator hears: everybody, by one wildcard, until an edge floods; then everybody else,
each by name.

What nobody has subscribed to costs the broker a read and an acknowledgement, and the aggregator
nothing. Names are those that have said Hello or are present (presence stays a wildcard), so a
newcomer is heard as soon as it is there.
"""

from __future__ import annotations

from collections.abc import Set

from tacit.protocol import topics


def everybody(run: str) -> list[str]:
    """What to listen to where nobody floods."""
    return [topics.up_all(run), topics.presence_all(run)]


def subscriptions(run: str, known: Set[str], flooding: Set[str]) -> list[str]:
    """What to listen to where the edges `known` are there.

    Those that are `flooding` are not heard.
    """
    if not flooding:
        return everybody(run)
    return [
        topics.presence_all(run),
        *(topics.up_of(run, name) for name in sorted(known - flooding)),
    ]
