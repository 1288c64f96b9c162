"""Files as hospitals have them: tables, workbooks, pictures and scans, sixty and more.

Each is read right, value for value, or refused in one line that says what to set. A table's public
sample becomes a run by `tacit new`, and private rows are read by it.
"""

from __future__ import annotations

import datetime
import gzip
import os
import random
import shutil
from collections.abc import Callable, Sized
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from PIL import Image
from tacit_services.cli.main import main

from tacit import config
from tacit.config.own_column import ColumnSection
from tacit.config.own_table import TableData
from tacit.datasets.own.images import ImagesReader
from tacit.datasets.own.own_rows import OwnRows
from tacit.datasets.own.scans import GreyWindow
from tacit.errors import DataError, OwnersError
from tests.helpers.real_files import PROGRAMS, dicom, nifti, parquet_of, workbook, written_by

Rows = list[list[Any]]
HEAD = ["age", "bmi", "town", "outcome"]


def people(count: int, seed: int, towns: tuple[str, ...] = ("Bern", "Köln", "Lyon")) -> Rows:
    chance = random.Random(seed)
    return [
        [
            chance.randint(20, 90),
            round(chance.uniform(16, 42), 2),
            chance.choice(towns),
            chance.choice(["ill", "well"]),
        ]
        for _ in range(count)
    ]


SAMPLE, PRIVATE = people(300, 1), people(400, 2)


def text(rows: Rows, separator: str = ",", decimal: str = ".", head: list[str] = HEAD) -> str:
    lines = [separator.join(head)] if head else []
    for row in rows:
        cells = [
            str(cell).replace(".", decimal) if isinstance(cell, float) else str(cell)
            for cell in row
        ]
        lines.append(separator.join(f'"{cell}"' if separator in cell else cell for cell in cells))
    return "\n".join(lines) + "\n"


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "home"))


def new(sample: bytes, *options: str, name: str = "public.csv") -> int:
    """Write a run on the sample and return the exit code of `tacit new`."""
    Path(name).write_bytes(sample)
    with pytest.raises(SystemExit) as ended:
        main(["new", "c", "--table", name, *options])
    return int(ended.value.code or 0)


def source(private: bytes, name: str = "train.csv") -> OwnRows:
    """Return the private rows as the run in c/ reads them."""
    (Path("c") / name).write_bytes(private)
    run = config.load(Path("c/run.toml"))
    assert isinstance(run.source, OwnRows)
    return run.source


def columns() -> dict[str, ColumnSection]:
    data = config.load(Path("c/run.toml")).data
    assert isinstance(data, TableData)
    return data.columns


def read(rows: OwnRows) -> tuple[np.ndarray, np.ndarray]:
    parts = list(rows.reader.read(rows.path(0)))
    return np.concatenate([part.x for part in parts]), np.concatenate([part.y for part in parts])


def expected(rows: Rows) -> tuple[np.ndarray, np.ndarray]:
    """Return what the run of `columns` makes of these rows, computed cell by cell."""
    sections = columns()
    x = []
    for row in rows:
        places: list[float] = []
        for name, cell in zip(HEAD[:3], row[:3], strict=True):
            section = sections[name]
            if section.values is not None:
                places += [float(cell == value) for value in section.values]
                places.append(float(cell not in section.values))
            else:
                assert section.low is not None
                assert section.high is not None
                assert section.center is not None
                assert section.scale is not None
                cut = min(max(float(cell), section.low), section.high)
                places.append((cut - section.center) / section.scale)
        x.append(places)
    values = sections["outcome"].values
    assert values is not None
    return np.array(x, np.float32), np.array([values.index(row[3]) for row in rows])


def assert_read(sample: bytes, private: bytes, *options: str) -> None:
    assert new(sample, *options) == 0
    rows = source(private)
    x, y = read(rows)
    wanted_x, wanted_y = expected(PRIVATE)
    assert x == pytest.approx(wanted_x, abs=1e-6)
    assert y.tolist() == wanted_y.tolist()
    assert rows.remarks() == []


