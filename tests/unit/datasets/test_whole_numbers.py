"""Whole numbers as data: read as they are, refused outside, and agreed with the model."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from tacit import config
from tacit.config import RunFile
from tacit.datasets.own.array_values import Array, Bounds, Values, WholeNumbers
from tacit.datasets.own.arrays import ArraysReader
from tacit.datasets.own.rows import RowError
from tacit.datasets.own.rows_file import Dealt, rows_of
from tacit.datasets.own.torch_dataset import DatasetReader
from tacit.errors import ConfigError
from tacit.models.graph.freezing import freeze
from tacit.models.graph.graph_file import Example
from tests.helpers.run_files import toml
from tests.unit.datasets.test_own_arrays import written

VALUES = Values((3,), WholeNumbers(10), 2)
READER = ArraysReader("x", "y", None, VALUES)
ROWS = np.array([[0, 9, 4], [1, 2, 3]])
CODE = """
import numpy as np


def rows(path):
    content = np.load(path)
    return list(zip(content["x"], content["y"]))
"""
NETS = """
from torch import nn


class Net(nn.Module):
    def __init__(self, words=10):
        super().__init__()
        self.words = nn.Embedding(words, 4)
        self.head = nn.Linear(4, 2)

    def forward(self, x):
        return self.head(self.words(x).mean(1))
