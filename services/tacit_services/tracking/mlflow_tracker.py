"""MLflow, on a tracking server or in a database."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from mlflow import MlflowClient
from mlflow.entities import Metric, Param, RunTag
from mlflow.exceptions import MlflowException
from mlflow.utils.time import get_current_time_millis

from tacit_services.tracking.tracker import Figures, TrackedRun, TrackerError

EXPERIMENT = "tacit"
_LONGEST = 500  # characters of a parameter, which every server takes
_MOST = 100  # parameters at once


class MlflowTracker:
    """A run of the experiment "tacit": parameters, metrics by version, the definition, the model.

    Who may write is for MLflow's own variables, as MLFLOW_TRACKING_TOKEN.
    """

    name = "mlflow"

    def __init__(self, uri: str) -> None:
        """uri: as MLflow takes it. The server is asked for nothing yet."""
        self._uri = uri
        self._id = ""

    def begin(self, run: TrackedRun, earlier: str | None) -> str:
        """As `Tracker.begin`; the name is that of MLflow's run."""
        with _in_one_line(self._uri):
            self._client = MlflowClient(tracking_uri=self._uri)
            if earlier is not None:
                self._id = earlier
                self._client.set_terminated(earlier, "RUNNING")
                return earlier
            tags = {"tacit.fingerprint": run.fingerprint, "tacit.simulated": str(run.simulated)}
            created = self._client.create_run(self._experiment(), run_name=run.name)
            self._id = created.info.run_id
            keys = [Param(key, value[:_LONGEST]) for key, value in run.keys.items()]
            for first in range(0, len(keys), _MOST):
                self._client.log_batch(self._id, params=keys[first : first + _MOST])
            self._client.log_batch(self._id, tags=[RunTag(*tag) for tag in tags.items()])
            self._client.log_text(self._id, run.text(), "definition.json")
            return self._id

    def point(self, version: int, figures: Figures) -> None:
        """As `Tracker.point`."""
        with _in_one_line(self._uri):
            self._log(version, figures)

    def end(self, figures: Figures, files: Sequence[Path]) -> None:
        """As `Tracker.end`."""
        with _in_one_line(self._uri):
            self._log(int(figures.get("applied", 0)), figures)
            for path in files:
                self._client.log_artifact(self._id, str(path))
            self._client.set_terminated(self._id, "FINISHED")

    def _log(self, version: int, figures: Figures) -> None:
        now = get_current_time_millis()
        metrics = [Metric(key, value, now, version) for key, value in figures.items()]
        self._client.log_batch(self._id, metrics=metrics)

    def _experiment(self) -> str:
        experiment = self._client.get_experiment_by_name(EXPERIMENT)
        if experiment is not None:
            return str(experiment.experiment_id)
        return str(self._client.create_experiment(EXPERIMENT))


@contextmanager
def _in_one_line(uri: str) -> Iterator[None]:
    """Raise what MLflow raises as TrackerError, in one line. A lost connection is an OSError."""
    try:
        yield
    except (MlflowException, OSError) as error:
        raise TrackerError(f"{uri}: {str(error).strip().splitlines()[0][:300]}") from error
