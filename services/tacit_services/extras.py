"""Which libraries a command needs: the extras of the package `tacit`, by the metadata of what is installed.

No library is imported here: this is there to speak when all of them are missing.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from importlib import metadata

from tacit.errors import ConfigError

PACKAGE = "tacit"
_REQUIREMENT = re.compile(r"([\w.-]+)(?:\[([\w,\s-]*)\])?.*?(?:;.*extra == ['\"](\w+)['\"])?$")


def need(extra: str) -> None:
    """Raises ConfigError, with what to install, where a package of `extra` is missing."""
    if missing(extra):
        raise ConfigError(advice(extra))


def missing(extra: str) -> list[str]:
    """The packages of `extra` that are not installed; none, if tacit runs from a tree that is not installed itself."""
    try:
        requirements = metadata.requires(PACKAGE) or []
    except metadata.PackageNotFoundError:
        return []
    return [name for name in _packages(extra, requirements) if not _installed(name)]


def advice(extra: str) -> str:
    """What to tell whoever lacks it."""
    return f"this command needs tacit[{extra}]: pip install 'tacit[{extra}]'"


def names() -> list[str]:
    """All extras."""
    try:
        return metadata.metadata(PACKAGE).get_all("Provides-Extra") or []
    except metadata.PackageNotFoundError:
        return []


def _packages(extra: str, requirements: list[str]) -> Iterator[str]:
    """The packages of `extra` itself, and of those of our extras that it has in it."""
    for requirement in requirements:
        found = _REQUIREMENT.match(requirement)
        assert found is not None
        name, inner, of = found.groups()
        if of != extra:
            continue
        if name != PACKAGE:
            yield name
        else:
            for each in inner.split(","):
                yield from _packages(each.strip(), requirements)


def _installed(name: str) -> bool:
    try:
        metadata.distribution(name)
    except metadata.PackageNotFoundError:
        return False
    return True
