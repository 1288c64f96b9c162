"""A unit for systemd, of a command that stays."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Sequence
from pathlib import Path

_UNIT = """\
[Unit]
Description={description}
After=network-online.target
Wants=network-online.target

[Service]
ExecStart={command}
{service}
KillMode=mixed
NoNewPrivileges=true

[Install]
WantedBy=multi-user.target
"""


def unit_text(description: str, words: Sequence[str], *service: str) -> str:
    """Return the unit that runs `tacit` with `words`. service: further lines of that section."""
    command = shlex.join([str(Path(sys.argv[0]).resolve()), *words])
    return _UNIT.format(description=description, command=command, service="\n".join(service))
