"""One record in a JSON file, with the number of its format: {"format": 1, …}."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from tacit import regular_file
from tacit.errors import ConfigError, other_format
from tacit_services.disk import files

T = TypeVar("T")


def write(path: Path, number: int, values: Mapping[str, Any]) -> None:
    """Write the record, durably and for its owner alone. Raises OSError."""
    content = {"format": number, **values}
    files.write(path, json.dumps(content, indent=1).encode(), files.SECRET)


def read(path: Path, number: int, make: Callable[[dict[str, Any]], T]) -> T | None:
    """Return what `make` makes of the record's values; None: there is no file.

    Raises ConfigError where the file cannot be read, is damaged, or of another format.
    """
    try:
        content = json.loads(regular_file.content(path))
        if (written := content.pop("format")) != number:
            raise ValueError(other_format(written, number))
        return make(content)
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ConfigError(f"{path}: is damaged ({error})") from error
