"""Large payloads in Redis: each is a list of pieces beside the stream, which has its key only.

The server copies a payload that is an argument of a script five times over. It copies every
argument twice into the file of commands. Pieces of PIECE bytes go through one after the other, each
on the disk while the next one comes. A list is staged first, and counts from when the script that
appends the entry has seen that it is whole (redis_scripts.APPEND). A reader takes pieces of any
size.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import redis

from tacit_services.journal.store import redis_scripts
from tacit_services.journal.store.base import Pieces

LARGE = 1 << 20  # bytes; a payload of more is a list of pieces
# Bytes. Every piece is written and synced by itself, so small ones take long; for larger ones the
# server asks the kernel for fresh memory each time (docs/performance.md).
PIECE = 2 << 20


def begin(key: str, meta: str, large: str, epoch: int) -> list[Any]:
    """Return the command that begins a list at `key`. It does nothing if `epoch` is over.

    The list begins with an empty element, made in one step with its entry in `large`; the others
    are added only if it is there. So no pieces are left that nobody knows of.
    """
    return ["EVAL", redis_scripts.STAGE, 3, meta, large, key, epoch]


def end(key: str, large: str) -> list[Any]:
    """Return the command that deletes the list at `key`, which no entry has."""
    return ["EVAL", redis_scripts.DROP, 2, large, key]


def pieces(
    key: str, payload: bytes | memoryview, first: int = 0, *, complete: bool = True
) -> list[list[Any]]:
    """Return the commands that add `payload` from byte `first` on to the list at `key`.

    complete: False where more comes behind it, so that a last piece that is not full waits.
    """
    view = memoryview(payload)
    if complete:
        ready = view
    else:
        ready = view[: len(view) - len(view) % PIECE]
    return [["RPUSHX", key, ready[at : at + PIECE]] for at in range(first, len(ready), PIECE)]


def elements(payload: bytes | memoryview) -> int:
    """Return how many elements the whole list of `payload` has."""
    return 1 + -(-len(payload) // PIECE)


def send(connection: Any, sent: Sequence[Sequence[Any]]) -> None:
    """Send commands without a copy of what is in them."""
    for command in sent:
        connection.send_packed_command(_packed(command), check_health=False)


def read(connection: Any, count: int) -> Any:
    """Read `count` answers and return the last; if that is an error, raise the first that is."""
    answers = [_answer(connection) for _ in range(count)]
    if isinstance(answers[-1], redis.ResponseError):
        raise next(answer for answer in answers if isinstance(answer, redis.ResponseError))
    return answers[-1]


def _answer(connection: Any) -> Any:
    try:
        return connection.read_response()
    except redis.ResponseError as error:
        return error


def _packed(command: Sequence[Any]) -> Iterator[bytes | memoryview]:
    head = b"*%d\r\n" % len(command)
    for argument in command:
        if isinstance(argument, Pieces | memoryview) and len(argument) > 4096:
            yield head + b"$%d\r\n" % len(argument)
            yield from argument if isinstance(argument, Pieces) else (argument,)
            head = b"\r\n"
        else:
            if isinstance(argument, bytes):
                raw = argument
            else:
                raw = _bytes(argument)
            head += b"$%d\r\n%s\r\n" % (len(raw), raw)
    yield head


def _bytes(argument: Any) -> bytes:
    binary = isinstance(argument, Pieces | memoryview)
    if binary:
        return bytes(argument)
    return str(argument).encode()
