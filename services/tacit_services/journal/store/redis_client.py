"""The connection to Redis: its address, its limits in time, and its errors in one line."""

from __future__ import annotations

import re
from urllib.parse import urlsplit, urlunsplit

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from tacit import errors

_CONNECT_S = 5.0


def without_password(url: str) -> str:
    """Return `url` with its password, if any, replaced by `***`: fit for messages and logs."""
    try:
        parts = urlsplit(url)
    except ValueError:  # for example an unfinished [IPv6] address
        return re.sub(r"//.*@", "//***@", url)
    user, colon, _ = parts.netloc.rpartition("@")[0].partition(":")
    if not colon:
        return url
    return urlunsplit(parts._replace(netloc=f"{user}:***@{parts.netloc.rpartition('@')[2]}"))


def reason(error: Exception) -> str:
    """Return what happened, in one line, without the command that met the error."""
    advice = {
        redis.exceptions.OutOfMemoryError: (
            "out of memory: raise maxmemory or lower the journal's max_bytes"
        ),
        redis.exceptions.BusyLoadingError: "still loading its data; try again",
        redis.exceptions.ReadOnlyError: "is a read-only replica; give the address of the primary",
    }
    for kind, line in advice.items():
        if isinstance(error, kind):
            return line
    text = str(error).rpartition(" of pipeline caused error: ")[2]
    return (text.splitlines() or [type(error).__name__])[0]


def connected_later(url: str, display_url: str, reply_s: float) -> redis.Redis:
    """Return a client for `url`, which connects later.

    Raises ConfigError for an address that cannot be meant.
    """
    try:
        parts = urlsplit(url)
        if parts.scheme == "unix":
            usable = bool(parts.path)
        else:
            usable = bool(parts.hostname)
        # redis-py falls back to database 0 for a path that is not a number.
        if not usable or (parts.scheme != "unix" and not re.fullmatch(r"(/\d*)?", parts.path)):
            raise ValueError(
                "expected redis://host:port/db, rediss://host:port/db or unix:///path?db=0"
            )
        client = redis.Redis.from_url(
            url,
            decode_responses=False,
            protocol=2,  # the same answers from every server, and no HELLO
            retry=Retry(NoBackoff(), 0),
            socket_connect_timeout=_CONNECT_S,
            socket_timeout=reply_s,
        )
        # Made and thrown away unconnected: an unknown ?option is a TypeError only here.
        client.connection_pool.connection_class(**client.connection_pool.connection_kwargs)
    except (ValueError, TypeError) as error:
        raise errors.ConfigError(f"store: {display_url!r}: {error}") from error
    return client
