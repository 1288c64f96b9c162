"""The output folder of `tacit run`: locked by one run, and what an earlier one left moved aside.

Guarantee: no results and no state of an earlier run are deleted. They may be all that is left of
what a budget was spent on.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from rich.console import Console

from tacit import file_lock
from tacit.errors import ConfigError, ServiceError
from tacit_services.aggregator.reporting import results
from tacit_services.disk.set_aside import moved_aside

MARKER = ".tacit-run"  # in OUT/state: the folder is of a `tacit run`


@contextmanager
def locked(out: Path) -> Iterator[None]:
    """Lock the output folder until the end of the block: nobody moves a run that is under way."""
    refusal = ServiceError(f"--out {out}: another `tacit run` is under way there")
    with ExitStack() as stack:
        try:
            out.mkdir(parents=True, exist_ok=True)
            if os.name == "posix":
                descriptor = os.open(out, os.O_RDONLY | os.O_DIRECTORY)
                stack.callback(os.close, descriptor)
                file_lock.take(descriptor, refusal)
            else:  # a folder cannot be opened
                stack.enter_context(file_lock.locked(out / ".lock", refusal))
        except OSError as error:
            raise ConfigError(f"--out {out}: {error.strerror or error}") from error
        yield


def kept(out: Path) -> Path:
    """Return OUT/state of a run that was stopped.

    Raises ConfigError where there is none, or it has ended.
    """
    state = out / "state"
    if not (state / MARKER).exists():
        raise ConfigError(f"--resume: there is no run in {out} that was stopped")
    if (out / "summary.json").exists():
        raise ConfigError(f"--resume: the run in {out} has ended; its results are there")
    return state


def refuse(out: Path, resume: bool) -> None:
    """Raise ConfigError for what `kept` or `fresh` would refuse, and change nothing."""
    if resume:
        kept(out)
        return
    state = out / "state"
    if state.exists() and not (state / MARKER).exists():
        raise ConfigError(f"--out {out}: {state} exists and is not an earlier `tacit run`")


def fresh(out: Path, console: Console) -> Path:
    """Make an empty OUT/state, and return it.

    An earlier `tacit run` there is moved to OUT-1, or the next number that is free, and that is
    printed. Other content stays. Raises ConfigError.
    """
    state = out / "state"
    refuse(out, resume=False)
    try:
        if state.exists():
            # `state` goes last: a move that was cut short is known for what it is, and goes on.
            place = moved_aside(out, (*results.FILES, "state"))
            console.print(f"the earlier run in {out} is now in {place}", soft_wrap=True)
        state.mkdir(parents=True)
        (state / MARKER).touch()
    except OSError as error:
        raise ConfigError(f"--out {out}: {error.strerror or error}") from error
    return state


def delete_rows(out: Path) -> None:
    """Delete what the edges of a run that has ended decoded of private rows: OUT is handed on.

    A run that was stopped keeps it, as it goes on with it.
    """
    if (out / "summary.json").exists():
        for decoded in (out / "state" / "identities").glob("*/rows"):
            shutil.rmtree(decoded)
