"""A module run as if on another machine, in another year and another time zone.

    python -m tacit_services.conformance.elsewhere MODULE ARGUMENTS

A rule that asks Python's standard library for the time, the date or the host's name is answered
otherwise here. One that asks the system by another way is not noticed.
"""

from __future__ import annotations

import datetime
import os
import platform
import runpy
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from typing import SupportsIndex

import tacit.algorithms  # noqa: F401 - what tacit itself is made of has the true classes
from tacit_services.python_child import command

_SHIFT = 1_000 * 86_400 + 12_345  # seconds: another year, month, day, hour, minute and second
_HOST = "elsewhere"
_ZONE = "XXX-5:47"
_SECONDS = 300.0
_Seconds = float | SupportsIndex | None
_time, _time_ns = time.time, time.time_ns
_localtime, _gmtime, _strftime = time.localtime, time.gmtime, time.strftime
_uname = getattr(os, "uname", None)  # not on Windows


class _Date(datetime.date):
    @classmethod
    def today(cls) -> _Date:
        return cls.fromtimestamp(time.time())


class _DateTime(datetime.datetime):
    @classmethod
    def now(cls, tz: datetime.tzinfo | None = None) -> _DateTime:
        return cls.fromtimestamp(time.time(), tz)

    @classmethod
    def today(cls) -> _DateTime:
        return cls.now()

    @classmethod
    def utcnow(cls) -> _DateTime:
        return cls.now(datetime.UTC).replace(tzinfo=None)


def ran(module: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a module elsewhere; its process has none of this one's environment."""
    seed = "2" if os.environ.get("PYTHONHASHSEED") == "1" else "1"
    return subprocess.run(
        command(__name__, module, *arguments),
        capture_output=True,
        text=True,
        timeout=_SECONDS,
        check=False,
        env={"PYTHONHASHSEED": seed, "TZ": _ZONE},
    )


def _local(seconds: _Seconds = None) -> time.struct_time:
    return _localtime(time.time() if seconds is None else seconds)


def _universal(seconds: _Seconds = None) -> time.struct_time:
    return _gmtime(time.time() if seconds is None else seconds)


def _written(form: str, moment: Sequence[int] | None = None) -> str:
    return _strftime(form, _local() if moment is None else tuple(moment))  # type: ignore[arg-type]


def _move() -> None:
    """Let the standard library of this process answer as elsewhere."""
    time.time = lambda: _time() + _SHIFT
    time.time_ns = lambda: _time_ns() + _SHIFT * 1_000_000_000
    time.localtime = _local
    time.gmtime = _universal
    time.strftime = _written
    time.ctime = lambda seconds=None: time.asctime(_local(seconds))
    datetime.date = _Date  # type: ignore[misc]
    datetime.datetime = _DateTime  # type: ignore[misc]
    if _uname is not None and hasattr(os, "uname"):
        system = _uname()
        os.uname = lambda: os.uname_result((system[0], _HOST, *system[2:]))
    socket.gethostname = lambda: _HOST
    platform.node = lambda: _HOST


if __name__ == "__main__":
    _, name, *rest = sys.argv
    sys.argv = [name, *rest]
    _move()
    runpy.run_module(name, run_name="__main__", alter_sys=True)
