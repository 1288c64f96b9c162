"""The child's side of `workers.Worker`: a word when it is ready, a line when it is done."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from tacit_services.transport.mqtt import Connection

Kinds = Mapping[str, Callable[[dict[str, Any]], dict[str, Any]]]


def begin(connection: Connection) -> None:
    """Connect, report it, and wait for the parent's signal."""
    connection.start(30.0)
    print("ready", flush=True)
    sys.stdin.readline()


def resident(pid: int, key: str) -> int:
    """Return the bytes of a process in memory. key: VmRSS (now), VmHWM (the most)."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return 1024 * next(int(line.split()[1]) for line in lines if line.startswith(f"{key}:"))


def answer(kinds: Kinds) -> None:
    """Do what the command line names, `KIND JSON`, and print the result as one line of JSON."""
    torch.set_num_threads(1)
    print(json.dumps(kinds[sys.argv[1]](json.loads(sys.argv[2]))), flush=True)
