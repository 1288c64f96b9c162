"""The results of a run for commands that use its model: a folder here, or fetched from a host."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tacit_services.cli import federations
from tacit_services.cli.reach import Reach


@contextmanager
def results_of(reach: Reach, run: Path) -> Iterator[Path]:
    """Yield the folder of a run's results. Those of a federation's run are fetched for the block.

    run: a folder, or the name of a run at the host. Raises TacitError.
    """
    if not reach.names_run(run):
        yield run
        return
    with tempfile.TemporaryDirectory(prefix="tacit-") as folder:
        federations.fetched(reach, str(run), Path(folder))
        yield Path(folder)


@contextmanager
def exported_run(reach: Reach, run: Path) -> Iterator[Path]:
    """Yield a folder with an exported model; of a federation's run it is made for the block.

    run: a folder with an exported model, or the name of a run at the host. Raises TacitError.
    """
    if not reach.names_run(run):
        yield run
        return
    from tacit import exported

    with results_of(reach, run) as results:
        folder = results / "model"
        exported.export(results, folder)
        yield folder
