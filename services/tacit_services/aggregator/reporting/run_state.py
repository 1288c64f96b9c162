"""The state of a run, as its status and its summary name it."""

from __future__ import annotations

from tacit.algorithms.base.server import ServerRole


def run_state(role: ServerRole) -> str:
    """waiting (for a first update), training, finished (T reached) or halted."""
    if role.halted:
        return "finished" if role.version >= role.horizon else "halted"
    return "training" if role.version else "waiting"
