"""Files as hospitals have them: workbooks, scans, and tables as other programs write them."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from pyarrow import parquet


def workbook(path: Path, sheets: dict[str, list[list[Any]]]) -> Path:
    from openpyxl import Workbook

    book = Workbook()
    book.remove(book.active)
    for name, rows in sheets.items():
        sheet = book.create_sheet(name)
        for row in rows:
            sheet.append(row)
    book.save(path)
    return path


def dicom(path: Path, stored: np.ndarray, **tags: Any) -> Path:
    from pydicom.dataset import Dataset, FileMetaDataset
    from pydicom.uid import CTImageStorage, ExplicitVRLittleEndian, generate_uid

    meta = FileMetaDataset()
    meta.TransferSyntaxUID = ExplicitVRLittleEndian
    meta.MediaStorageSOPClassUID = CTImageStorage
    meta.MediaStorageSOPInstanceUID = generate_uid()
    scan = Dataset()
    scan.file_meta = meta
    scan.SOPClassUID = CTImageStorage
    scan.SOPInstanceUID = meta.MediaStorageSOPInstanceUID
    scan.Rows, scan.Columns = stored.shape[-2:]
    scan.SamplesPerPixel = 1
    scan.PhotometricInterpretation = "MONOCHROME2"
    scan.BitsAllocated = scan.BitsStored = 8 * stored.itemsize
    scan.HighBit = 8 * stored.itemsize - 1
    scan.PixelRepresentation = int(stored.dtype.kind == "i")
    if stored.ndim == 3:
        scan.NumberOfFrames = len(stored)
    scan.PixelData = stored.tobytes()
    for tag, value in tags.items():
        setattr(scan, tag, value)
    scan.save_as(path, enforce_file_format=True)
    return path


def nifti(path: Path, volume: np.ndarray, affine: np.ndarray | None = None) -> Path:
    import nibabel

    turned = np.eye(4) if affine is None else affine
    nibabel.save(nibabel.Nifti1Image(volume, turned), path)
    return path


Columns = dict[str, list[Any]]
Change = Callable[[pa.Array], pa.Array]


def parquet_of(columns: Columns, changes: dict[str, Change], **options: Any) -> bytes:
    """Return a Parquet file of these columns, each as `changes` has it written."""
    arrays = {name: pa.array(values) for name, values in columns.items()}
    arrays |= {name: change(arrays.get(name, arrays["age"])) for name, change in changes.items()}
    content = io.BytesIO()
    parquet.write_table(pa.table(arrays), content, **options)
    return content.getvalue()


def to(kind: pa.DataType) -> Change:
    """Return what casts a column to `kind`."""

    def change(values: pa.Array) -> pa.Array:
        if pa.types.is_dictionary(kind):
            return values.dictionary_encode().cast(kind)
        return values.cast(kind)

    return change


def extra(kind: pa.DataType, value: Any) -> Change:
    """Return what adds a column that nobody learns from."""
    return lambda values: pa.array([value] * len(values), kind)


def _filtered_index(values: pa.Array) -> pa.Array:
    return pa.array([7 * number + number % 3 for number in range(len(values))], pa.int64())


def _nan_for_null(values: pa.Array) -> pa.Array:
    return pa.array([float("nan") if value is None else value for value in values.to_pylist()])


_LARGE, _VIEW = pa.large_string(), pa.string_view()
_POLARS: dict[str, Change] = {"town": to(_LARGE), "outcome": to(_LARGE)}
_SPARK: dict[str, Any] = {"store_schema": False, "compression": "snappy", "version": "1.0"}
_DUCKDB: dict[str, Any] = {"store_schema": False, "compression": "zstd"}
# Parquet files as programs write them, by the physical and logical types of pandas 2, polars 1,
# Spark 3, DuckDB 1 and R's arrow: how columns are changed, and options of the file.
PROGRAMS: dict[str, tuple[dict[str, Change], dict[str, Any]]] = {
    "pandas": ({"seen": to(pa.timestamp("ns")), "__index_level_0__": _filtered_index}, {}),
    "pandas, gaps as floats": ({"age": to(pa.float64()), "bmi": _nan_for_null}, {}),
    "pandas, nullable": ({"age": to(pa.int64()), "town": to(_LARGE)}, {}),
    "pandas, categories": (
        {name: to(pa.dictionary(pa.int8(), pa.string())) for name in ("town", "outcome")},
        {},
    ),
    "pandas, a category of numbers": ({"age": lambda ages: ages.dictionary_encode()}, {}),
    "pandas, small numbers": ({"age": to(pa.int8()), "bmi": to(pa.float32())}, {}),
    "pandas, days as text": ({"seen": to(pa.string())}, {}),
    "pandas, milliseconds": ({"seen": to(pa.timestamp("ms"))}, {"compression": "gzip"}),
    "polars": (_POLARS | {"age": to(pa.uint8())}, {"compression": "zstd"}),
    "polars, text views": ({"town": to(_VIEW), "outcome": to(_VIEW)}, {}),
    "polars, categorical": ({"town": to(pa.dictionary(pa.uint32(), _LARGE))}, {}),
    "polars, decimal": (_POLARS | {"bmi": to(pa.decimal128(38, 2))}, {}),
    "polars, a time in a zone": (_POLARS | {"seen": to(pa.timestamp("us", tz="UTC"))}, {}),
    "Spark": (
        {"age": to(pa.int32()), "seen": to(pa.timestamp("us"))},
        _SPARK | {"use_deprecated_int96_timestamps": True},
    ),
    "Spark, decimal": ({"bmi": to(pa.decimal128(10, 2)), "age": to(pa.decimal128(20, 0))}, _SPARK),
    "Spark, words as bytes": ({"town": to(pa.binary()), "outcome": to(pa.binary())}, _SPARK),
    "Spark, lists beside": ({"codes": extra(pa.list_(pa.string()), ["a"])}, _SPARK),
    "DuckDB": ({"age": to(pa.uint32())}, _DUCKDB),
    "DuckDB, decimal": (
        {"bmi": to(pa.decimal128(9, 2))},
        _DUCKDB | {"store_decimal_as_integer": True},
    ),
    "DuckDB, ids beside": ({"uuid": extra(pa.binary(16), b"\x9f" * 16)}, _DUCKDB),
    "DuckDB, large whole numbers": ({"age": to(pa.float64())}, _DUCKDB),
    "R, factors": ({"town": to(pa.dictionary(pa.int32(), pa.string()))}, {"store_schema": False}),
    "row groups, second pages": (
        {},
        {"row_group_size": 97, "data_page_version": "2.0", "use_dictionary": False},
    ),
    "delta encodings": (
        {},
        {
            "use_dictionary": False,
            "column_encoding": {
                "age": "DELTA_BINARY_PACKED",
                "town": "DELTA_BYTE_ARRAY",
                "outcome": "DELTA_LENGTH_BYTE_ARRAY",
            },
        },
    ),
    "brotli": ({}, {"compression": "brotli"}),
}


def written_by(program: str, columns: Columns) -> bytes:
    """Return the columns age, bmi, town, seen, smoker and outcome as `program` writes them."""
    changes, options = PROGRAMS[program]
    return parquet_of(columns, changes, **options)
