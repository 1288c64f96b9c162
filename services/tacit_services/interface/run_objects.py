"""Run definitions from Python objects: sections as in a run file, tables, arrays, networks.

    {"data": {"train": frame, "target": "outcome", "columns": {…}}, "model": network, …}

The names are those of a run file (docs/run-file.md). A table becomes a CSV file, arrays by name an
npz file, a network a graph, and the definition a run file: `tacit check`, `tacit run` and
`tacit submit` read them too.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tacit import config
from tacit.errors import ConfigError
from tacit_services.disk import files
from tacit_services.extras import need
from tacit_services.interface import row_files

RUN_FILE = "run.toml"
_GRAPH, _VALUES = "network.graph.json", "network.safetensors"
_TRAIN, _SITE, _TEST = "train", "site{edge}", "test"
_NETWORK = {"name": "logistic"}  # stands for a network until its example's shape is known

# A run file's path, or its sections.
RunLike = str | Path | Mapping[str, Any]


def run_file_of(run: RunLike, folder: Path) -> Path:
    """Return the run file of `run`: a path is returned as it is, sections are written to `folder`.

    What is private in them, as rows, is readable for this user alone. Raises ConfigError, OSError.
    """
    if not isinstance(run, Mapping):
        return Path(run)
    need("tune")  # which has what writes TOML
    try:
        folder.mkdir(parents=True, exist_ok=True)
        return _written(run, folder)
    except OSError as error:
        raise ConfigError(f"{error.filename or folder}: {error.strerror or error}") from error


def _written(run: Mapping[str, Any], folder: Path) -> Path:
    sections = {
        name: dict(section) if isinstance(section, Mapping) else section
        for name, section in run.items()
    }
    data = sections.get("data")
    if isinstance(data, dict):
        data |= _with_files(data, folder)
    network = sections.get("model")
    if network is not None and not isinstance(network, Mapping):
        _write(folder, {**sections, "model": _NETWORK})
        sections["model"] = _frozen(network, folder)
    return _write(folder, sections)


def _write(folder: Path, sections: Mapping[str, Any]) -> Path:
    import tomlkit

    path = folder / RUN_FILE
    try:
        text = tomlkit.dumps(_plain(sections))
    except (TypeError, ValueError) as error:  # as tomlkit complains of what TOML has no form for
        raise ConfigError(f"run: {error}; a section has keys as in a run file") from error
    files.write(path, text.encode(), files.SECRET)
    return path


def _plain(value: Any) -> Any:
    """Return a value as TOML has it: without None, and with paths as text."""
    if isinstance(value, Mapping):
        return {str(key): _plain(each) for key, each in value.items() if each is not None}
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    return str(value) if isinstance(value, Path) else value


def _with_files(data: Mapping[str, Any], folder: Path) -> dict[str, str]:
    """Write the rows of [data] into files; returns the keys that name them."""
    keys = dict[str, str]()
    train, test = data.get("train"), data.get("test")
    if kind := row_files.kind_of(train):
        keys |= {"kind": kind, "train": row_files.write(train, folder, _TRAIN).name}
    elif isinstance(train, Sequence) and not isinstance(train, str):
        keys |= _sites(train, folder)
    if row_files.kind_of(test):
        keys["test"] = row_files.write(test, folder, _TEST).name
    return keys


def _sites(train: Sequence[Any], folder: Path) -> dict[str, str]:
    """Write a file for each edge; returns the keys that name them."""
    kinds = [row_files.kind_of(rows) for rows in train]
    for number, (kind, rows) in enumerate(zip(kinds, train, strict=True)):
        if kind is None or kind != kinds[0]:
            raise ConfigError(
                f"data.train: item {number} is no DataFrame, and no arrays by name; each edge has "
                "rows of one kind"
            )
        row_files.write(rows, folder, _SITE.format(edge=number))
    if not kinds or kinds[0] is None:
        raise ConfigError("data.train: is an empty list; give each edge a DataFrame or arrays")
    return {"kind": kinds[0], "train": row_files.file_name(_SITE, kinds[0])}


def _frozen(network: Any, folder: Path) -> dict[str, str]:
    """Write a torch module as a graph that fits the run's rows; returns the section [model]."""
    from torch import nn

    from tacit.graphs.freezing import freeze
    from tacit.graphs.graph_file import Example
    from tacit.models.objectives import objective_of
    from tacit.models.own_network import least_and_largest

    if not isinstance(network, nn.Module):
        raise ConfigError(f"model: is a {type(network).__name__}; expected keys or a torch module")
    source = config.load(folder / RUN_FILE).source
    shape, outputs = source.shape
    integers = source.integers
    frozen = freeze(
        f"model {type(network).__name__}",
        copy.deepcopy(network),
        Example(shape=shape, dtype="float32" if integers is None else "int64", below=integers),
        least_and_largest(outputs, objective_of(source.target)),
    )
    files.write(folder / _VALUES, frozen.file, files.SECRET)
    files.write(folder / _GRAPH, frozen.graph.text().encode(), files.SECRET)
    return {"name": "graph", "file": _GRAPH}
