"""Files whose author would have memory, time or a traceback: refused in a line, by public bounds."""

from __future__ import annotations

import io
import random
import resource
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import csv, parquet
from safetensors.numpy import save_file

from tacit.datasets.own import table_file
from tacit.datasets.own.array_values import Bounds, Values
from tacit.datasets.own.arrays import ArraysReader
from tacit.datasets.own.parquet_pages import PagesError, unpacked
from tacit.datasets.own.schema import Category, Number, TableSchema
from tacit.datasets.own.table import TableReader
from tacit.errors import DataError
from tests.helpers import parquet_bytes
from tests.helpers.nightly import nightly

SCHEMA = TableSchema((Number("age", 0, 100), Category("sex", ("f", "m"))), Number("days", 0, 9))
ARRAYS = ArraysReader("x", "y", "who", Values((2,), Bounds(0.0, 1.0), 2))
VALUES = 200_000_000  # of eight bytes, in one page
LITTLE = parquet_bytes.page(1, 1, 1) + b"?"
MEMORY = 700_000_000  # bytes of address space beside what the imports take

# Reads a table or arrays as a run does, in a process that cannot have more memory.
CHILD = """
import resource, sys
from pathlib import Path
from tacit.errors import DataError
from tests.unit.datasets.test_hostile_files import ARRAYS, MEMORY, SCHEMA, TableReader
taken = int(Path('/proc/self/statm').read_text().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (taken + MEMORY, resource.RLIM_INFINITY))
path = Path(sys.argv[1])
reader = ARRAYS if path.suffix in ('.npz', '.safetensors') else TableReader(SCHEMA)
try:
    print(sum(len(x) for x in reader.inputs(path)), 'rows')
except DataError as error:
    print(error)
"""


def bounded(path: Path) -> str:
    """Return what a process with bounded memory prints about the file."""
    process = subprocess.run(
        [sys.executable, "-c", CHILD, str(path)],
        capture_output=True,
        text=True,
        check=False,
        cwd=Path(__file__).parents[3],
    )
    assert (process.returncode, process.stderr) == (0, ""), process
    return process.stdout.strip()


def long_texts(path: Path) -> None:
    """Write 30 rows that name one text of 100 MB: gigabytes in a file of kilobytes."""
    text = pa.array(["a" * 100_000_000])
    texts = pa.DictionaryArray.from_arrays(pa.array([0] * 30, pa.int32()), text)
    table = pa.table({"age": [1.0] * 30, "sex": texts})
    parquet.write_table(table, path, compression="zstd", store_schema=False)


def long_texts_of_arrow(path: Path) -> None:
    """Write 3,000 rows that name a text of 1 MB, in a dictionary marked as arrow's."""
    text = pa.array(["a" * 1_000_000])
    texts = pa.DictionaryArray.from_arrays(pa.array([0] * 3_000, pa.int32()), text)
    parquet.write_table(pa.table({"age": [1.0] * 3_000, "sex": texts}), path, compression="zstd")


def one_page(path: Path) -> None:
    """Write numbers in one page of 320 MB, which takes some kilobytes."""
    zeros = pa.array(np.zeros(40_000_000))
    table = pa.table({"age": zeros, "sex": pa.nulls(40_000_000, pa.string())})
    parquet.write_table(
        table,
        path,
        compression="zstd",
        use_dictionary=False,
        data_page_size=1 << 40,
        row_group_size=1 << 30,
        write_batch_size=1 << 30,
        max_rows_per_page=1 << 30,
    )


def size_twice(path: Path) -> None:
    """Write a page that states 1.6 GB, and then ten bytes in a type that arrow passes over."""
    content = bytes(8 * VALUES)
    packed = pa.compress(content, codec="zstd", asbytes=True)
    body = parquet_bytes.page(len(content), len(packed), VALUES, parquet_bytes.long_field(2, 10))
    path.write_bytes(parquet_bytes.table({"age": body + packed, "sex": LITTLE}, VALUES))


def shared_pages(path: Path) -> None:
    """Write 2,000 row groups of the same 20,000 pages, which take a quarter of an hour to read."""
    body = (parquet_bytes.page(1, 1, 0) + b"?") * 20_000
    path.write_bytes(parquet_bytes.table({"age": body, "sex": LITTLE}, 1, groups=2_000))


def many_columns(path: Path) -> None:
    """Write 200,000 columns, of which the reader needs two."""
    names = ["age", "sex", *(f"c{at}" for at in range(200_000))]
    path.write_text(f"{','.join(names)}\n50,f{',1' * 200_000}\n")


