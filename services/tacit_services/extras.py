"""Extras of the package: which libraries a command needs.

The installed metadata names them. No library is imported here, as this module must work when all of
them are missing.
"""

from __future__ import annotations

import re
from importlib import metadata

from tacit.errors import ConfigError

PACKAGE = "tacit"
_NAME_AND_EXTRA = re.compile(r"([\w.-]+).*;.*extra == ['\"](\w+)['\"]")


def need(extra: str) -> None:
    """Raise ConfigError, with what to install, where a package of `extra` is missing."""
    if missing(extra):
        raise ConfigError(advice(extra))


def missing(extra: str) -> list[str]:
    """Return the packages of `extra` that are not installed.

    None, if tacit runs from a tree that is not installed itself.
    """
    try:
        requirements = metadata.requires(PACKAGE) or []
    except metadata.PackageNotFoundError:
        return []
    pairs = (_NAME_AND_EXTRA.match(requirement) for requirement in requirements)
    return [pair[1] for pair in pairs if pair and pair[2] == extra and not _installed(pair[1])]


def advice(extra: str) -> str:
    """Return what to install for a command whose libraries are missing."""
    return f"this command needs tacit[{extra}]: pip install 'tacit[{extra}]'"


def names() -> list[str]:
    """Return all extras."""
    try:
        return metadata.metadata(PACKAGE).get_all("Provides-Extra") or []
    except metadata.PackageNotFoundError:
        return []


def _installed(name: str) -> bool:
    try:
        metadata.distribution(name)
    except metadata.PackageNotFoundError:
        return False
    return True
