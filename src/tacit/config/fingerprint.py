"""A run's fingerprint: the SHA-256 of its definition's differences from the defaults.

A new key has a default, so it changes no name. Raise DEFINITION_FORMAT when a default changes, or
what a value means: without that, one name would stand for two different runs. Then a store and a
journal file may have a run by the name of the format before. Let them go on with it, by that
format's own defaults (tests/golden/kept/defaults.json has them all), and name the kept points anew.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import Any

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from tacit.config.sections import Section
from tacit.digests import canonical

DEFINITION_FORMAT = 1
_MOST_SHOWN = 60  # characters of a value that differs


def differences(section: BaseModel) -> dict[str, Any]:
    """Return the values of `section` that differ from its class's defaults, as JSON has them.

    Sections inside are treated likewise. Read as a section again, they give an equal one. A key
    without a default is always among them.
    """
    if isinstance(section, Section) and (stated := section.as_stated()) is not None:
        return stated
    different: dict[str, Any] = {}
    for key, field in type(section).model_fields.items():
        value = getattr(section, key)
        if not field.is_required() and value == _default(field):
            continue
        if isinstance(value, tuple | list):
            different[key] = [
                differences(item) if isinstance(item, BaseModel) else item for item in value
            ]
        elif isinstance(value, dict):
            different[key] = {
                name: differences(item) if isinstance(item, BaseModel) else item
                for name, item in value.items()
            }
        else:
            different[key] = differences(value) if isinstance(value, BaseModel) else value
    return different


def _default(field: FieldInfo) -> object:
    """Return the field's default itself: a copy costs more than all else that a name does."""
    if field.default_factory is None:
        return field.default
    return field.get_default(call_default_factory=True)


def without(content: dict[str, Any], keys: Iterable[str]) -> dict[str, Any]:
    """Return `content` without some keys ("run.name") or whole sections ("evaluation")."""
    reduced = {
        key: dict(value) if isinstance(value, dict) else value for key, value in content.items()
    }
    for key in keys:
        section, _, inside = key.partition(".")
        if not inside:
            reduced.pop(section, None)
        elif section in reduced:
            reduced[section].pop(inside, None)
    return {key: value for key, value in reduced.items() if value != {}}


def first_difference(theirs: object, ours: object, key: str = "") -> str | None:
    """Return the first key, by name, at which two contents differ, with both values; else None."""
    if isinstance(theirs, dict) and isinstance(ours, dict):
        for inside in sorted({*theirs, *ours}, key=str):
            if key:
                deeper = f"{key}.{inside}"
            else:
                deeper = str(inside)
            difference = first_difference(theirs.get(inside), ours.get(inside), deeper)
            if difference is not None:
                return difference
        return None
    if theirs == ours and type(theirs) is type(ours):
        return None
    return f"{key}={_shortened(theirs)}, here {_shortened(ours)}"


def _shortened(value: object) -> str:
    if value is None:
        text = "left out"
    else:
        text = canonical(value)
    if len(text) <= _MOST_SHOWN:
        return text
    return f"{text[:_MOST_SHOWN]}…"


def name(kind: str, different: dict[str, Any]) -> str:
    """Return SHA-256 of `differences`, for one `kind` of name ("run", "point") today."""
    return hashlib.sha256(
        f"tacit-{kind}-{DEFINITION_FORMAT}{canonical(different)}".encode()
    ).hexdigest()
