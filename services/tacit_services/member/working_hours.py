"""The hours in which an owner's policy lets a member work."""

from __future__ import annotations

from datetime import datetime

from tacit.privacy.policy import Policy


def within(policy: Policy) -> bool:
    """Return whether a policy lets its member work at this hour, in local time."""
    return policy.allows_at(f"{datetime.now():%H:%M}")
