"""Versions of tacit.

A host and a member work together that are of the same minor version, or one apart. So a federation
is updated machine by machine, in any order.
"""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError
from importlib.metadata import version as installed

VERSION_HEADER = "Tacit-Version"  # of a member's tacit, in its requests to the host
MOST_APART = 1


def own_version() -> str:
    """Return the version of this tacit; "" from a source tree that is not installed."""
    try:
        return installed("tacit")
    except PackageNotFoundError:
        return ""


def who_must_move(host: str, member: str) -> str | None:
    """Return in words which of the two must be updated; None: they work together.

    None also where the version of one of them is not known.

    >>> "update the member" in who_must_move("0.5.0", "0.3.2")
    True
    >>> who_must_move("0.5.0", "0.6.0"), who_must_move("0.5.0", "")
    (None, None)
    """
    apart = minors_apart(host, member)
    if apart is None or abs(apart) <= MOST_APART:
        return None
    behind = "host" if apart < 0 else "member"
    words = f"tacit is {host} at the host, {member} at the member"
    return f"{words}: update the {behind}; one minor apart works"


def minors_apart(ours: str, theirs: str) -> int | None:
    """Return by how many minor versions `ours` is ahead; None where that cannot be told.

    >>> minors_apart("0.3.1", "0.5.0"), minors_apart("1.0", "0.9"), minors_apart("", "0.5.0")
    (-2, 991, None)
    """
    try:
        (major, minor), (their_major, their_minor) = (
            map(int, version.split(".")[:2]) for version in (ours, theirs)
        )
    except ValueError:
        return None
    return 1000 * (major - their_major) + minor - their_minor
