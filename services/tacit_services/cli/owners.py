"""The screen of whoever has the rows, who may read what a log must not have of them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from tacit.errors import DataError, OwnersError


@contextmanager
def owners_screen() -> Iterator[None]:
    """Let an OwnersError say all: which row it is, and what own code said of it."""
    try:
        yield
    except OwnersError as error:
        raise DataError(error.for_owner) from error
