"""Names that people know members and each other by: 1 to 100 printable characters."""

from __future__ import annotations

import unicodedata

from tacit.errors import ConfigError
from tacit.shown import seen

_MOST = 100
_OF_PATHS = ("/", "\\")  # a proxy on the way to the host may read them, and `.`, as of a path


def checked_human_name(field: str, name: str) -> str:
    """Return `name` if it can be shown in a line, and told from others by eye.

    So it is in Unicode's composed form, and has no control or invisible character, and no space at
    an end. It is a level of a path as well. Raises ConfigError naming `field` otherwise.
    """
    if not 1 <= len(name) <= _MOST:
        raise ConfigError(f"{field}={name[:_MOST]!r}: expected 1 to {_MOST} characters")
    if not all(map(seen, name)) or name.strip() != name or "  " in name:
        raise ConfigError(
            f"{field}={name!r}: expected printable characters, with single spaces between them"
        )
    if name in (".", "..") or not set(name).isdisjoint(_OF_PATHS):
        raise ConfigError(f"{field}={name!r}: reads like a path; leave out / and \\, or write more")
    if unicodedata.normalize("NFC", name) != name:
        raise ConfigError(f"{field}={name!r}: expected Unicode's composed form (NFC)")
    return name


def alike(name: str) -> str:
    """Return what two names have in common that a reader may take for the same."""
    return unicodedata.normalize("NFKC", name).casefold()
