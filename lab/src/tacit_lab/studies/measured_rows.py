"""What a study has measured, as JSON of one line a case, so that it goes on where it ended."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeVar

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

    Case = TypeVar("Case", bound=DataclassInstance)
else:
    Case = TypeVar("Case")


class MeasuredRows(Generic[Case]):
    """Rows by their case, a frozen data class of values that JSON has."""

    def __init__(self, path: Path, kind: type[Case]) -> None:
        """Read what is at `path` already."""
        self._path = path
        self.rows: dict[Case, dict[str, Any]] = {}
        if path.exists():
            keys = [field.name for field in fields(kind)]
            for row in json.loads(path.read_text(encoding="utf-8")):
                self.rows[kind(*(row.pop(key) for key in keys))] = row

    def missing(self, cases: Iterable[Case]) -> list[Case]:
        """Return those of `cases` that are not measured."""
        return [case for case in cases if case not in self.rows]

    def add(self, case: Case, row: dict[str, Any]) -> None:
        """Write the file with one more row, all or nothing, and print the row."""
        self.rows[case] = row
        lines = [json.dumps(asdict(each) | values) for each, values in self.rows.items()]
        self._path.parent.mkdir(parents=True, exist_ok=True)
        unfinished = self._path.with_suffix(".new")
        unfinished.write_text("[\n" + ",\n".join(lines) + "\n]\n", encoding="utf-8")
        unfinished.replace(self._path)
        print(lines[-1], flush=True)
