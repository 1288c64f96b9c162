"""Own arrays: rows of an npz or a safetensors file by public constants, and what is refused."""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from safetensors.numpy import save_file

from tacit.datasets.own.array_values import Bounds, Values
from tacit.datasets.own.arrays import ArraysReader
from tacit.datasets.own.dealing import edges_of
from tacit.datasets.own.rows import RowError
from tacit.datasets.own.rows_file import Dealt, rows_of
from tacit.errors import DataError

READER = ArraysReader("x", "y", None, Values((2, 3), Bounds(0.0, 10.0), 3))
Array = npt.NDArray[Any]


def arrays(changed: dict[str, Array] | None = None, count: int = 40) -> dict[str, Array]:
    chance = np.random.default_rng(1)
    x = chance.integers(0, 11, (count, 2, 3)).astype(np.uint8)
    content: dict[str, Array] = {"x": x, "y": chance.integers(0, 3, count)}
    return content | (changed or {})


def written(path: Path, content: dict[str, Array]) -> Path:
    if path.suffix == ".npz":
        np.savez(path, **content)  # type: ignore[arg-type]
    elif path.suffix == ".packed":
        np.savez_compressed(path.with_suffix(".npz"), **content)  # type: ignore[arg-type]
        path.with_suffix(".npz").rename(path)
    else:
        save_file(content, path)
    return path


@pytest.mark.parametrize("name", ["rows.npz", "rows.packed", "rows.safetensors"])
def test_a_row_is_cut_at_public_bounds_and_scaled(tmp_path: Path, name: str) -> None:
    content = arrays(
        {"x": np.array([[[-5, 0, 5], [10, 20, 1]]], dtype=np.float32), "y": np.array([2])}
    )
    rows = rows_of(written(tmp_path / name, content), READER, tmp_path / "kept")
    assert rows.records == 1
    expected = [[[0.0, 0.0, 0.5], [1.0, 1.0, 0.1]], [[0.0] * 3] * 2]  # and the public row
    assert np.allclose(rows.x.numpy(), expected)
    assert rows.y.tolist() == [2, 0]


@pytest.mark.parametrize("name", ["rows.npz", "rows.safetensors"])
def test_blocks_of_any_size_make_the_same_rows(
    tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = written(tmp_path / name, arrays())
    uncut = rows_of(path, READER, tmp_path / "whole")
    monkeypatch.setattr("tacit.datasets.own.arrays._BLOCK_BYTES", 8 * 6 * 7)  # seven rows
    cut = rows_of(path, READER, tmp_path / "cut")
    assert np.array_equal(uncut.x.numpy(), cut.x.numpy())
    assert np.array_equal(uncut.y.numpy(), cut.y.numpy())


def test_a_unit_has_all_its_rows_at_one_edge_and_one_row_more_moves_no_other(
    tmp_path: Path,
) -> None:
    unit = np.array([f"p{number // 4}" for number in range(40)])
    reader = ArraysReader("x", "y", "who", Values((2, 3), Bounds(0.0, 10.0), 3))
    first = list(reader.read(written(tmp_path / "a.npz", arrays({"who": unit}))))
    edges = edges_of(first[0].units, seed=1, edges=3)
    assert all(len(set(edges[unit == who])) == 1 for who in set(unit))
    more = {
        key: np.concatenate((values[:1], values)) for key, values in arrays({"who": unit}).items()
    }
    (again,) = reader.read(written(tmp_path / "b.npz", more))
    assert np.array_equal(edges_of(again.units, seed=1, edges=3)[1:], edges)
    dealt = [
        rows_of(tmp_path / "a.npz", reader, tmp_path / f"{k}", Dealt(k, 3, seed=1))
        for k in sorted(set(edges.tolist()))
    ]
    assert sum(rows.records for rows in dealt) == 10  # units


def test_a_number_is_a_target_too(tmp_path: Path) -> None:
    reader = ArraysReader("x", "y", None, Values((2, 3), Bounds(0.0, 10.0), Bounds(-1.0, 1.0)))
    path = written(tmp_path / "rows.npz", arrays({"y": np.array([0.5, -7.0])}, count=2))
    assert rows_of(path, reader, tmp_path / "kept").y.tolist() == [0.75, 0.0, 0.0]


class Evil:
    """What a pickle would run."""

    def __reduce__(self) -> Any:
        return (Path.touch, (Path("executed"),))


NAN = np.full((40, 2, 3), np.nan)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"x": np.zeros((40, 3, 2))}, r"array 'x': expected shape \(n, 2, 3\), found"),
        ({"y": np.zeros(39, int)}, "array 'y': expected shape"),
        ({"y": np.full(40, 3)}, "array 'y': a class that is not 0 to 2"),
        ({"y": np.full(40, 0.5)}, "array 'y': a class that is not 0 to 2"),
        ({"y": np.full(40, 1e300)}, "array 'y': a class that is not 0 to 2"),
        ({"x": NAN}, "array 'x': nan"),
        ({"x": np.asfortranarray(np.zeros((40, 2, 3)))}, "is stored by columns"),
        ({"x": np.array([["a"] * 3] * 2 * 40).reshape(40, 2, 3)}, "expected numbers"),
    ],
)
def test_what_does_not_fit_is_refused_by_its_array(
    tmp_path: Path, changed: dict[str, Array], message: str
) -> None:
    with pytest.raises(DataError, match=message):
        rows_of(written(tmp_path / "rows.npz", arrays(changed)), READER, tmp_path / "kept")
    assert not (tmp_path / "kept").exists()
    path = written(tmp_path / "rows.npz", arrays())
    assert rows_of(path, READER, tmp_path / "kept").records == 40  # the control