def both(write: Callable[[Rows], bytes]) -> tuple[bytes, bytes]:
    return write(SAMPLE), write(PRIVATE)


FORMS: dict[str, Callable[[Rows], bytes]] = {
    "plain": lambda rows: text(rows).encode(),
    "semicolon": lambda rows: text(rows, ";").encode(),
    "tab": lambda rows: text(rows, "\t").encode(),
    "bar": lambda rows: text(rows, "|").encode(),
    "decimal comma": lambda rows: text(rows, ";", ",").encode(),
    "decimal comma, quoted": lambda rows: text(rows, ",", ",").encode(),
    "decimal comma, tab": lambda rows: text(rows, "\t", ",").encode(),
    "latin-1": lambda rows: text(rows, ";", ",").encode("latin-1"),
    "utf-8 mark": lambda rows: text(rows).encode("utf-8-sig"),
    "utf-16": lambda rows: text(rows).encode("utf-16"),
    "utf-16, tab": lambda rows: text(rows, "\t", ",").encode("utf-16"),
    "utf-16 without a mark": lambda rows: text(rows).encode("utf-16-le"),
    "windows": lambda rows: text(rows).replace("\n", "\r\n").encode(),
    "old mac": lambda rows: text(rows).replace("\n", "\r").encode(),
    "no last line end": lambda rows: text(rows).rstrip("\n").encode(),
    "comment": lambda rows: b"# exported 2026\n# by lab\n" + text(rows).encode(),
    "empty lines": lambda rows: b"\n\n" + text(rows).encode() + b"\n\n",
    "sep=": lambda rows: b"sep=;\n" + text(rows, ";", ",").encode(),
    "separator at the end": lambda rows: text(rows).replace("\n", ",\n").encode(),
    "separator at the end of rows": lambda rows: text(rows).replace("\n", ",\n").replace("outcome,", "outcome").encode(),
    "separator at the end of the header": lambda rows: text(rows).replace("outcome\n", "outcome,\n").encode(),
    "blanks": lambda rows: text(rows).replace(",", " , ").encode(),
    "quotes": lambda rows: "\n".join(",".join(f'"{cell}"' for cell in line.split(",")) for line in text(rows).splitlines()).encode() + b"\n",
    "more columns": lambda rows: text([[*row, f"note, {number}\nof two lines"] for number, row in enumerate(rows)], head=[*HEAD, "note"]).replace(",note, ", ',"note, ').replace("lines\n", 'lines"\n').replace('""', '"').encode(),
    "row numbers": lambda rows: text([[number, *row] for number, row in enumerate(rows)], head=["", *HEAD]).encode(),
    "named row numbers": lambda rows: text([[number, *row] for number, row in enumerate(rows)], head=["nr", *HEAD]).encode(),
}  # fmt: skip


def table_is_read(form: str) -> None:
    assert_read(*both(FORMS[form]), "--target", "outcome")


@pytest.mark.parametrize(
    "private", ["semicolon", "tab", "bar", "utf-16", "comment", "quotes", "blanks"]
)
def test_private_rows_may_have_another_separator_than_the_sample(private: str) -> None:
    assert_read(FORMS["plain"](SAMPLE), FORMS[private](PRIVATE))


def test_a_table_without_a_header_has_numbered_columns(capsys: pytest.CaptureFixture[str]) -> None:
    sample = text(SAMPLE, head=[]).encode()
    assert new(sample) == 0
    assert "its first line looks like a row" in capsys.readouterr().out
    assert list(columns_of(sample)) == ["1", "2", "3", "4"]
    x, y = read(source(text(PRIVATE, head=[]).encode()))
    assert len(x) == len(y) == len(PRIVATE)


def columns_of(private: bytes) -> dict[str, ColumnSection]:
    """Return the columns of the run in c/, whose private file has to be there."""
    source(private)
    return columns()


