"""Rows as programs have them, written as files that a run file can name: tables and arrays."""

from __future__ import annotations

import io
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import numpy as np

from tacit.errors import ConfigError
from tacit_services.disk import files

_SUFFIX = {"table": ".csv", "arrays": ".npz"}
WriteKind = Literal["table", "arrays"]


def kind_of(rows: object) -> WriteKind | None:
    """Return data.kind of rows: DataFrames (pandas, polars), or arrays by name; None: no rows."""
    if hasattr(rows, "to_csv") or hasattr(rows, "write_csv"):
        return "table"
    if isinstance(rows, Mapping) and rows and all(hasattr(each, "shape") for each in rows.values()):
        return "arrays"
    return None


def file_name(stem: str, kind: WriteKind) -> str:
    """Return the name of the file that has rows of this kind."""
    return stem + _SUFFIX[kind]


def write(rows: Any, folder: Path, stem: str) -> Path:
    """Write rows into `folder`, readable for this user alone. Returns the path.

    rows: as of `kind_of`. Arrays may be of numpy or torch, and are called x, y, unit. Raises
    ConfigError for what are no rows, and for arrays of Python objects, which a file has no form
    for.
    """
    kind = kind_of(rows)
    if kind is None:
        raise ConfigError(
            f"rows: are a {type(rows).__name__}; expected a DataFrame, arrays by name, or a path"
        )
    path = folder / file_name(stem, kind)
    files.write(path, _table(rows) if kind == "table" else _arrays(rows), files.SECRET)
    return path


def _table(rows: Any) -> bytes:
    text: str = rows.to_csv(index=False) if hasattr(rows, "to_csv") else rows.write_csv()
    return text.encode()


def _arrays(rows: Mapping[str, Any]) -> bytes:
    arrays = {name: np.asarray(values) for name, values in rows.items()}
    for name, values in arrays.items():
        if values.dtype.hasobject:
            raise ConfigError(f"rows: array {name} is of Python objects; give it a type of numbers")
    content = io.BytesIO()
    np.savez(content, **arrays)  # type: ignore[arg-type]
    return content.getvalue()