"""


def saved(folder: Path, x: Array) -> Path:
    return written(folder / "rows.npz", {"x": x, "y": np.arange(len(x)) % 2})


@pytest.mark.parametrize("dtype", [np.int64, np.uint8, np.float32, np.uint64])
def test_whole_numbers_are_read_as_they_are_with_a_public_row_of_zeros(
    tmp_path: Path, dtype: Any
) -> None:
    rows = rows_of(saved(tmp_path, ROWS.astype(dtype)), READER, tmp_path / "kept")
    assert rows.x.dtype == torch.int64
    assert rows.x.tolist() == [*ROWS.tolist(), [0, 0, 0]]
    assert READER.integers == 10


def test_rows_of_own_code_may_be_whole_numbers(tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text(CODE)
    reader = DatasetReader("own:rows", {}, None, VALUES, tmp_path)
    [block] = reader.read(saved(tmp_path, ROWS))
    assert block.x.tolist() == ROWS.tolist()


def test_they_are_dealt_like_other_rows(tmp_path: Path) -> None:
    path = saved(tmp_path, np.arange(300).reshape(100, 3) % 10)
    parts = [rows_of(path, READER, tmp_path / f"{at}", Dealt(at, 3, 1)) for at in range(3)]
    assert sum(part.records for part in parts) == 100
    assert all(part.x.dtype == torch.int64 for part in parts)


@pytest.mark.parametrize("number", [-1, 10, 2.5, np.nan, np.inf, 1e300, 2**40])
def test_any_other_number_is_refused_in_one_line_that_does_not_have_it(
    tmp_path: Path, number: float
) -> None:
    x = ROWS.astype(np.float64)
    x[1, 2] = number
    with pytest.raises(RowError) as refused:
        list(READER.read(saved(tmp_path, x)))
    assert refused.value.message == (
        "rows.npz: array 'x': a number that is not 0 to 9, as data.integers=10 has it"
    )
    assert "in row 2 of the data (set data.integers above every number" in refused.value.for_owner


def test_a_schema_of_bounds_is_called_as_it_was() -> None:
    # By this digest a ledger of 0.2 is known again.
    reader = ArraysReader("x", "y", None, Values((2, 3), Bounds(0.0, 10.0), 3))
    digest = "f476ecbdf821592e60d75c9d3e39418d5d31a7894abfbd1c3f086371f78399ce"
    assert reader.digest() == digest
    assert READER.digest() != ArraysReader("x", "y", None, Values((3,), Bounds(0, 10), 2)).digest()


def run(folder: Path, data: dict[str, Any], **model: Any) -> RunFile:
    (folder / "nets.py").write_text(NETS)
    keys = {
        "kind": "arrays", "train": "rows.npz", "rows": 500, "shape": [3], "classes": 2,
        "dataset": None, **data,
    }  # fmt: skip
    text = toml(
        data=keys,
        model={"name": "python", "entry": "nets:Net", **model},
        algorithm={"name": "fedasync", "steps_min": 1},
        privacy={"pushes": 10},
        run={"updates": 10},
    )
    return config.parse(text, "test", folder=folder)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (
            {"integers": 10, "low": 0},
            "data: low=0: whole numbers have no bounds beside integers=10",
        ),
        ({"integers": 10, "high": 1}, "data: high=1: whole numbers have no bounds beside"),
        ({"low": 0}, "data: expected low and high of x, or integers for whole numbers"),
        ({}, "data: expected low and high of x, or integers for whole numbers"),
        ({"integers": 1}, "data.integers=1: "),
        ({"integers": 10, "features": ["upright"]}, "features: are of numbers, not of integers=10"),
    ],
)
def test_keys_that_contradict_whole_numbers_are_refused(
    tmp_path: Path, data: dict[str, Any], message: str
) -> None:
    assert run(tmp_path, {"integers": 10}).source.integers == 10  # the control
    with pytest.raises(ConfigError) as refused:
        run(tmp_path, data)
    assert message in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("name", ["logistic", "svm", "mlp"])
def test_a_model_of_floats_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(
        ConfigError, match=rf"model\.name={name}: takes no whole numbers, as data\."
    ):
        run(tmp_path, {"integers": 10}, name=name, entry=None)


def test_a_module_gets_whole_numbers_and_shows_its_layers(tmp_path: Path) -> None:
    model = run(tmp_path, {"integers": 10}).build_model()
    x, _ = model.random_batch(200, torch.Generator().manual_seed(1))
    assert (x.dtype, int(x.min()), int(x.max())) == (torch.int64, 0, 9)
    assert model.traced


class Net(nn.Module):
    """An embedding of ten words."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(10, 4)
        self.head = nn.Linear(4, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        scores: torch.Tensor = self.head(self.words(x).mean(1))
        return scores


class Floats(Net):
    """The same of floats."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return scores."""
        return super().forward(x.long().clamp(0, 9))


def frozen(folder: Path, module: nn.Module, below: int | None) -> dict[str, Any]:
    dtype: Any = "float32" if below is None else "int64"
    graph = freeze("test", module, Example(shape=(3,), dtype=dtype, below=below))
    (folder / "net.graph.json").write_text(graph.graph.text())
    (folder / "net.safetensors").write_bytes(graph.file)
    return {"name": "graph", "entry": None, "file": "net.graph.json"}


def test_a_graph_takes_fewer_numbers_than_it_is_made_for(tmp_path: Path) -> None:
    model = run(tmp_path, {"integers": 8}, **frozen(tmp_path, Net(), 10)).build_model()
    x, _ = model.random_batch(200, torch.Generator().manual_seed(1))
    assert int(x.max()) == 7  # probes stay inside the data's numbers, not the graph's


@pytest.mark.parametrize(
    ("module", "below", "data", "message"),
    [
        (Net(), 9, {"integers": 10}, "takes whole numbers below 9; the data has whole numbers be"),
        (Floats(), None, {"integers": 10}, "takes floats; the data has whole numbers below 10; fr"),
        (Net(), 10, {"low": 0, "high": 1}, "takes whole numbers below 10; the data has floats; f"),
    ],
)
def test_a_graph_of_other_numbers_is_refused(
    tmp_path: Path, module: nn.Module, below: int | None, data: dict[str, Any], message: str
) -> None:
    definition = run(tmp_path, data, **frozen(tmp_path, module, below))
    with pytest.raises(ConfigError) as refused:
        definition.build_model()
    assert f"model.file=net.graph.json: {message}" in str(refused.value)
    assert "\n" not in str(refused.value)