def short_names(path: Path) -> None:
    """Write as many columns as fit into the longest line."""
    path.write_text(f"age,sex{',a' * 300_000}\n50,f{',1' * 300_000}\n")


def long_units(path: Path) -> None:
    """Write an array of names of 4 MB each."""
    np.savez_compressed(path, x=np.zeros((9, 2)), y=np.zeros(9), who=np.zeros(9, "<U1000000"))


def _npz(path: Path, header: bytes) -> None:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr("x.npy", b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header)


def endless_rows(path: Path) -> None:
    """Write a header that states 2⁶² rows."""
    _npz(path, b"{'descr': '<f8', 'fortran_order': False, 'shape': (4611686018427387904, 2)}\n")


DAMAGED = "is not a whole Parquet table: it is damaged, or cut off"
BOMBS: dict[str, tuple[Callable[[Path], None], str]] = {
    "long.parquet": (long_texts, "column 'sex': a text of over 1,048,576 bytes"),
    "page.parquet": (one_page, "in column 'age'; write it with smaller row groups"),
    "twice.parquet": (size_twice, DAMAGED),
    "shared.parquet": (shared_pages, DAMAGED),
    "wide.csv": (many_columns, "its first line has more than 1,048,576 bytes"),
    "short.csv": (short_names, "has 300,002 columns, and a table may have 16,384"),
    "units.npz": (long_units, "9 rows"),
    "rows.npz": (endless_rows, "fewer rows than it says"),
}


# Each is read in a process of its own; of two alike, one waits for the night.
MORE_BOMBS = ("page.parquet", "shared.parquet", "short.csv", "units.npz")


@pytest.mark.parametrize("name", [*sorted({*BOMBS} - {*MORE_BOMBS}), *nightly(*MORE_BOMBS)])
def test_a_small_file_takes_no_more_than_bounded_memory(tmp_path: Path, name: str) -> None:
    make, message = BOMBS[name]
    make(tmp_path / name)
    assert (tmp_path / name).stat().st_size < 4_000_000
    assert message in bounded(tmp_path / name)


def test_a_long_text_that_many_rows_share_is_taken_a_few_at_a_time(tmp_path: Path) -> None:
    long_texts_of_arrow(tmp_path / "texts.parquet")
    assert bounded(tmp_path / "texts.parquet") == "3000 rows"


def test_names_of_units_are_short(tmp_path: Path) -> None:
    long_units(tmp_path / "units.npz")
    with pytest.raises(DataError, match=r"'who': has cells of 4,000,000 bytes"):
        list(ARRAYS.read(tmp_path / "units.npz"))


@pytest.mark.parametrize("version", ["1.0", "2.0"])
@pytest.mark.parametrize("compression", ["none", "snappy", "zstd", "gzip"])
def test_the_pages_that_are_counted_are_those_that_are_written(
    tmp_path: Path, version: str, compression: str
) -> None:
    path, rows = tmp_path / "t.parquet", 50_000
    numbers = np.random.default_rng(1).random(rows)
    texts = [f"{number:.9f}" for number in numbers]
    parquet.write_table(
        pa.table({"n": numbers, "t": texts, "one": [1] * rows}),
        path,
        compression=compression,
        data_page_version=version,
        use_dictionary=["one"],
        row_group_size=30_000,
    )
    with path.open("rb") as file, parquet.ParquetFile(file) as table:
        for group in range(table.metadata.num_row_groups):
            for place in range(3):
                chunk = table.metadata.row_group(group).column(place)
                sizes = list(unpacked(file, chunk))
                # What the footer counts has the pages' own headers, too.
                assert 0 <= chunk.total_uncompressed_size - sum(sizes) < 200 * len(sizes)
    assert sum(batch.num_rows for batch in table_file.batches(path, ["t", "n", "one"])) == rows


@pytest.mark.parametrize(
    "body",
    [
        parquet_bytes.page(0, 0, 0) * 3,
        parquet_bytes.page(1 << 32, 1, 1) + b"?",
        parquet_bytes.page(1, 1 << 32, 1) + b"?",
        parquet_bytes.page(10, 1, 1, parquet_bytes.long_field(9, 1) * 2) + b"?",
    ],
    ids=["empty", "unpacked", "packed", "twice"],
)
def test_headers_that_no_writer_makes_are_refused(tmp_path: Path, body: bytes) -> None:
    (tmp_path / "t.parquet").write_bytes(parquet_bytes.table({"n": body}, 1))
    with (tmp_path / "t.parquet").open("rb") as file, parquet.ParquetFile(file) as table:
        chunk = table.metadata.row_group(0).column(0)
        with pytest.raises(PagesError):
            list(unpacked(file, chunk))


