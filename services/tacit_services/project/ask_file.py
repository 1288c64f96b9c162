"""The run file of questions, made of a run file that says where rows are and who has them."""

from __future__ import annotations

import datetime
import json
import tomllib
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from tacit import regular_file
from tacit.config.asked_table import AskedTable
from tacit.errors import ConfigError
from tacit_services.disk import files

_OF_EDGES = ("count", "min", "wait", "grace")
_OF_PRIVACY = ("delta", "mechanism")
_COMMENT = "# Written by tacit ask, from {}. tacit run asks the same again, at the same price."


def asked(file: Path, questions: Sequence[str], weights: Sequence[float], epsilon: float) -> Path:
    """Write a run file of these questions beside `file`; return its path.

    It has what [data] says of the rows, and the number of edges. Raises ConfigError where `file`
    cannot be read, or has no table.
    """
    content = _content(file)
    data = content.get("data")
    if not isinstance(data, dict) or data.get("kind") != "table":
        raise ConfigError(f'{file}: questions are asked of a table, [data] kind = "table"')
    readable = set(AskedTable.model_fields) - {"test", "features"}
    sections: dict[str, dict[str, Any]] = {
        "data": {key: value for key, value in data.items() if key in readable},
        "edges": _chosen(content.get("edges"), _OF_EDGES),
        "privacy": _chosen(content.get("privacy"), _OF_PRIVACY) | {"epsilon": epsilon},
        "ask": {"questions": list(questions)} | ({"weights": list(weights)} if weights else {}),
    }
    columns = sections["data"].pop("columns", {})
    lines = [_COMMENT.format(file.name)]
    for name, section in sections.items():
        lines += ["", f"[{name}]", *_lines(section.items())]
        if name == "data" and isinstance(columns, dict):
            lines += ["", "[data.columns]", *_lines(columns.items())]
    path = file.with_name(f"{file.stem}.ask.toml")
    files.write(path, ("\n".join(lines) + "\n").encode(), None)
    return path


def _content(file: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(regular_file.text(file))
    except OSError as error:
        raise ConfigError(f"run file {file}: {error.strerror or error}") from error
    except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise ConfigError(f"{file}: not TOML: {error}") from error


def _chosen(section: object, keys: Iterable[str]) -> dict[str, Any]:
    if not isinstance(section, dict):
        return {}
    return {key: section[key] for key in keys if key in section}


def _lines(items: Iterable[tuple[str, Any]]) -> list[str]:
    return [f"{json.dumps(name, ensure_ascii=False)} = {_toml(value)}" for name, value in items]


def _toml(value: Any) -> str:
    if isinstance(value, dict):
        return "{ " + ", ".join(_lines(value.items())) + " }"
    if isinstance(value, list):
        return "[" + ", ".join(map(_toml, value)) + "]"
    if isinstance(value, datetime.date | datetime.time):
        return value.isoformat()
    return json.dumps(value, ensure_ascii=False)
