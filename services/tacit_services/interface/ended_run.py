"""A run that has ended, as a Python object: its history, its ledger, its model."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from tacit import exported
from tacit.errors import DataError
from tacit.exported import Exported, RowPrediction, RowsKind
from tacit.models import Model
from tacit_services.extras import need
from tacit_services.interface import row_files

if TYPE_CHECKING:
    from matplotlib.figure import Figure


class TrainedNetwork(nn.Module):
    """The network of a run with its trained weights, as torch has networks.

    Its input is a batch (B, *shape) of rows as the edges' steps make them of a file.
    `Results.predict` takes rows as they are in a file.
    """

    def __init__(self, model: Model, params: Tensor) -> None:
        super().__init__()
        self._model = model
        self._places = [(name, name.replace(".", "__")) for name, _ in model.layout]
        for name, value in model.unflatten(params).items():
            place = dict(self._places)[name]
            self.register_parameter(place, nn.Parameter(value.clone()))

    def forward(self, x: Tensor) -> Tensor:
        """Return the scores (B, outputs) of a batch x (B, *shape)."""
        flat = [self.get_parameter(place).reshape(-1) for _, place in self._places]
        return self._model.logits(torch.cat(flat), x)


class Results:
    """What a run has left in its folder. It is read when it is asked for; nothing is changed."""

    def __init__(self, folder: Path) -> None:
        """Raises DataError where the folder has no results of a run."""
        self.folder = folder
        self.summary: dict[str, Any] = self._document("summary.json")

    def __repr__(self) -> str:
        run = self.summary.get("run", self.folder.name)
        return f"<Results of {run}: {self.summary.get('applied')} updates, {self.folder}>"

    @property
    def epsilon(self) -> float | None:
        """The ε that is spent at the edge that has spent most; None: there is no guarantee."""
        epsilon = self.summary.get("privacy", {}).get("epsilon")
        return None if epsilon is None else float(epsilon)

    @property
    def ledger(self) -> Any:
        """What each edge has spent, a row an edge: as `history` a DataFrame, or a list."""
        edges = self._document("ledger.json").get("edges", {})
        return _frame([{"edge": name, **spent} for name, spent in edges.items()])

    @property
    def history(self) -> Any:
        """The run's course, a row for each evaluation: a DataFrame, or a list without pandas."""
        return _frame(self._points())

    def model(self, which: str = "last", *, trust_code: bool = False) -> TrainedNetwork:
        """Return the trained network; which: last, best or averaged.

        trust_code: whether code of one's own that the run names may run here. Raises ConfigError,
        DataError.
        """
        with self._exported(which, trust_code) as read:
            return TrainedNetwork(read.model, read.params)

    def predict(
        self, rows: Any, which: str = "last", *, explain: bool = False, trust_code: bool = False
    ) -> Any:
        """Return the model's predictions: a DataFrame, or a list without pandas.

        rows: a DataFrame with the columns of the training, arrays by name, or the path of a table,
        of arrays or of pictures, as the model learnt from. which, trust_code: as of `model`.
        explain: with what each column adds to the score. Raises ConfigError, DataError.
        """
        with tempfile.TemporaryDirectory() as folder, self._exported(which, trust_code) as read:
            if isinstance(rows, str | Path):
                path = Path(rows)
            else:
                path = row_files.write(rows, Path(folder), "rows")
            kind: RowsKind = getattr(read.run.data, "kind", "arrays")
            answers = list(exported.predict(read, kind, path, explain=explain))
        return _frame([_row(answer) for answer in answers])

    def plot(self) -> Figure:
        """Return the picture of the run, as plot.png shows it."""
        need("figures")
        from rich.console import Console

        from tacit_services.aggregator.reporting import run_picture

        if Console().is_jupyter:
            from tacit_services.display.notebook import draw_figures

            draw_figures()
        return run_picture.drawn(self.summary, self._points())

    def _points(self) -> list[dict[str, Any]]:
        path = self.folder / "metrics.jsonl"
        try:
            return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
        except (OSError, ValueError) as error:
            raise DataError(f"{path}: {error}") from error

    @contextmanager
    def _exported(self, which: str, trust_code: bool) -> Iterator[Exported]:
        with tempfile.TemporaryDirectory() as folder:
            place = Path(folder) / "model"
            exported.export(self.folder, place, which=which)
            yield exported.read(place, trust_code=trust_code)

    def _document(self, name: str) -> dict[str, Any]:
        path = self.folder / name
        try:
            content = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise DataError(f"{path}: {error}; name the folder of a run that has ended") from error
        if not isinstance(content, dict):
            raise DataError(f"{path}: is no object; name the folder of a run that has ended")
        return content


def load(folder: str | Path) -> Results:
    """Return the results in a run's folder, as out/run. Raises DataError."""
    return Results(Path(folder))


def _row(answer: RowPrediction) -> dict[str, Any]:
    shares = {f"probability {name}": share for name, share in answer.probabilities.items()}
    reasons = {f"adds {name}": part for name, part in (answer.reasons or {}).items()}
    return {"row": answer.row, "prediction": answer.words or answer.value, **shares, **reasons}


def _frame(rows: list[dict[str, Any]]) -> Any:
    """Return rows as a DataFrame where pandas is installed."""
    if find_spec("pandas") is None:
        return rows
    import pandas as pd

    return pd.DataFrame(rows)
