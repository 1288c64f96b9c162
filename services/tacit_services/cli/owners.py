"""The screen of the owner of the rows, who may read what a log must not have of them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from tacit.errors import DataError, OwnersError


@contextmanager
def owners_screen() -> Iterator[None]:
    """Let an OwnersError name all: the row, and the error of the user's own code."""
    try:
        yield
    except OwnersError as error:
        raise DataError(error.for_owner) from error
