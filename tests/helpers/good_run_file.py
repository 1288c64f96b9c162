"""A run file as its keys, for tests that change one of them: what it then means, or is refused for."""

from __future__ import annotations

from typing import Any

import pytest

from tacit import config
from tacit.config import RunFile
from tacit.errors import ConfigError

GOOD: dict[str, dict[str, str]] = {
    "run": {"updates": "100"},
    "data": {"dataset": '"digits"'},
    "model": {"name": '"logistic"'},
    "algorithm": {"name": '"mapa"'},
    "privacy": {"batch": "32", "noise_multiplier": "1.0"},
    "edges": {"count": "2"},
    "evaluation": {"every": "50"},
}
TEXT = {"data.dataset": '"wikitext-2"', "model.name": '"lstm"'}
PLAIN = {"algorithm.name": '"asgd"', "privacy.mechanism": '"none"'}


def text(changes: dict[str, str | None] | None = None) -> str:
    """Return GOOD as TOML with `section.key` set, or left out where the value is None."""
    sections = {name: dict(keys) for name, keys in GOOD.items()}
    for path, value in (changes or {}).items():
        section, key = path.split(".")
        sections.setdefault(section, {}).pop(key, None)
        if value is not None:
            sections.setdefault(section, {})[key] = value
    return as_toml(sections)


def parsed(changes: dict[str, str | None] | None = None, **replaced: Any) -> RunFile:
    return config.parse(text(changes), "file.toml", **replaced)


def refusal(content: str, **replaced: Any) -> str:
    with pytest.raises(ConfigError) as refused:
        config.parse(content, "file.toml", **replaced)
    message = str(refused.value)
    assert message.startswith("file.toml: ")
    assert "\n" not in message
    return message


def as_toml(sections: dict[str, dict[str, str]]) -> str:
    lines = (
        [f"[{name}]", *(f"{key} = {value}" for key, value in keys.items())]
        for name, keys in sections.items()
    )
    return "\n".join(line for section in lines for line in section)
