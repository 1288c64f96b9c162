"""The state folders of this user's memberships."""

from __future__ import annotations

import re
from pathlib import Path

from tacit.errors import ConfigError
from tacit_services.member.member_state import MemberState
from tacit_services.settings import data_home

_STRANGE = re.compile(r"[^A-Za-z0-9.-]+")


def default_state(url: str) -> Path:
    """Return the folder of a membership at `url`, in the user's data folder."""
    place = _STRANGE.sub("-", url.removeprefix("https://")).strip("-")
    return data_home() / "members" / (place or "host")


def known_state(folder: Path | None) -> MemberState:
    """Return the state in `folder`, or the only one that this user has. Raises ConfigError."""
    if folder is not None:
        if not folder.is_dir():
            raise ConfigError(f"--state {folder}: no such folder")
        return MemberState(folder)
    known = sorted(path.parent for path in (data_home() / "members").glob("*/member.json"))
    if len(known) != 1:
        have = "no membership" if not known else f"{len(known)} memberships"
        raise ConfigError(f"--state: missing; {have} in {data_home() / 'members'}")
    return MemberState(known[0])
