"""All trackers of one run: what metrics.jsonl and the results have, for each that is on."""

from __future__ import annotations

import json
import logging
import math
import threading
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from tacit.config.sections import Tracking
from tacit_services.disk import files
from tacit_services.extras import need
from tacit_services.tracking.tracker import TrackedRun, Tracker
from tacit_services.tracking.tracker_thread import TrackerThread

FILE = "trackers.json"  # in the folder of the results: by which names their runs go on
CLOSE_SECONDS = 60.0
# Of an evaluation, what is no figure of the run.
_NO_FIGURES = ("version", "bound", "metrics", "at")
_OF_THE_END = ("test_accuracy", "test_loss", "applied", "duration_s", "stale", "rejected")
# What is handed over at the end, beside the definition.
_FILES = ("summary.json", "model.safetensors")
log = logging.getLogger("tacit.tracking")


def need_trackers(tracking: Tracking) -> None:
    """Raise ConfigError, with what to install, for a tracker whose library is missing."""
    for extra in tracking.extras:
        need(extra)


class RunTrackers:
    """The trackers of one run, each with a thread of its own. Without one, nothing is done.

    None of them learns of a row: they are told what metrics.jsonl, summary.json and the run file
    have. None stops a run: one that fails is warned of once.
    """

    def __init__(self, trackers: Sequence[Tracker], run: TrackedRun, out: Path) -> None:
        """out: the folder of the run's results."""
        self._run = run
        self._out = out
        self._lock = threading.Lock()
        self._threads = {tracker.name: TrackerThread(tracker) for tracker in trackers}

    @classmethod
    def of(cls, tracking: Tracking, folder: Path, run: TrackedRun, out: Path) -> RunTrackers:
        """Return the trackers that a run file in `folder` asks for. Raises ConfigError."""
        need_trackers(tracking)
        return cls(list(_opened(tracking, folder, out)), run, out)

    def begin(self) -> None:
        """Begin the run, or go on with what an earlier process of it has begun."""
        earlier = self._names()
        for name, thread in self._threads.items():
            thread.put(partial(self._begin, earlier.get(name)))

    def point(self, point: Mapping[str, Any]) -> None:
        """Write an evaluation, a line of metrics.jsonl."""
        figures = _numbers({k: v for k, v in point.items() if k not in _NO_FIGURES})
        figures |= _numbers(point.get("metrics", {}))
        for thread in self._threads.values():
            thread.put(lambda tracker: tracker.point(point["version"], figures))

    def end(self) -> None:
        """Write the results of a run that has ended, which are in its folder."""
        for thread in self._threads.values():
            thread.put(self._end)

    def close(self) -> None:
        """Wait until all is written, at most CLOSE_SECONDS for each. Idempotent."""
        for thread in self._threads.values():
            thread.close(CLOSE_SECONDS)

    def _begin(self, earlier: str | None, tracker: Tracker) -> None:
        name = tracker.begin(self._run, earlier)
        run = {"run": self._run.name, "fingerprint": self._run.fingerprint}
        with self._lock:  # each tracker has a thread
            names = self._names() | {tracker.name: name}
            text = json.dumps({**run, "names": names}, indent=2) + "\n"
            try:
                files.write(self._out / FILE, text.encode(), None)
            except OSError as error:
                log.warning("%s: %s; a restart begins the run anew there", FILE, error)

    def _end(self, tracker: Tracker) -> None:
        try:
            summary = json.loads((self._out / "summary.json").read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            log.warning("tracking.%s: %s/summary.json: %s", tracker.name, self._out, error)
            return
        figures = _numbers({key: summary.get(key) for key in _OF_THE_END})
        figures |= _numbers({"epsilon": summary["privacy"]["epsilon"]})
        tracker.end(figures, [self._out / name for name in _FILES])

    def _names(self) -> dict[str, str]:
        """Return the names by which this run's trackers go on; of another run there is none."""
        try:
            content = json.loads((self._out / FILE).read_text(encoding="utf-8"))
            same = (content["run"], content["fingerprint"]) == (
                self._run.name,
                self._run.fingerprint,
            )
            return {str(k): str(v) for k, v in content["names"].items()} if same else {}
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            return {}


def _opened(tracking: Tracking, folder: Path, out: Path) -> Sequence[Tracker]:
    """Return the trackers that are on; only their libraries are loaded."""
    trackers = list[Tracker]()
    if tracking.mlflow is not None:
        from tacit_services.tracking.mlflow_tracker import MlflowTracker

        trackers.append(MlflowTracker(tracking.mlflow))
    if tracking.tensorboard is not None:
        from tacit_services.tracking.tensorboard_tracker import TensorboardTracker

        trackers.append(TensorboardTracker(folder / tracking.tensorboard))
    if tracking.wandb is not None:
        from tacit_services.tracking.wandb_tracker import WandbTracker

        trackers.append(WandbTracker(tracking.wandb, out))
    return trackers


def _numbers(content: Mapping[str, Any]) -> dict[str, float]:
    """Return the finite numbers of a document: an ε without a guarantee is none."""
    return {
        key: float(value)
        for key, value in content.items()
        if isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    }
