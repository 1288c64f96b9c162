"""What every kind of own data promises: the same ten grey pictures, six ways, by the same tests."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tacit.datasets.own.array_values import Array, Bounds, Values
from tacit.datasets.own.arrays import ArraysReader
from tacit.datasets.own.dealing import edges_of
from tacit.datasets.own.images import ImagesReader
from tacit.datasets.own.own_rows import OwnRows
from tacit.datasets.own.rows import EncodedRows, Reader
from tacit.datasets.own.rows_file import Dealt, UnitRows, rows_of
from tacit.datasets.own.schema import Category, Number, TableSchema
from tacit.datasets.own.table import TableReader
from tacit.datasets.own.torch_dataset import DatasetReader
from tacit.errors import ConfigError, DataError

COUNT, SIDE = 10, 2
NAMES = ("cat", "dog")
VALUES = Values((1, SIDE, SIDE), Bounds(0.0, 255.0), 2)
CODE = """
import numpy as np


class Rows:
    def __init__(self, path, unit):
        self.content = np.load(path)
        self.unit = unit

    def __len__(self):
        return len(self.content["x"])

    def __getitem__(self, row):
        found = self.content["x"][row], self.content["y"][row]
        return (*found, self.content["who"][row]) if self.unit else found
"""


def pictures() -> dict[str, Array]:
    """Return x (uint8), y, and who: two pictures of each."""
    chance = np.random.default_rng(3)
    x = chance.integers(0, 256, (COUNT, 1, SIDE, SIDE)).astype(np.uint8)
    who = np.array([f"p{number // 2}" for number in range(COUNT)])
    return {"x": x, "y": np.arange(COUNT) % 2, "who": who}


Made = tuple[Path, Reader]


def csv(folder: Path, content: dict[str, Array], unit: bool) -> Made:
    names = [f"pixel{place}" for place in range(SIDE * SIDE)]
    rows = [
        ",".join([*map(str, x.ravel().tolist()), NAMES[y], who])
        for x, y, who in zip(*content.values(), strict=True)
    ]
    path = folder / "train.csv"
    path.write_text("\n".join([",".join([*names, "what", "who"]), *rows]) + "\n", encoding="utf-8")
    columns = tuple(Number(name, 0.0, 255.0) for name in names)
    return path, TableReader(TableSchema(columns, Category("what", NAMES), "who" if unit else None))


def npz(folder: Path, content: dict[str, Array], unit: bool) -> Made:
    np.savez(folder / "train.npz", **content)  # type: ignore[arg-type]
    return folder / "train.npz", ArraysReader("x", "y", "who" if unit else None, VALUES)


def python(folder: Path, content: dict[str, Array], unit: bool) -> Made:
    (folder / "rows.py").write_text(CODE, encoding="utf-8")
    path, _ = npz(folder, content, unit)
    reader = DatasetReader("rows:Rows", {"unit": unit}, "who" if unit else None, VALUES, folder)
    return path, reader


def png_table(folder: Path, content: dict[str, Array], unit: bool) -> Made:
    lines = ["path,label,who"]
    for row, (x, y, who) in enumerate(zip(*content.values(), strict=True)):
        Image.fromarray(x[0]).save(folder / f"{row}.png")
        lines.append(f"{row}.png,{NAMES[y]},{who}")
    (folder / "train.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    column = "who" if unit else None
    return folder / "train.csv", ImagesReader((SIDE, SIDE), 1, NAMES, "path", "label", column)


def png_folder(folder: Path, content: dict[str, Array], unit: bool) -> Made:
    for row, (x, y, _) in enumerate(zip(*content.values(), strict=True)):
        (folder / "train" / NAMES[y]).mkdir(parents=True, exist_ok=True)
        Image.fromarray(x[0]).save(folder / "train" / NAMES[y] / f"{row}.png")
    return folder / "train", ImagesReader((SIDE, SIDE), 1, NAMES, "path", "label", None)


KINDS = [csv, npz, python, png_table, png_folder]
WITH_UNITS = KINDS[:-1]
Kind = Callable[[Path, dict[str, Array], bool], Made]


def fresh(folder: Path) -> Path:
    folder.mkdir()
    return folder


def together(source: Made) -> EncodedRows:
    path, reader = source
    parts = list(reader.read(path))
    return EncodedRows(
        np.concatenate([part.x.reshape(len(part.y), -1) for part in parts]),
        np.concatenate([part.y for part in parts]),
        np.concatenate([part.units for part in parts]),
    )


@pytest.mark.parametrize("kind", KINDS)
def test_all_kinds_make_the_same_rows(tmp_path: Path, kind: Kind) -> None:
    rows, content = together(kind(tmp_path, pictures(), False)), pictures()
    expected = content["x"].reshape(COUNT, -1).astype(np.float64) / 255
    order = np.argsort(content["y"], kind="stable") if kind is png_folder else np.arange(COUNT)
    assert np.allclose(rows.x, expected[order])
    assert np.array_equal(rows.y, content["y"][order])


@pytest.mark.parametrize("kind", WITH_UNITS)
def test_a_unit_is_the_same_one_in_every_kind(tmp_path: Path, kind: Kind) -> None:
    rows = together(kind(tmp_path, pictures(), True))
    assert np.array_equal(rows.units, together(csv(fresh(tmp_path / "x"), pictures(), True)).units)
    assert len(set(rows.units.tolist())) == COUNT // 2


@pytest.mark.parametrize("kind", KINDS)
def test_one_row_more_moves_no_other_and_changes_no_bit_of_it(tmp_path: Path, kind: Kind) -> None:
    less = {key: value[1:] for key, value in pictures().items()}
    fewer = together(kind(fresh(tmp_path / "less"), less, False))
    more = together(kind(fresh(tmp_path / "more"), pictures(), False))
    rows = {unit.tobytes(): x.tobytes() for unit, x in zip(more.units, more.x, strict=True)}
    assert len(rows) == len(fewer.units) + 1
    for unit, x in zip(fewer.units, fewer.x, strict=True):
        assert rows[unit.tobytes()] == x.tobytes()
    everyone = edges_of(more.units, seed=1, edges=3)
    place = {unit.tobytes(): int(edge) for unit, edge in zip(more.units, everyone, strict=True)}
    assert [place[unit.tobytes()] for unit in fewer.units] == edges_of(
        fewer.units, seed=1, edges=3
    ).tolist()


@pytest.mark.parametrize("kind", KINDS)
def test_the_edges_have_all_rows_and_none_twice(tmp_path: Path, kind: Kind) -> None:
    path, reader = kind(tmp_path, pictures(), False)
    contents: list[bytes] = []
    for edge in range(2):
        dealt = Dealt(edge, 2, seed=5)
        rows = rows_of(path, reader, tmp_path / "kept" / str(edge), dealt)
        contents += [row.tobytes() for row in rows.x.numpy()[: rows.records]]
    assert sorted(contents) == sorted(
        x.tobytes() for part in reader.read(path) for x in np.ascontiguousarray(part.x)
    )


@pytest.mark.parametrize("kind", KINDS)
def test_more_rows_than_the_public_number_are_refused(tmp_path: Path, kind: Kind) -> None:
    path, reader = kind(tmp_path, pictures(), False)
    with pytest.raises(DataError, match=r"more rows than data\.rows_max=9"):
        rows_of(path, reader, tmp_path / "kept", most=COUNT - 1)
    assert rows_of(path, reader, tmp_path / "kept", most=COUNT).records == COUNT


@pytest.mark.parametrize("kind", KINDS)
def test_rows_are_kept_until_what_they_come_from_changes(tmp_path: Path, kind: Kind) -> None:
    folder = fresh(tmp_path / "data")
    path, reader = kind(folder, pictures(), False)
    rows_of(path, reader, tmp_path / "kept")
    before = (tmp_path / "kept" / "x.f32").stat().st_ino
    rows_of(path, reader, tmp_path / "kept")
    assert (tmp_path / "kept" / "x.f32").stat().st_ino == before
    changed = pictures()
    changed["x"][3] ^= 255
    path, reader = kind(folder, changed, False)
    again = rows_of(path, reader, tmp_path / "kept")
    pixels = np.sort(again.x.numpy()[:COUNT].reshape(COUNT, -1), axis=0)
    expected = np.sort(changed["x"].reshape(COUNT, -1) / 255, axis=0)
    assert np.allclose(pixels, expected)


@pytest.mark.parametrize("kind", KINDS)
def test_a_ledger_is_found_by_what_is_read(tmp_path: Path, kind: Kind) -> None:
    path, reader = kind(fresh(tmp_path / "a"), pictures(), False)
    elsewhere, other = kind(fresh(tmp_path / "b"), pictures(), False)
    assert reader.content(path) == other.content(elsewhere)
    changed = pictures()
    changed["x"][3] ^= 1
    elsewhere, other = kind(fresh(tmp_path / "c"), changed, False)
    assert reader.content(path) != other.content(elsewhere)


@pytest.mark.parametrize("kind", KINDS)
def test_the_training_data_is_no_test_set(tmp_path: Path, kind: Kind) -> None:
    path, reader = kind(tmp_path, pictures(), False)
    of_unit = UnitRows(1, True)
    rows = OwnRows(None, tmp_path, path.name, path.name, reader, COUNT, of_unit, edges=2, seed=1)
    with pytest.raises(ConfigError, match="is the training file"):
        rows.check(None)
    replace(rows, examples=None).check(None)  # the control


@pytest.mark.parametrize("kind", KINDS)
def test_inputs_are_x_without_target_and_unit(tmp_path: Path, kind: Kind) -> None:
    path, reader = kind(tmp_path, pictures(), False)
    inputs = np.concatenate(list(reader.inputs(path)))
    assert np.array_equal(inputs.reshape(COUNT, -1), together((path, reader)).x)


@pytest.mark.parametrize("kind", KINDS)
def test_a_class_that_is_not_among_them_is_refused_without_saying_it(
    tmp_path: Path, kind: Kind, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tests.unit.datasets.test_own_kinds.NAMES", ("cat", "zebra"))
    content = pictures()
    path, reader = kind(tmp_path, content, False)
    if isinstance(reader, TableReader):
        reader = TableReader(replace(reader.schema, target=Category("what", ("cat", "dog"))))
    elif isinstance(reader, ImagesReader):
        reader = replace(reader, names=("cat", "dog"))
    else:
        reader = replace(reader, values=replace(VALUES, goal=1))  # type: ignore[type-var]
    with pytest.raises(DataError) as refused:
        list(reader.read(path))
    assert "zebra" not in str(refused.value)
