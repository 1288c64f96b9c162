"""The word of an edge that takes no part, as its owner's policy forbids the run.

It stands in the edge's presence, which is all that it sends then: no Hello, and nothing of rows. It
names a key of the policy, and no value of it. An aggregator of tacit 0.2 shows the word as it is.
"""

from __future__ import annotations

from tacit.privacy.policy import Policy

_FRONT = "refuses "


def word(key: str) -> str:
    """Return the presence of an edge whose policy forbids the run by `key`."""
    return _FRONT + key


def key_of(presence: str) -> str | None:
    """Return the key of the policy that a presence names; None: it names none.

    >>> key_of("refuses max_epsilon"), key_of("refuses me"), key_of("online")
    ('max_epsilon', None, None)
    """
    key = presence.removeprefix(_FRONT)
    if key != presence and key in Policy.model_fields:
        return key
    return None


def words(key: str) -> str:
    """Return why an edge takes no part, for all who watch the run."""
    return f"its policy's {key} does not allow this run"
