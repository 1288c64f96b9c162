"""Weights & Biases, or its files where WANDB_MODE is offline."""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import wandb

from tacit_services.tracking.tracker import Figures, TrackedRun, TrackerError

# It would hand on the console, git's state, the program, what is installed, and the machine's name
# and load.
_SILENT = wandb.Settings(
    console="off",
    disable_git=True,
    save_code=False,
    silent=True,
    x_disable_meta=True,
    x_disable_machine_info=True,
    x_disable_stats=True,
    x_save_requirements=False,
)


class WandbTracker:
    """A run of a project: its definition, figures by version, the model as an artifact.

    Who may write is for WANDB_API_KEY.
    """

    name = "wandb"

    def __init__(self, project: str, out: Path) -> None:
        """out: the folder of the results, where wandb's own files lie."""
        self._project = project
        self._out = out

    def begin(self, run: TrackedRun, earlier: str | None) -> str:
        """As `Tracker.begin`; the name is wandb's id of the run."""
        name = earlier or secrets.token_hex(8)
        config = {**run.definition, "fingerprint": run.fingerprint, "simulated": run.simulated}
        with _in_one_line(self._project):
            self._wandb_run = wandb.init(
                project=self._project,
                name=run.name,
                id=name,
                resume="allow",
                dir=str(self._out),
                config=config,
                settings=_SILENT,
            )
        return name

    def point(self, version: int, figures: Figures) -> None:
        """As `Tracker.point`."""
        with _in_one_line(self._project):
            self._wandb_run.log({**figures, "version": version})

    def end(self, figures: Figures, files: Sequence[Path]) -> None:
        """As `Tracker.end`."""
        with _in_one_line(self._project):
            self._wandb_run.summary.update(dict(figures))
            artifact = wandb.Artifact(f"model-{self._wandb_run.id}", type="model")
            for path in files:
                artifact.add_file(str(path))
            self._wandb_run.log_artifact(artifact)
            self._wandb_run.finish()


@contextmanager
def _in_one_line(project: str) -> Iterator[None]:
    """Raise what wandb raises as TrackerError, in one line."""
    try:
        yield
    except (wandb.Error, OSError) as error:
        raise TrackerError(f"{project}: {str(error).strip().splitlines()[0][:300]}") from error
