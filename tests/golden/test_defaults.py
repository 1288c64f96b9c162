"""A default is part of every name that leaves it out.

It may not change without another format number.
"""

from __future__ import annotations

import json
from typing import Any

from pydantic import BaseModel
from tacit_lab.papers.figures.untrained_points import UntrainedPoint

from tacit.config import sections_of
from tacit.config.fingerprint import DEFINITION_FORMAT
from tests.conftest import ROOT

KEPT = ROOT / "tests" / "golden" / "kept" / "defaults.json"
Defaults = dict[str, dict[str, Any]]  # of each section's class: key, default


def sections(kind: type[BaseModel]) -> list[type[BaseModel]]:
    """Return `kind` and every section inside it."""
    inside = [section for key in kind.model_fields for section in sections_of(kind, key)]
    return [kind, *(deeper for section in inside for deeper in sections(section))]


def defaults() -> Defaults:
    """Return every key of a run file, and of a figure's point, with its default as JSON.

    "required" where it has none.
    """
    return {
        kind.__name__: {key: _default(kind, key) for key in kind.model_fields}
        for kind in sections(UntrainedPoint)
    }


def _default(kind: type[BaseModel], key: str) -> Any:
    field = kind.model_fields[key]
    if field.is_required():
        return "required"
    value = field.get_default(call_default_factory=True)
    return (
        json.loads(value.model_dump_json())
        if isinstance(value, BaseModel)
        else json.loads(json.dumps(value))
    )


def changed(before: Defaults, now: Defaults) -> list[str]:
    """Return the keys of `before` that have another default now, or none.

    A key that was required had none, so no name left it out.
    """
    absent = "gone"
    return [
        f"{kind}.{key}: {value!r} -> {default!r}"
        for kind, keys in before.items()
        for key, value in keys.items()
        for default in [now.get(kind, {}).get(key, absent)]
        if default != value and (value != "required" or default == absent)
    ]


def test_no_default_changes_without_another_format_number() -> None:
    """If this fails, raise tacit.definition.DEFINITION_FORMAT.

    Only then write the new defaults to the file.
    """
    stored = json.loads(KEPT.read_text())
    assert stored["format"] == DEFINITION_FORMAT, (
        f"write the defaults of format {DEFINITION_FORMAT} to {KEPT}"
    )
    assert changed(stored["defaults"], defaults()) == []


def test_the_file_knows_every_key() -> None:
    """Add a new key to the file, which changes no name, so no number.

    Its default is guarded from then on.
    """
    assert json.loads(KEPT.read_text())["defaults"] == defaults()


def test_a_change_is_seen_and_a_new_key_is_none() -> None:
    now = defaults()
    assert changed(now | {"Privacy": now["Privacy"] | {"epsilon": 3.0}}, now) == [
        "Privacy.epsilon: 3.0 -> 2.0"
    ]
    assert changed(now | {"Privacy": now["Privacy"] | {"old": 1}}, now) == [
        "Privacy.old: 1 -> 'gone'"
    ]
    assert changed(now, now | {"Privacy": now["Privacy"] | {"new": 1}}) == []
    assert changed(now | {"Privacy": now["Privacy"] | {"epsilon": "required"}}, now) == []
