"""The layout since a simulation is given a run's definition."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from tacit_services.testbed.simulate import simulate as _simulate

from golden.adapters.rooms import *  # noqa: F403
from golden.adapters.rooms import EdgeRole, Party, RunFile, ServerRole
from tacit.protocol import wire
from tacit.simulation.client_server import Simulator as _Simulator


class Simulator(_Simulator):
    """The simulator of a run file."""

    def __init__(self, run: RunFile, server: ServerRole, edges: Sequence[EdgeRole | Party]) -> None:
        super().__init__(run.define(), server, edges)
        self.run_file = run


def simulate(run: RunFile, root: Path | None, out: Path, shown: Callable[[Any], None]) -> object:
    """As `tacit simulate` does."""
    return _simulate(run.define(), root, out, shown)
