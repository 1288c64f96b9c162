"""TensorBoard: event files in a folder."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from tensorboardX import SummaryWriter

from tacit_services.tracking.tracker import Figures, TrackedRun, TrackerError


class TensorboardTracker:
    """A folder for each run: scalars by version, the definition as text.

    TensorBoard's files have no place for a model: its folder stands there as text.
    """

    name = "tensorboard"

    def __init__(self, folder: Path) -> None:
        """folder: of all runs, which is made."""
        self._folder = folder

    def begin(self, run: TrackedRun, earlier: str | None) -> str:
        """As `Tracker.begin`; the name is that of the folder. A restart adds a file to it."""
        name = earlier or self._free(run.name)
        with _in_one_line(self._folder):
            self._writer = SummaryWriter(logdir=str(self._folder / name))
            if earlier is None:
                self._text("definition", run.text())
                self._text("fingerprint", run.fingerprint)
            self._writer.flush()
        return name

    def point(self, version: int, figures: Figures) -> None:
        """As `Tracker.point`."""
        with _in_one_line(self._folder):
            for key, value in figures.items():
                self._writer.add_scalar(key, value, version)
            self._writer.flush()

    def end(self, figures: Figures, files: Sequence[Path]) -> None:
        """As `Tracker.end`."""
        version = int(figures.get("applied", 0))
        with _in_one_line(self._folder):
            for key, value in figures.items():
                self._writer.add_scalar(f"end/{key}", value, version)
            self._text("files", "\n".join(str(path) for path in files))
            self._writer.close()

    def _text(self, tag: str, text: str) -> None:
        self._writer.add_text(tag, f"```\n{text}\n```")

    def _free(self, name: str) -> str:
        """Return a name that no run in the folder has: `name`, or with a number behind it."""
        number = 1
        free = name
        while (self._folder / free).exists():
            number += 1
            free = f"{name}-{number}"
        return free


@contextmanager
def _in_one_line(folder: Path) -> Iterator[None]:
    """Raise an OSError of the folder as TrackerError."""
    try:
        yield
    except OSError as error:
        raise TrackerError(f"{folder}: {error.strerror or error}") from error
