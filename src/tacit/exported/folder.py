"""A trained model as one folder, to be used or handed on without tacit's run.

model.safetensors   what the network's own module loads by `load_state_dict`
model.json          format, run definition (no names of files), SHA-256 of all else, results
code/               a user's own module, and what reads the rows, where they are own code
README.md           the model card
"""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import safetensors.torch
import torch
from pydantic import ValidationError
from safetensors import SafetensorError
from torch import Tensor

from tacit.config import RunFile
from tacit.errors import ConfigError, DataError
from tacit.exported import model_card
from tacit.models import Model
from tacit.user_code import entry_files

FORMAT = 1
WEIGHTS, FACTS, CODE, CARD = "model.safetensors", "model.json", "code", "README.md"


@dataclass(frozen=True, slots=True)
class Exported:
    """A model that was read back. run: its definition; facts: what model.json says."""

    run: RunFile
    model: Model
    params: Tensor
    facts: dict[str, Any]


def export(results: Path, folder: Path, code: Path | None = None) -> list[Path]:
    """Write the model of the run whose results are in `results` to `folder`; returns its files.

    code: the folder of own code, the run file's if None.

    Raises ConfigError (is there already, other code than was trained), DataError (no such run).
    """
    summary, definition = (_json(results / name) for name in ("summary.json", "definition.json"))
    if folder.exists():
        raise ConfigError(
            f"{folder}: is there already, and nothing is overwritten; name another folder, or move "
            "that one away"
        )
    place = Path(definition["folder"]) if code is None else code
    run = _run(definition["run"], place, results / "definition.json")
    if run.algorithm.worker == "party":
        raise ConfigError(
            f"{results}: a vertical run's model is in parts that stay where they are; use "
            f"`tacit predict {results} --ids`"
        )
    if summary["run_file_sha256"] != run.fingerprint():
        raise ConfigError(f"{place}: its code is not what was trained; name the folder by --code")
    model = run.build_model()
    params = _params(model, results / "model.safetensors", summary["model_sha256"])
    made = folder.with_name(f".{folder.name}.new")
    shutil.rmtree(made, ignore_errors=True)
    try:
        _write(made, run, model, params, summary)
        made.rename(folder)
    except OSError as error:
        raise ConfigError(f"{folder}: {error.strerror or error}") from error
    finally:
        shutil.rmtree(made, ignore_errors=True)
    return sorted(path for path in folder.rglob("*") if path.is_file())


def read(folder: Path) -> Exported:
    """The model in `folder`. Its code is executed, once it has the SHA-256 that model.json says.

    Raises ConfigError, DataError.
    """
    facts = _json(folder / FACTS)
    if facts.get("format") != FORMAT:
        raise DataError(f"{folder / FACTS}: has another format, this tacit reads {FORMAT}")
    run = _run(facts["run"], folder / CODE, folder / FACTS)
    if run.stated().get("code", {}) != facts["code"]:
        raise ConfigError(f"{folder / CODE}: is not the code that the model was trained with")
    model = run.build_model()
    state = _tensors(folder / WEIGHTS, facts["weights_sha256"])
    params = torch.cat([state[name].flatten() for name, _ in model.layout])
    return Exported(run, model, params, facts)


def option_of_rows(folder: Path) -> str:
    """What `tacit predict` is told new rows by, for the model in `folder`. Raises DataError."""
    kind = _json(folder / FACTS)["run"]["data"].get("kind", "benchmark")
    return model_card.OPTIONS[kind]


def is_exported(folder: Path) -> bool:
    """Whether `folder` has a model that was exported."""
    return (folder / FACTS).is_file()


def _write(
    folder: Path, run: RunFile, model: Model, params: Tensor, summary: dict[str, Any]
) -> None:
    folder.mkdir(parents=True)
    weights = safetensors.torch.save(model.state(params))
    (folder / WEIGHTS).write_bytes(weights)
    for name in _code(run):
        place = folder / CODE / name
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(run.folder / name, place)
    facts = {
        "format": FORMAT,
        "run": _without_files(run),
        "code": run.stated().get("code", {}),
        "weights_sha256": hashlib.sha256(weights).hexdigest(),
        "trained_sha256": summary["model_sha256"],
        "metrics": summary["metrics"],
        "privacy": {key: summary["privacy"][key] for key in model_card.OF_PRIVACY},
        "tacit_version": summary["tacit_version"],
    }
    text = json.dumps(facts, indent=2, ensure_ascii=False) + "\n"
    (folder / FACTS).write_text(text, encoding="utf-8")
    (folder / CARD).write_text(model_card.text(folder, run, model, summary), encoding="utf-8")


def _code(run: RunFile) -> Iterator[Path]:
    """All files of own code and public weights, relative to the run file's folder."""
    entries = [(run.model.entry, "model.entry"), (run.data.entry_of_rows, "data.entry")]
    if run.model.loss and ":" in run.model.loss:
        entries.append((run.model.loss, "model.loss"))
    for entry, field in entries:
        if entry is not None:
            yield from entry_files(entry, run.folder, field)
    if run.model.weights is not None:
        yield Path(run.model.weights)
    yield from run.data.files(run.folder)


def _without_files(run: RunFile) -> dict[str, Any]:
    """The run definition, as it is stated, with no name of a file or an owner."""
    stated = run.stated()
    stated.pop("code", None)
    dealt = stated["data"].pop("dealt", None)
    if dealt is not None:
        stated["data"]["train"] = "rows" if dealt else "rows{edge}"
    stated.get("evaluation", {}).pop("metrics", None)
    return stated


def _run(content: dict[str, Any], folder: Path, where: Path) -> RunFile:
    try:
        return RunFile.model_validate(content, context={"folder": folder})
    except ValidationError as error:
        first = error.errors()[0]
        key = ".".join(map(str, first["loc"]))
        raise DataError(f"{where}: is not a run of this tacit: {key}: {first['msg']}") from error


def _json(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise DataError(f"{path}: {error.strerror or error}; name a run that has ended") from error
    except ValueError as error:
        raise DataError(f"{path}: is damaged: {error}") from error
    if not isinstance(found, dict):
        raise DataError(f"{path}: is damaged: no object")
    return found


def _tensors(path: Path, digest: str) -> dict[str, Tensor]:
    try:
        content = path.read_bytes()
        if hashlib.sha256(content).hexdigest() != digest:
            raise DataError(f"{path}: is not the file that was written: another SHA-256")
        found: dict[str, Tensor] = safetensors.torch.load(content)
    except OSError as error:
        raise DataError(f"{path}: {error.strerror or error}") from error
    except SafetensorError as error:
        raise DataError(f"{path}: is damaged: {error}") from error
    return found


def _params(model: Model, path: Path, digest: str) -> Tensor:
    state = _tensors(path, digest)
    try:
        return torch.cat([state[name].flatten() for name, _ in model.layout])
    except KeyError as error:
        raise DataError(f"{path}: has no {error}; it is another model's") from error
