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
from tacit.datasets.own.array_values import Array, Bounds, TokensOf, Values, WholeNumbers
from tacit.datasets.own.arrays import ArraysReader
from tacit.datasets.own.rows import RowError
from tacit.datasets.own.rows_file import Dealt, rows_of
from tacit.datasets.own.torch_dataset import DatasetReader
from tacit.datasets.target import NOT_LEARNT
from tacit.errors import ConfigError, DataError
from tacit.graphs.freezing import freeze
from tacit.graphs.graph_file import Example
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


def test_a_module_gets_whole_numbers(tmp_path: Path) -> None:
    model = run(tmp_path, {"integers": 10}).build_model()
    x, _ = model.random_batch(200, torch.Generator().manual_seed(1))
    assert (x.dtype, int(x.min()), int(x.max())) == (torch.int64, 0, 9)


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
    graph = freeze(
        "test", module, Example(shape=(3,), dtype=dtype, below=below), torch.tensor([0, 1])
    )
    (folder / "net.graph.json").write_text(graph.graph.text())
    (folder / "net.safetensors").write_bytes(graph.file)
    return {"name": "graph", "entry": None, "file": "net.graph.json"}


def test_an_embedding_with_too_few_rows_is_said_with_how_many_it_needs(tmp_path: Path) -> None:
    definition = run(tmp_path, {"integers": 100})
    with pytest.raises(ConfigError, match="up to 99 here: an embedding needs 100 rows"):
        definition.build_model()


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


TOKENS = ArraysReader("x", "y", None, Values((3,), WholeNumbers(10), TokensOf(5, 3)))


def test_a_token_at_each_place_is_a_target(tmp_path: Path) -> None:
    y = np.array([[0, 4, NOT_LEARNT], [NOT_LEARNT] * 3])
    path = written(tmp_path / "rows.npz", {"x": ROWS, "y": y.astype(np.int16)})
    rows = rows_of(path, TOKENS, tmp_path / "kept")
    assert rows.y.dtype == torch.int64
    assert rows.y.tolist() == [*y.tolist(), [0, 0, 0]]
    target = TOKENS.target
    assert (target.kind, target.tokens, target.length, target.shape) == ("tokens", 5, 3, (3,))
    (tmp_path / "own.py").write_text(CODE)
    reader = DatasetReader("own:rows", {}, None, TOKENS.values, tmp_path)
    [block] = reader.read(path)
    assert block.y.tolist() == y.tolist()


@pytest.mark.parametrize(
    ("y", "message"),
    [
        (np.array([[0, 5, 1]] * 2), "array 'y': a token that is not 0 to 4, nor -100 for none"),
        (np.array([[0, -1, 1]] * 2), "array 'y': a token that is not 0 to 4, nor -100"),
        (np.array([[0, 0.5, 1]] * 2), "array 'y': a token that is not 0 to 4, nor -100"),
        (np.array([[0, np.nan, 1]] * 2), "array 'y': a token that is not 0 to 4, nor -100"),
        (np.zeros((2, 2), int), r"array 'y': expected shape (2, 3), as many as 'x' has rows"),
        (np.zeros(2, int), r"array 'y': expected shape (2, 3), as many as 'x' has rows"),
    ],
)
def test_tokens_that_do_not_fit_are_refused(tmp_path: Path, y: Array, message: str) -> None:
    path = written(tmp_path / "rows.npz", {"x": ROWS, "y": y})
    with pytest.raises((RowError, DataError)) as refused:
        list(TOKENS.read(path))
    assert message in str(refused.value)
    assert "\n" not in str(refused.value)


def test_lstm_learns_tokens_of_the_same_numbers(tmp_path: Path) -> None:
    tokens = {"classes": None, "target": {"tokens": 10}}
    model = run(tmp_path, {"integers": 10, **tokens}, name="lstm", entry=None).build_model()
    assert (model.classes, model.trains_objective) == (10, True)
    with pytest.raises(ConfigError, match=r"data\.integers=9: lstm has the same tokens in x and y"):
        run(tmp_path, {"integers": 9, **tokens}, name="lstm", entry=None)
    with pytest.raises(ConfigError, match=r"model\.name=lstm: is for text; a row has shape \[3\]"):
        run(tmp_path, {"integers": 10}, name="lstm", entry=None)
    with pytest.raises(ConfigError, match=r"data\.target\.tokens=1: "):
        run(tmp_path, {"integers": 10, "classes": None, "target": {"tokens": 1}})
    with pytest.raises(ConfigError, match=r"expected classes, target = \{ low = …, high = … \} or"):
        run(tmp_path, {"integers": 10, "classes": None})


def test_tokens_of_floats_are_no_text(tmp_path: Path) -> None:
    data = {"low": 0, "high": 1, "classes": None, "target": {"tokens": 4}}
    target = run(tmp_path, data).source.target
    assert (target.tokens, target.length) == (4, 3)
    with pytest.raises(ConfigError, match=r"model\.name=lstm: is for text; a row has shape \[3\]"):
        run(tmp_path, data, name="lstm", entry=None)
