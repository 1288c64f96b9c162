"""`tacit join`: a membership begins, or goes on, until SIGTERM."""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from tacit import regular_file
from tacit.errors import ConfigError
from tacit.privacy.policy import Policy
from tacit_services import logs
from tacit_services.member.host_client import HostClient
from tacit_services.member.joining import joined
from tacit_services.member.member_state import MemberState, Membership
from tacit_services.settings import data_home, load_policy
from tacit_services.signals import stopping
from tacit_services.transport import pinned_authority
from tacit_services.transport.pinned_authority import Authority

log = logging.getLogger("tacit.member")
_STRANGE = re.compile(r"[^A-Za-z0-9.-]+")


@dataclass(frozen=True, slots=True)
class Joining:
    """What was asked of `tacit join`; None: as before, or the default.

    ask: whether there is somebody at a terminal to be asked.
    """

    url: str
    token: str | None
    ca: str | None
    name: str | None
    data: str | None
    dataset: str | None
    rows: int | None
    policy: Path | None
    yes: bool
    ask: bool


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
