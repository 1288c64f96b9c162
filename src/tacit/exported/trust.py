"""What a model's folder would run on this machine, said before it runs.

A folder comes from others. Its SHA-256s lie in it, so they prove nothing to who does not know them
from elsewhere: code is trusted by a person, who has read it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path

from tacit import regular_file
from tacit.config import RunFile
from tacit.errors import ConfigError
from tacit.user_code import entry_files

_SHOWN = 8  # files that are listed


def entries(run: RunFile) -> Iterator[tuple[str, str]]:
    """Yield the field and "module:name" of each piece of code that a run names."""
    if run.model.entry is not None:
        yield "model.entry", run.model.entry
    if run.model.loss is not None and ":" in run.model.loss:
        yield "model.loss", run.model.loss
    if run.data.entry_of_rows is not None:
        yield "data.entry", run.data.entry_of_rows
    for front in run.data.fronts:
        yield "data.features.front", front


def refuse_code(run: RunFile, folder: Path) -> None:
    """Raise ConfigError, which names every file of code in `folder`, where `run` names code."""
    code_entries = list(entries(run))
    if not code_entries:
        return
    files: dict[Path, None] = {}
    installed = []
    for field, entry in code_entries:
        entry_paths = entry_files(entry, run.folder, field)
        files |= dict.fromkeys(entry_paths)
        if not entry_paths:
            installed.append(f"{entry} of an installed package")
    paths = [run.folder / file for file in files]
    digests = [f"{path} (SHA-256 {_digest(path)})" for path in paths[:_SHOWN]] + installed
    if len(paths) > _SHOWN:
        more = f" and {len(paths) - _SHOWN} more"
    else:
        more = ""
    if paths:
        look = f"read {'it' if len(paths) == 1 else 'them'}, and if you trust it"
    else:
        look = "if so"
    raise ConfigError(
        f"{folder}: predicting would run {', '.join(digests)}{more}, with all your rights; {look}, "
        "say --trust-code"
    )


def _digest(path: Path) -> str:
    return hashlib.sha256(regular_file.content(path)).hexdigest()
