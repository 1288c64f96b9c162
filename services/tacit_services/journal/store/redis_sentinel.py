"""A Redis whose primary may change: its address by Sentinel, and writes that replicas have.

Redis answers a write before its replicas have it, and a fail-over forgets what the new primary had
not. So each write is followed by `WAIT`, which counts the replicas that have it. Fewer than asked
for is a ServiceError: nobody is told that the write counts. The next `open` finds out whether it
does, as `WAIT` behind a write covers all that came before.

What `WAIT` has counted is in a replica's memory. It is lost where another replica, without it,
becomes the primary. To lose nothing then, count all replicas (docs/operations.md).
"""

from __future__ import annotations

import re
from typing import Any, NamedTuple
from urllib.parse import parse_qsl, unquote, urlsplit

from redis.backoff import NoBackoff
from redis.retry import Retry
from redis.sentinel import Sentinel

from tacit import errors

SCHEME = "redis+sentinel"
_CONNECT_S = 5.0
_SENTINEL_S = 1.0  # so that one that is away costs little: the next is asked
_FORM = f"expected {SCHEME}://host:port,host:port/name?replicas=1&wait_ms=2000"


class Copies(NamedTuple):
    """How many replicas must have a write, and for how long they are waited for."""

    replicas: int
    wait_ms: int

    @property
    def command(self) -> list[Any]:
        """The command behind a write, which answers how many replicas have it."""
        return ["WAIT", self.replicas, self.wait_ms]

    def check(self, display_url: str, count: int) -> None:
        """Raise ServiceError where only `count` replicas have a write."""
        if count < self.replicas:
            raise errors.ServiceError(
                f"store: {display_url}: {count} of {self.replicas} replicas had a write after "
                f"{self.wait_ms} ms; waiting for them"
            )


def connected_later(url: str, display_url: str, reply_s: float) -> tuple[Any, Copies]:
    """Return a client of the primary that Sentinel names at each connection, and what it waits for.

    Raises ConfigError for an address that cannot be meant.
    """
    try:
        parts = urlsplit(url)
        if not (name := re.fullmatch(r"/([\w.-]+)", parts.path)):
            raise ValueError(_FORM)
        options = dict(parse_qsl(parts.query, strict_parsing=True) if parts.query else ())
        copies = Copies(int(options.pop("replicas", 1)), int(options.pop("wait_ms", 2000)))
        database = int(options.pop("db", 0))
        if options or not 1 <= copies.replicas <= 99 or not 1 <= copies.wait_ms < 1000 * reply_s:
            raise ValueError(_FORM)
        user, _, places = parts.netloc.rpartition("@")
        sentinels = [_place(each) for each in places.split(",")]
    except ValueError as error:
        raise errors.ConfigError(f"store: {display_url!r}: {error}") from error
    login, _, password = user.partition(":")
    common: dict[str, Any] = {"protocol": 2, "retry": Retry(NoBackoff(), 0)}
    times = {"socket_connect_timeout": _SENTINEL_S, "socket_timeout": _SENTINEL_S}
    untyped: Any = Sentinel  # redis-py leaves it untyped
    return untyped(sentinels, sentinel_kwargs=common | times).master_for(
        name[1],
        db=database,
        username=unquote(login) or None,
        password=unquote(password) or None,
        socket_connect_timeout=_CONNECT_S,
        socket_timeout=reply_s,
        **common,
    ), copies


def _place(address: str) -> tuple[str, int]:
    host, _, port = address.rpartition(":")
    if not host or not re.fullmatch("[0-9]{1,5}", port) or not 0 < int(port) < 65536:
        raise ValueError(_FORM)
    return host.strip("[]"), int(port)
