"""Python as a child process.

Nothing of the current folder is on its path.

`python -c` and `python -m` put the current folder first on the path. A `socket.py` beside a run
file would then be run in place of Python's own, although no SHA-256 covers it. What the user has
put into PYTHONPATH stays.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator, Mapping

_SAFE = {"PYTHONSAFEPATH": "1"}


def command(module: str, *arguments: str) -> list[str]:
    """Return the command line of `python -m MODULE ARGUMENTS`."""
    return [sys.executable, "-P", "-m", module, *arguments]


@contextlib.contextmanager
def inherited(variables: Mapping[str, str] | None = None) -> Iterator[None]:
    """Give what is started in the block these variables, and a path without the current folder.

    It is for `multiprocessing`, which starts Python itself.
    """
    environment = {**_SAFE, **(variables or {})}
    before = {name: os.environ.get(name) for name in environment}
    os.environ.update(environment)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