REFUSED: dict[str, tuple[Callable[[Rows], bytes], str]] = {
    "decimal comma": (lambda rows: text(rows, ";", ",").encode(), 'data.decimal = ","'),
    "latin-1": (lambda rows: text(rows).encode("latin-1"), "state data.encoding"),
    "utf-16 without a mark": (lambda rows: text(rows).encode("utf-16-le"), "state data.encoding"),
    "no header": (lambda rows: text(rows, head=[]).encode(), "data.header = false"),
    "zip": (lambda rows: b"PK\x03\x04" + text(rows).encode(), "is no whole Excel workbook"),
    "ragged": (lambda rows: text(rows).encode() + b"1,2\n", "another number of columns"),
    "open quote": (lambda rows: text(rows).encode() + b'1,2,"B,ill\n', "is not a whole table"),
    "empty": (lambda rows: b"", "is empty"),
    "words among numbers": (lambda rows: text([*rows, ["aged", 20, "Bern", "ill"]]).encode(), "missing_codes"),
    "a date among numbers": (lambda rows: text([*rows, ["2020-01-01", 20, "Bern", "ill"]]).encode(), 'date = "%Y-%m-%d"'),
    "thousands": (lambda rows: text([*rows, ['"1,234,567"', 20, "Bern", "ill"]]).encode().replace(b'""', b'"').replace(b'""', b'"'), 'data.thousands = ","'),
    "no value": (lambda rows: text([*rows, ["", 20, "Bern", "ill"]]).encode(), "say what one is taken for"),
    "another target": (lambda rows: text([*rows, [20, 20, "Bern", "dead"]]).encode(), "a value outside its values"),
    "zeros": (lambda rows: b"\0" * 4000, "is not UTF-8"),
    "damaged parquet": (lambda rows: b"PAR1" + text(rows).encode(), "Parquet table: it is damaged"),
}  # fmt: skip


def refused_line(private: bytes) -> str:
    """Return what is said of private rows that the run in c/ does not read, to their owner."""
    with pytest.raises(DataError) as refused:
        read(source(private))
    words = str(getattr(refused.value, "for_owner", refused.value))
    assert "\n" not in words
    assert not {"aged", "dead", "1,234,567"} & set(words.split())
    return words


def table_is_refused(case: str) -> None:
    write, message = REFUSED[case]
    assert new(FORMS["plain"](SAMPLE)) == 0
    assert message in refused_line(write(PRIVATE))


# -- tables of types -----------------------------------------------------------------------------

TYPED_HEAD = ["age", "bmi", "town", "seen", "smoker", "outcome"]


def typed(count: int, seed: int) -> Rows:
    """Return people with a date and a yes or no, and some values that are missing."""
    chance = random.Random(seed)
    first = datetime.date(2015, 1, 1)
    rows = []
    for age, bmi, town, outcome in people(count, seed):
        seen = first + datetime.timedelta(chance.randrange(3000))
        row = [age, bmi, town, seen, chance.random() < 0.5, outcome]
        for place in (1, 2, 3):
            if chance.random() < 0.04:
                row[place] = None
        rows.append(row)
    return rows


def as_csv(rows: Rows) -> bytes:
    cells = [["" if cell is None else cell for cell in row] for row in rows]
    return text(cells, head=TYPED_HEAD).encode()


def as_columns(rows: Rows) -> dict[str, list[Any]]:
    return dict(zip(TYPED_HEAD, map(list, zip(*rows, strict=True)), strict=True))


def as_workbook(rows: Rows, *, words: bool = False, sheets: int = 1) -> bytes:
    cells = [[str(cell) if words and cell is not None else cell for cell in row] for row in rows]
    book = {f"sheet {number}": [TYPED_HEAD, *cells] for number in range(sheets)}
    return workbook(Path("book.xlsx"), book).read_bytes()


TYPED_SAMPLE, TYPED_PRIVATE = typed(300, 3), typed(400, 4)


