"""A real PostgreSQL 15, Debian's, whose files initdb makes in a temporary folder."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psycopg
import pytest

from tests.helpers.servers import HOST, PATIENCE, Server, free_port, need, wait_for

BINARIES = Path("/usr/lib/postgresql/15/bin")
MEMORY = Path("/dev/shm")
ACCOUNT = "postgres"  # the package's: the server does not run as root


class PostgresServer(Server):
    """A PostgreSQL; `url` is its database, whose user needs no password on loopback."""

    @property
    def url(self) -> str:
        """Address for open_store."""
        return f"postgresql://tacit@{self.host}:{self.port}/postgres"

    def kill(self) -> None:
        """Kill all its processes with SIGKILL, as if its machine had died."""
        if self._process is None:
            return
        children = Path(f"/proc/{self.pid}/task/{self.pid}/children").read_text().split()
        super().kill()
        for child in children:
            with suppress(ProcessLookupError):
                os.kill(int(child), signal.SIGKILL)
        # They hold the memory that a successor would find in use.
        wait_for(lambda: not any(_lives(int(child)) for child in children))

    def stop(self) -> None:
        """End the server in order, without waiting for its clients."""
        self._end(lambda process: process.send_signal(signal.SIGINT))

    def _answers(self, connection: socket.socket) -> bool:
        try:
            psycopg.connect(self.url, connect_timeout=int(PATIENCE)).close()
        except psycopg.OperationalError:  # it still goes through its log
            return False
        return True


def _lives(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


@contextmanager
def postgres_server(*options: str) -> Iterator[PostgresServer]:
    """Yield a server on empty files; `options` are settings, as "fsync=off"."""
    if not (BINARIES / "postgres").exists():
        pytest.skip("postgresql-15 is not installed (make nightly-packages)")
    other = _as_other() if os.geteuid() == 0 else []
    # Not below pytest's folder, which nobody but its owner may enter; in memory where there is
    # room, as a kill leaves files alone.
    place = MEMORY if MEMORY.is_dir() and shutil.disk_usage(MEMORY).free > 1 << 30 else None
    folder = Path(tempfile.mkdtemp(prefix="postgres-", dir=place))
    try:
        if other:
            shutil.chown(folder, ACCOUNT, ACCOUNT)
        command = [*other, str(BINARIES / "initdb"), "-D", str(folder / "data"), "-U", "tacit"]
        more = ["--auth=trust", "--encoding=UTF8", "--locale=C", "--no-sync"]
        subprocess.run([*command, *more], check=True, capture_output=True, timeout=PATIENCE)
        port = free_port()
        settings = [f"listen_addresses={HOST}", f"unix_socket_directories={folder}", *options]
        command = [*other, str(BINARIES / "postgres"), "-D", str(folder / "data"), "-p", str(port)]
        flags = [word for setting in settings for word in ("-c", setting)]
        server = PostgresServer([*command, *flags], port, folder / "log.txt")
        try:
            server.start()
            yield server
        finally:
            server.kill()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _as_other() -> list[str]:
    """Return the words before a command that runs as the package's user, in the same process."""
    return [need("setpriv"), f"--reuid={ACCOUNT}", f"--regid={ACCOUNT}", "--clear-groups"]


def forget_all(url: str) -> None:
    """Take away every table of the database."""
    with psycopg.connect(url) as db:
        db.execute("DROP SCHEMA public CASCADE")
        db.execute("CREATE SCHEMA public")
