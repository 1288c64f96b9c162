"""Public first values of a model, in a safetensors file beside the run file."""

from __future__ import annotations

from pathlib import Path

from torch import Tensor

from tacit import regular_file
from tacit.errors import ConfigError
from tacit.graphs.graph_values import MOST_VALUES, tensors_in


def path_inside(folder: Path, name: str, key: str) -> Path:
    """Return the file `name` in `folder`, which it must not leave. Raises ConfigError.

    key: names the setting in messages.
    """
    root = folder.resolve()
    path = (root / name).resolve()
    if Path(name).is_absolute() or not path.is_relative_to(root):
        raise ConfigError(f"{key}={name!r}: leaves the run file's folder")
    if not path.is_file():
        raise ConfigError(f"{key}={name!r}: no such file in {folder}")
    return path


def start_values(path: Path) -> dict[str, Tensor]:
    """Return all tensors of a safetensors file, by name. Raises ConfigError."""
    where = f"model.weights={path.name!r}"
    try:
        content = regular_file.content(path, MOST_VALUES)
    except OSError as error:
        raise ConfigError(f"{where}: {error.strerror or error}") from error
    return tensors_in(content, where)