def is_as_its_csv(name: str, sample: bytes, private: bytes) -> None:
    """Check that a file is read as its CSV is, by a run made from it, and from the CSV."""
    csv = as_csv(TYPED_PRIVATE)
    for public, file in ((sample, name), (as_csv(TYPED_SAMPLE), "public.csv")):
        shutil.rmtree("c", ignore_errors=True)
        assert new(public, "--target", "outcome", name=file) == 0
        x, y = read(source(private, Path(file).with_stem("train").name))
        assert set(columns()) == set(TYPED_HEAD)
        wanted_x, wanted_y = read(source(csv, Path(file).with_stem("train").name))
        assert x == pytest.approx(wanted_x, abs=1e-5)
        assert y.tolist() == wanted_y.tolist()
        assert len(y) == len(TYPED_PRIVATE)


def parquet_is_as_its_csv(program: str) -> None:
    sample = written_by(program, as_columns(TYPED_SAMPLE))
    private = written_by(program, as_columns(TYPED_PRIVATE))
    is_as_its_csv("public.parquet", sample, private)


def workbook_is_as_its_csv(*, words: bool) -> None:
    sample, private = (as_workbook(rows, words=words) for rows in (TYPED_SAMPLE, TYPED_PRIVATE))
    is_as_its_csv("public.xlsx", sample, private)


def lists(rows: Rows) -> bytes:
    return parquet_of(
        as_columns(rows), {"age": lambda ages: pa.array([[age.as_py()] for age in ages])}
    )


REFUSED_TYPED: dict[str, tuple[Callable[[Rows], bytes], str]] = {
    "parquet, cut off": (lambda rows: parquet_of(as_columns(rows), {})[:-400], "it is damaged, or cut off"),
    "parquet of lists": (lists, "expected one value a row"),
    "parquet with words for numbers": (lambda rows: parquet_of(as_columns(rows), {"bmi": lambda bmi: pa.array(["thin"] * len(bmi))}), "missing_codes"),
    "parquet with days for numbers": (lambda rows: parquet_of(as_columns(rows), {"bmi": lambda bmi: pa.array([datetime.date(2020, 1, 1)] * len(bmi))}), "a date needs date ="),
    "workbook of two sheets": (lambda rows: as_workbook(rows, sheets=2), "data.sheet"),
    "workbook, cut off": (lambda rows: as_workbook(rows)[:2000], "is no whole Excel workbook"),
    "old workbook": (lambda rows: b"\xd0\xcf\x11\xe0" + bytes(600), "save it as .xlsx"),
    "gzip of a csv": (lambda rows: gzip.compress(as_csv(rows)), "is a gzip"),
    "one array": (lambda rows: b"\x93NUMPY" + bytes(600), "is one array"),
}  # fmt: skip


def typed_is_refused(case: str) -> None:
    write, message = REFUSED_TYPED[case]
    assert new(as_csv(TYPED_SAMPLE), "--target", "outcome") == 0
    assert message in refused_line(write(TYPED_PRIVATE))


# -- pictures and scans --------------------------------------------------------------------------

SIDE = 16
GREY = (np.add.outer(np.arange(SIDE), np.arange(SIDE)[::-1] * 3) * 3 + 20).astype(np.uint8)
VALUES = GREY.astype(np.int16) - 20  # of a scan
DEEP = GREY.astype(np.uint16) * 257


def drawn(values: np.ndarray, name: str, mode: str = "", **options: Any) -> bytes:
    """Return the bytes of a picture called `name`."""
    image = Image.fromarray(values)
    (image.convert(mode) if mode else image).save(name, **options)
    return Path(name).read_bytes()