@pytest.mark.parametrize("version", ["1.0", "2.0"])
def test_columns_and_row_groups_without_a_value_are_read(tmp_path: Path, version: str) -> None:
    path = tmp_path / "t.parquet"
    schema = pa.schema({"n": pa.float64(), "t": pa.string()})
    with parquet.ParquetWriter(path, schema, data_page_version=version) as file:
        for rows in (0, 9, 0):
            nothing = [pa.nulls(rows, kind) for kind in schema.types]
            file.write_table(pa.Table.from_arrays(nothing, schema=schema))
    assert parquet.ParquetFile(path).metadata.num_row_groups == 3
    assert sum(batch.num_rows for batch in table_file.batches(path, ["n", "t"])) == 9


@pytest.mark.parametrize("encoding", ["DELTA_BYTE_ARRAY", "DELTA_LENGTH_BYTE_ARRAY"])
def test_texts_that_share_what_is_written_once_are_read_few_at_a_time(
    tmp_path: Path, encoding: str
) -> None:
    path, front = tmp_path / "t.parquet", "a" * 100_000
    table = pa.table({"t": [f"{front}{number}" for number in range(300)]})
    parquet.write_table(
        table, path, use_dictionary=False, column_encoding={"t": encoding}, compression="zstd"
    )
    batches = list(table_file.batches(path, ["t"]))
    assert max(batch.nbytes for batch in batches) < 2 * table_file._TEXT_BYTES
    read = [text for batch in batches for text in batch.column("t").to_pylist()]
    assert read == table.column("t").to_pylist()


def test_columns_of_lists_are_named(tmp_path: Path) -> None:
    table = pa.table({"age": [[1.0]], "sex": ["f"], "days": [1.0]})
    parquet.write_table(table, tmp_path / "t.parquet")
    with pytest.raises(DataError, match=r"column 'age': is of list<.*expected one value a row"):
        list(TableReader(SCHEMA).read(tmp_path / "t.parquet"))


def test_a_header_in_another_coding_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_bytes("Größe,sex\n1,f\n".encode("latin-1"))
    with pytest.raises(DataError, match="is not UTF-8 text"):
        list(table_file.batches(tmp_path / "t.csv", ["sex"]))


def _write_intact(kind: str, path: Path) -> None:
    table = pa.table({"age": [1.0, 2.0] * 50, "sex": ["f", "m"] * 50, "days": [1.0] * 100})
    arrays = {"x": np.zeros((9, 2)), "y": np.zeros(9), "who": np.arange(9)}
    if kind == "parquet":
        parquet.write_table(table, path)
    elif kind == "csv":
        csv.write_csv(table, path)
    elif kind == "npz":
        np.savez_compressed(path, x=arrays["x"], y=arrays["y"], who=arrays["who"])
    else:
        save_file(arrays, path)


@pytest.mark.parametrize("kind", ["parquet", "csv", "npz", "safetensors"])
def test_damaged_files_are_lines_and_no_tracebacks(tmp_path: Path, kind: str) -> None:
    chance, path = random.Random(kind), tmp_path / f"f.{kind}"
    reader = ARRAYS if kind in ("npz", "safetensors") else TableReader(SCHEMA)
    _write_intact(kind, path)
    intact, refused = path.read_bytes(), 0
    assert sum(len(rows.y) for rows in reader.read(path)) in (9, 100)
    for _ in range(250):
        content = bytearray(intact)
        for _ in range(chance.choice([1, 2, 4, 16])):
            content[chance.randrange(len(content))] = chance.randrange(256)
        path.write_bytes(content[: chance.choice([len(content)] * 3 + [len(content) // 2])])
        try:
            list(reader.read(path))
        except DataError as error:
            refused += "\n" not in str(error)
    assert refused > 20
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss < 4_000_000  # KB


def test_an_archive_that_is_locked_is_one_line(tmp_path: Path) -> None:
    content = io.BytesIO()
    np.savez(content, x=np.zeros((1, 2)))
    locked = bytearray(content.getvalue())
    for magic, flag in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):  # the bit that says so
        locked[locked.index(magic) + flag] |= 1
    (tmp_path / "f.npz").write_bytes(locked)
    with pytest.raises(DataError, match=r"is damaged or cut off: .*encrypted"):
        list(ARRAYS.inputs(tmp_path / "f.npz"))
