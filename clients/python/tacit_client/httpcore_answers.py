"""Answers of httpcore as httpx's, for clients that bring their own way to a server."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import httpcore
import httpx

# Headers that httpx acts on by itself: it builds the next request, and keeps what it is told.
STEERING = frozenset((b"location", b"set-cookie"))


class AnswerBody(httpx.SyncByteStream):
    """The body of an answer, with httpx's errors."""

    def __init__(self, pieces: Iterable[bytes]) -> None:
        self._pieces = pieces

    def __iter__(self) -> Iterator[bytes]:
        with as_httpx():
            yield from self._pieces

    def close(self) -> None:
        if hasattr(self._pieces, "close"):
            self._pieces.close()


@contextmanager
def as_httpx() -> Iterator[None]:
    """Raise httpcore's errors as httpx's, which have the same names."""
    try:
        yield
    except (
        httpcore.TimeoutException,
        httpcore.NetworkError,
        httpcore.ProtocolError,
        httpcore.ProxyError,
        httpcore.UnsupportedProtocol,
    ) as error:
        raise getattr(httpx, type(error).__name__)(str(error)) from error
