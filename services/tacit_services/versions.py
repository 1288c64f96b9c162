"""Versions of tacit."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError
from importlib.metadata import version as installed

VERSION_HEADER = "Tacit-Version"  # of a member's tacit, in its requests to its host


def own_version() -> str:
    """Return the version of this tacit; "" from a source tree that is not installed."""
    try:
        return installed("tacit")
    except PackageNotFoundError:
        return ""


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
