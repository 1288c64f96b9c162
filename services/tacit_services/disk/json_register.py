"""A short list of records in one JSON file, for several processes.

The file is {"format": number, KEY: [record, …]}. A change is made under a lock, of the file beside
it whose name ends in `.lock`, and replaces the file in one step.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Generic, TypeVar

from pydantic import TypeAdapter, ValidationError

from tacit import file_lock, regular_file
from tacit.errors import ConfigError, other_format
from tacit_services.disk import files

T = TypeVar("T")


class JsonRegister(Generic[T]):
    """The records in the file at `path`, which need not be there yet."""

    def __init__(self, path: Path, key: str, number: int, kind: type[T]) -> None:
        """key: under which they stand. number: the format. kind: a dataclass, the record's."""
        self.path = path
        self._key = key
        self._number = number
        self._list: TypeAdapter[list[T]] = TypeAdapter(list[kind])  # type: ignore[valid-type]

    def all(self) -> list[T]:
        """Return the records, newly read.

        Raises ConfigError where the file is damaged, unreadable or of another format.
        """
        try:
            content = json.loads(regular_file.content(self.path))
            return self._read(content)
        except FileNotFoundError:
            return []
        except ValidationError as error:
            first = error.errors()[0]
            where = ".".join(map(str, first["loc"]))
            raise ConfigError(f"{self.path}: {self._key}: {where}: {first['msg']}") from error
        except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise ConfigError(f"{self.path}: {error}") from error

    @contextmanager
    def changing(self) -> Iterator[list[T]]:
        """Yield the records, which the block may change; they are durable when it is left.

        Nobody else changes them meanwhile. A block that raises changes nothing. Raises ConfigError.
        """
        with self._locked():
            records = self.all()
            before = list(records)
            yield records
            if records != before:
                self._write(records)

    @contextmanager
    def _locked(self) -> Iterator[None]:
        lock = self.path.with_name(f"{self.path.name}.lock")
        with ExitStack() as stack:
            try:
                self.path.parent.mkdir(parents=True, exist_ok=True)
                stack.enter_context(file_lock.locked(lock))
            except OSError as error:
                raise ConfigError(f"{lock}: {error}") from error
            yield

    def _read(self, content: dict[str, Any]) -> list[T]:
        if (number := content.get("format")) != self._number:
            raise ValueError(other_format(number, self._number))
        return self._list.validate_python(content[self._key])

    def _write(self, records: list[T]) -> None:
        content = {"format": self._number, self._key: self._list.dump_python(records)}
        data = (json.dumps(content, indent=1) + "\n").encode("ascii")
        try:
            files.write(self.path, data, files.SECRET)
        except OSError as error:
            raise ConfigError(f"{self.path}: {error}") from error
