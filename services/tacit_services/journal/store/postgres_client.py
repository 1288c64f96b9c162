"""The connection to PostgreSQL: its address, what its server must promise, and silence.

An accepted message must be on disk. So a server that answers earlier is refused, in one line. What
an operator changes in a server that runs is seen at the next connection, except for
`synchronous_commit`, which every connection keeps as it was.
"""

from __future__ import annotations

import time
from typing import Any, TypeVar

import psycopg
from psycopg.abc import PQGen
from psycopg.conninfo import conninfo_to_dict
from psycopg.rows import TupleRow

from tacit import errors

OLDEST = 15  # the major version that the tests run on, and the oldest that is still mended
_CONNECT_S = 5
_SAFE = ("on", "remote_apply")  # values of synchronous_commit that wait for every disk there is
_FORM = "expected postgresql://user@host:port/database"
R = TypeVar("R")


class SilenceEnds(psycopg.Connection[TupleRow]):
    """A connection that gives up a server which is silent for `silent_s` seconds.

    libpq waits for ever where the server's machine still acknowledges packets.
    """

    silent_s = 30.0

    def wait(self, gen: PQGen[R], *times: Any, **more: Any) -> R:
        """See psycopg.Connection.wait. Raises OperationalError after the silence."""
        return super().wait(_until_silent(gen, self.silent_s), *times, **more)


def _until_silent(steps: PQGen[R], seconds: float) -> PQGen[R]:
    """Run `steps`, which are told every tenth of a second that nothing has come (0)."""
    heard = time.monotonic()
    ready: Any = None
    while True:
        try:
            wanted = steps.send(ready)
        except StopIteration as end:
            result: R = end.value
            return result
        ready = yield wanted
        if ready:
            heard = time.monotonic()
        elif time.monotonic() - heard > seconds:
            raise psycopg.OperationalError(f"no answer for {seconds:g} s")


def display(url: str) -> str:
    """Return `url` without user, password and options: fit for messages and logs.

    Raises ConfigError for an address that cannot be meant.
    """
    place = f"{url.partition('://')[0]}://…"
    try:
        parts = conninfo_to_dict(url)
    except psycopg.ProgrammingError as error:
        raise errors.ConfigError(f"store: '{place}': {_line(error)}; {_FORM}") from error
    if not parts.get("dbname") or not (parts.get("host") or parts.get("service")):
        raise errors.ConfigError(f"store: '{place}': no host or no database; {_FORM}")
    if "@" in str(parts.get("host", "")):
        raise errors.ConfigError(f"store: '{place}': write @ in a password as %40; {_FORM}")
    hosts = str(parts.get("host", "")).split(",")
    ports = str(parts.get("port", "")).split(",")
    ports *= len(hosts) if len(ports) == 1 else 1
    places = (":".join(filter(None, place)) for place in zip(hosts, ports, strict=False))
    return f"postgresql://{','.join(places)}/{parts['dbname']}"


def reason(error: psycopg.Error) -> str:
    """Return what happened, in one line."""
    if isinstance(error, psycopg.errors.DiskFull):
        return f"{_line(error)}: make room, and the run goes on"
    if isinstance(error, psycopg.errors.ReadOnlySqlTransaction):
        return "is a standby or read-only; give the address of the primary"
    return _line(error)


def connect(url: str, place: str, silent_s: float) -> SilenceEnds:
    """Return a connection to a server that keeps what it has confirmed.

    Raises psycopg.Error, ConfigError for a server that may forget, ServiceError for a standby.
    """
    db = SilenceEnds.connect(
        url, autocommit=True, connect_timeout=_CONNECT_S, application_name="tacit"
    )
    try:
        db.silent_s = silent_s
        _check(db, place)
        limit = f"{silent_s * 1000:.0f}"
        # A process that hangs in the middle of a write must not keep its successor out.
        for name in ("lock_timeout", "idle_in_transaction_session_timeout", "statement_timeout"):
            db.execute("SELECT set_config(%s, %s, false)", (name, limit))
    except BaseException:
        db.close()
        raise
    return db


def _check(db: SilenceEnds, place: str) -> None:
    """Refuse a server that may forget; a commit of this connection waits for the disk from here."""
    major = db.info.server_version // 10_000
    if major < OLDEST:
        raise errors.ConfigError(
            f"store: {place}: PostgreSQL {major} is too old; {OLDEST} or newer is needed"
        )
    values: dict[str, str] = dict(
        db.execute(
            "SELECT name, setting FROM pg_settings WHERE name IN ('fsync', 'synchronous_commit')"
        ).fetchall()
    )
    if values["fsync"] != "on":
        raise errors.ConfigError(
            f"store: {place}: fsync={values['fsync']} loses accepted messages in a power cut, and "
            "may damage the rest; set it to on"
        )
    if values["synchronous_commit"] not in _SAFE:
        raise errors.ConfigError(
            f"store: {place}: synchronous_commit={values['synchronous_commit']} confirms a message "
            "before it is on every disk; set it to on, for this database or its user"
        )
    db.execute(
        "SELECT set_config('synchronous_commit', %s, false)", (values["synchronous_commit"],)
    )
    if db.execute("SELECT pg_is_in_recovery()").fetchone() == (True,):
        raise errors.ServiceError(f"store: {place}: is a standby; give the address of the primary")


def _line(error: psycopg.Error) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]
