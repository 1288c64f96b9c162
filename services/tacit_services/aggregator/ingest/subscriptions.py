"""Whom the aggregator hears: everybody, by one wildcard, until an edge floods; then everybody else, each by name.

What nobody has subscribed to costs the broker a read and an acknowledgement, and the aggregator nothing. Names are
those that have said Hello or are present (presence stays a wildcard), so a newcomer is heard as soon as it is there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tacit.protocol import topics

if TYPE_CHECKING:
    from tacit_services.aggregator.driver import ServerDriver


def everybody(run: str) -> list[str]:
    """What to listen to where nobody floods."""
    return [topics.up_all(run), topics.presence_all(run)]


def subscriptions(driver: ServerDriver) -> list[str]:
    """What to listen to now; for the driver's thread."""
    run, shut = driver.run_id, frozenset[str]() if driver.door is None else driver.door.shut()
    if not shut:
        return everybody(run)
    names = (driver.role.edges.keys() | driver.presence.keys()) - shut
    return [topics.presence_all(run), *(topics.up_of(run, name) for name in sorted(names))]