def palette(name: str) -> bytes:
    image = Image.fromarray(GREY, "P")
    image.putpalette([255 - level // 3 for level in range(768)])
    image.save(name)
    return Path(name).read_bytes()


def turned(name: str) -> bytes:
    exif = Image.Exif()
    exif[0x0112] = 6  # a quarter of a turn, to be undone
    return drawn(np.rot90(GREY), name, exif=exif)


def scan_of(name: str, **tags: Any) -> bytes:
    return dicom(Path(name), VALUES, **tags).read_bytes()


def volume(name: str) -> bytes:
    return nifti(Path(name), VALUES[::-1].T[:, :, None].astype(np.float32)).read_bytes()


SHOWN = GREY / 255
WINDOWED = (GREY - 20.0) / 256  # of a window of 0 to 256
PICTURES: dict[str, tuple[str, Callable[[str], bytes], np.ndarray]] = {
    "png": ("a.png", lambda name: drawn(GREY, name), SHOWN),
    "png of 16 bits": ("a.png", lambda name: drawn(DEEP, name), SHOWN),
    "png with a palette": ("a.png", palette, 1 - SHOWN),
    "png with alpha": ("a.png", lambda name: drawn(GREY, name, "LA"), SHOWN),
    "png of one bit": ("a.png", lambda name: drawn(GREY > 90, name), (GREY > 90) * 1.0),
    "coloured png": ("a.png", lambda name: drawn(GREY, name, "RGBA"), SHOWN),
    "jpeg": ("a.jpg", lambda name: drawn(GREY, name, quality=100), SHOWN),
    "jpeg of four inks": ("a.jpg", lambda name: drawn(GREY, name, "CMYK", quality=100), SHOWN),
    "jpeg, turned": ("a.jpeg", turned, SHOWN),
    "png, turned": ("a.png", turned, SHOWN),
    "gif": ("a.gif", lambda name: drawn(GREY, name), SHOWN),
    "bmp": ("a.bmp", lambda name: drawn(GREY, name), SHOWN),
    "tiff of 16 bits": ("a.tif", lambda name: drawn(DEEP, name), SHOWN),
    "packed tiff": ("a.tiff", lambda name: drawn(GREY, name, compression="tiff_lzw"), SHOWN),
    "webp": ("a.webp", lambda name: drawn(GREY, name, "RGB", lossless=True), SHOWN),
    "pgm": ("a.pgm", lambda name: drawn(GREY, name), SHOWN),
    "dicom": ("a.dcm", scan_of, WINDOWED),
    "dicom, white to black": ("a.dcm", lambda name: scan_of(name, PhotometricInterpretation="MONOCHROME1"), 1 - WINDOWED),
    "dicom with a slope": ("a.dcm", lambda name: scan_of(name, RescaleSlope=0.5, RescaleIntercept=8), (VALUES / 2 + 8) / 256),
    "nifti": ("a.nii", volume, WINDOWED),
    "packed nifti": ("a.nii.gz", volume, WINDOWED),
}  # fmt: skip
NO_PICTURE = "is not a whole picture"
REFUSED_PICTURES: dict[str, tuple[str, Callable[[str], bytes], str]] = {
    "png, cut off": ("a.png", lambda name: drawn(GREY, name)[:50], NO_PICTURE),
    "jpeg, cut off": ("a.jpg", lambda name: drawn(GREY, name)[:200], NO_PICTURE),
    "text called png": ("a.png", lambda name: b"hello", NO_PICTURE),
    "empty png": ("a.png", lambda name: b"", NO_PICTURE),
    "tiff of floats": ("a.tif", lambda name: drawn(GREY.astype(np.float32), name), "save it in 8 or 16 bits"),
    "large png": ("a.png", lambda name: drawn(np.zeros((400, 400), np.uint8), name), "data.pixels_max"),
    "dicom, cut off": ("a.dcm", lambda name: scan_of(name)[:-200], "a DICOM is damaged"),
    "nifti, cut off": ("a.nii", lambda name: volume(name)[:-200], "less than its header says"),
    "nifti without such a plane": ("b.nii", volume, "a scan has no plane"),
    "dicom without a window": ("b.dcm", scan_of, "data.window"),
}  # fmt: skip


def reader_of(window: GreyWindow | None) -> ImagesReader:
    return ImagesReader((SIDE, SIDE), 1, ("a", "b"), "path", "label", None, 100_000, window)


def picture_is_read(case: str) -> None:
    name, draw, wanted = PICTURES[case]
    Path(name).write_bytes(draw(name))
    [[[x]]] = reader_of(GreyWindow(128, 256)).inputs(Path(name))
    assert x == pytest.approx(wanted, abs=0.02 if "jp" in name else 0.005)


def picture_is_refused(case: str) -> None:
    name, draw, message = REFUSED_PICTURES[case]
    Path(name).write_bytes(draw(name))
    windows = {"b.dcm": None, "b.nii": GreyWindow(128, 256, 7)}
    with pytest.raises(DataError) as refused:
        list(reader_of(windows.get(name, GreyWindow(128, 256))).inputs(Path(name)))
    assert message in str(refused.value)
    assert "\n" not in str(refused.value)


# -- all of them ---------------------------------------------------------------------------------

FILES: dict[str, Callable[[], None]] = {
    **{f"csv, {form}": partial(table_is_read, form) for form in FORMS},
    **{f"refused: {case}": partial(table_is_refused, case) for case in REFUSED},
    **{f"parquet, {program}": partial(parquet_is_as_its_csv, program) for program in PROGRAMS},
    "workbook": partial(workbook_is_as_its_csv, words=False),
    "workbook of words": partial(workbook_is_as_its_csv, words=True),
    **{f"refused: {case}": partial(typed_is_refused, case) for case in REFUSED_TYPED},
    **{case: partial(picture_is_read, case) for case in PICTURES},
    **{f"refused: {case}": partial(picture_is_refused, case) for case in REFUSED_PICTURES},
}
NEEDS = {"workbook": "openpyxl", "dicom": "pydicom", "nifti": "nibabel"}


@pytest.mark.parametrize("name", FILES)
def test_a_file_is_read_value_by_value_or_refused_in_one_line(name: str) -> None:
    for word, library in NEEDS.items():
        if word in name and not os.environ.get("CI"):
            pytest.importorskip(library)
    FILES[name]()


def test_there_are_sixty_files_and_more() -> None:
    assert len(FILES) >= 60
    groups: tuple[Sized, ...] = (
        FORMS,
        REFUSED,
        PROGRAMS,
        REFUSED_TYPED,
        PICTURES,
        REFUSED_PICTURES,
    )
    assert len(FILES) == sum(map(len, groups)) + 2  # and two workbooks


# -- the form of tables --------------------------------------------------------------------------


def test_every_column_that_misfits_is_named_at_once() -> None:
    assert new(FORMS["plain"](SAMPLE)) == 0
    rows = [
        *PRIVATE,
        *PRIVATE,
        ["", 20, "Bern", "ill"],
        *PRIVATE,
        [20, 20, "", "ill"],
        [20, "thin", "Bern", ""],
    ]
    with pytest.raises(OwnersError) as refused:
        read(source(text(rows).encode()))
    for where in (
        "'age' (number): a missing value, in row 801",
        "'town' (category)",
        "'bmi': expected",
        "'outcome' (category)",
    ):
        assert where in refused.value.for_owner


def test_rows_that_misfit_are_left_out_where_the_run_file_says_so() -> None:
    assert new(FORMS["plain"](SAMPLE)) == 0
    file = Path("c/run.toml")
    file.write_text(
        file.read_text().replace("[data.columns]", 'bad_rows = "leave out"\n[data.columns]')
    )
    rows = source(
        text(
            [["old", 20, "Bern", "ill"], *PRIVATE, [20, 20, "", "ill"], [20, 20, "Bern", "dead"]]
        ).encode()
    )
    x, y = read(rows)
    wanted_x, wanted_y = expected(PRIVATE)
    assert x == pytest.approx(wanted_x, abs=1e-6)
    assert y.tolist() == wanted_y.tolist()
    assert sum(len(part.rows) for part in rows.reader.marks(rows.path(0))) == len(PRIVATE)
