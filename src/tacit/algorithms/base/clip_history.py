"""The clip norms of a run: which went out with the model of which version."""

from __future__ import annotations

from collections.abc import Iterable


class ClipHistory:
    """Clip norms C, each since a version.

    >>> clips = ClipHistory(2.0)
    >>> clips.change(10, 1.0)
    >>> clips.at(9), clips.at(10)
    (2.0, 1.0)
    """

    def __init__(self, clip: float) -> None:
        """clip: C of version 0."""
        self._since = [(0, clip)]

    def change(self, version: int, clip: float) -> None:
        """Let models of `version` and later go out with `clip`."""
        self._since.append((version, clip))

    def at(self, version: int) -> float:
        """Return the C that went out with the model of this version."""
        return next(clip for since, clip in reversed(self._since) if since <= version)

    def state(self) -> list[tuple[int, float]]:
        """Return what `restore` continues from."""
        return list(self._since)

    def restore(self, since: Iterable[tuple[int, float]]) -> None:
        """Continue from what `state` returned."""
        self._since = [(version, clip) for version, clip in since]
