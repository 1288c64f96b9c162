"""The library: what is computed, private or not.

It knows no socket, process, clock or environment. `import tacit` also hands on what programs and
notebooks call (docs/python.md), which `tacit_services.interface` has:

    results = tacit.train("clinic/run.toml")
"""

from importlib import import_module
from typing import Any

_PROGRAMS = "tacit_services.interface."
# What is handed on, and where it is. It is imported when it is first asked for.
_PLACES = {
    "Results": "ended_run", "load": "ended_run", "plan": "python_runs",
    "simulate": "python_runs", "train": "python_runs",
}  # fmt: skip


def __getattr__(name: str) -> Any:
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_PROGRAMS + _PLACES[name]), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *_PLACES])