def test_an_error_says_no_value_and_its_row_only_to_its_owner(tmp_path: Path) -> None:
    y = np.zeros(40, int)
    y[17] = 77
    with pytest.raises(RowError) as refused:
        list(READER.read(written(tmp_path / "rows.npz", arrays({"y": y}))))
    assert refused.value.where == "row 18"
    assert not {"17", "77"} & set(str(refused.value).split())


def test_nothing_is_executed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    np.savez(tmp_path / "objects.npz", x=np.array([Evil()] * 2), y=np.zeros(2))
    with pytest.raises(DataError, match="holds Python objects, which are not read"):
        list(READER.read(tmp_path / "objects.npz"))
    (tmp_path / "pickled").write_bytes(b"\x80\x04 posing as arrays")
    with pytest.raises(DataError, match="is a pickle, not an npz or safetensors file"):
        list(READER.read(tmp_path / "pickled"))
    assert not (tmp_path / "executed").exists()


@pytest.mark.parametrize("name", ["rows.npz", "rows.safetensors"])
def test_a_file_that_is_cut_off_is_refused(tmp_path: Path, name: str) -> None:
    path = written(tmp_path / name, arrays())
    intact = path.read_bytes()
    for length in (3, len(intact) // 2, len(intact) - 30):
        path.write_bytes(intact[:length])
        with pytest.raises(DataError, match=r"rows\."):
            list(READER.read(path))


def test_an_array_that_says_more_rows_than_it_has_is_refused(tmp_path: Path) -> None:
    written(tmp_path / "rows.npz", arrays())
    with (
        zipfile.ZipFile(tmp_path / "rows.npz") as archive,
        zipfile.ZipFile(tmp_path / "cut.npz", "w") as cut,
    ):
        for name in archive.namelist():
            content = archive.read(name)
            cut.writestr(name, content[:-50] if name == "x.npy" else content)
    with pytest.raises(DataError, match="is damaged or cut off"):
        list(READER.read(tmp_path / "cut.npz"))


def test_a_missing_array_is_named(tmp_path: Path) -> None:
    np.savez(tmp_path / "rows.npz", x=arrays()["x"])
    with pytest.raises(DataError, match=r"array 'y': expected one; the file has x"):
        list(READER.read(tmp_path / "rows.npz"))
