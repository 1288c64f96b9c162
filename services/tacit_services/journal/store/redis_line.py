"""The connection on which a Redis store writes, and payloads that are staged on it."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from typing import Any

import redis

from tacit_services.journal.store import redis_large


class WriteLine:
    """One connection, on which answers come in the order of the commands.

    So nobody has to wait for the answer to a piece: the append that follows reports whether all
    have come. The connection goes back to its pool when nothing is on its way. For one thread.
    """

    def __init__(self, client: Any) -> None:
        self._pool: Any = client.connection_pool
        self._connection: Any = None
        self._sent = self._answered = 0  # commands, on this connection
        self.staged: set[str] = set()  # lists that have begun on this connection and go on
        self._lost = False  # a connection, while something was staged; nobody was told yet

    def send(self, commands: Sequence[Sequence[Any]]) -> None:
        """Send commands without a copy of what is in them. Raises RedisError, OSError.

        Once something staged was lost it raises always, until `begin_anew`: the server may have
        lists that only that deletes.
        """
        if self._lost:
            raise redis.ConnectionError("connection lost")
        if self._connection is None:
            self._connection = self._pool.get_connection()
            self._sent = self._answered = 0
        try:
            redis_large.send(self._connection, commands)
        except (redis.RedisError, OSError):
            self._lose()
            raise
        self._sent += len(commands)

    def begin_anew(self) -> None:
        """Begin with a server that has deleted all that was staged."""
        self.staged.clear()
        self._lost = False

    def close(self) -> None:
        """Wait until the server has done all; a connection that is cut takes commands with it."""
        if self._connection is not None and self._sent != self._answered:
            with contextlib.suppress(redis.RedisError, OSError):
                self.answer()()

    def give_up(self) -> None:
        """Drop the connection, if there is one, with all that is on its way."""
        if self._connection is not None:
            self._lose()

    def answer(self) -> Callable[[], Any]:
        """Return a call that reads the answer to the latest command; it raises what `send` does.

        A call that is never made leaves its answer to the next.
        """
        connection = self._connection
        latest = self._sent

        def read() -> Any:
            if connection is not self._connection:  # given up meanwhile, and its answers with it
                raise redis.ConnectionError("connection lost")
            count = latest - self._answered
            self._answered = latest
            try:
                return redis_large.read(connection, count)
            except redis.ResponseError:
                raise
            except (redis.RedisError, OSError):
                self._lose()
                raise
            finally:
                self._give_back()

        return read

    def _give_back(self) -> None:
        """Give the connection back if nothing is on its way."""
        if self._connection is not None and not self.staged and self._sent == self._answered:
            self._pool.release(self._connection)
            self._connection = None

    def _lose(self) -> None:
        connection = self._connection
        self._connection = None
        self._lost = bool(self.staged)
        self.staged.clear()
        connection.disconnect()
        self._pool.release(connection)


class RedisStage:
    """A payload that comes in pieces, each of which is sent on when it is there."""

    def __init__(self, line: WriteLine, key: str, begin: list[Any], end: list[Any]) -> None:
        """key: of the list of pieces. begin, end: the commands that make and delete it."""
        self.key = key
        self.sent = 0
        self._line = line
        self._begin = begin
        self._end = end

    def grow(self, begun: memoryview) -> None:
        """See base.Stage.grow."""
        due = redis_large.pieces(self.key, begun, self.sent, complete=False)
        lost = self.sent and self.key not in self._line.staged
        if not due or lost:
            return
        self._line.staged.add(self.key)
        with contextlib.suppress(redis.RedisError, OSError):  # the append says so
            self._line.send(due if self.sent else [self._begin, *due])
        self.sent += redis_large.PIECE * len(due)

    def drop(self) -> None:
        """See base.Stage.drop."""
        if self.key in self._line.staged:
            self._line.staged.discard(self.key)
            with contextlib.suppress(redis.RedisError, OSError):
                self._line.send([self._end])

    def rest(self, payload: bytes | memoryview) -> list[list[Any]] | None:
        """Return the commands for what is not sent yet, after which the list is the append's.

        None: nothing of it is there.
        """
        if self.key not in self._line.staged:
            return None
        self._line.staged.discard(self.key)
        return redis_large.pieces(self.key, payload, self.sent)
