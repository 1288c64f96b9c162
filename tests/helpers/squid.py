"""A real HTTP proxy, Debian's squid, on a free loopback port."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.helpers.servers import HOST, Server, free_port, need

_NCSA = "/usr/lib/squid/basic_ncsa_auth"


class Squid(Server):
    """A squid; `url` is what HTTPS_PROXY would be."""

    @property
    def address(self) -> str:
        return f"{self.host}:{self.port}"

    def tunnels(self) -> list[str]:
        """Return the addresses that tunnels were asked for, each with squid's verdict."""
        lines = (self._log.parent / "access.log").read_text().splitlines()
        fields = [line.split() for line in lines]
        return [f"{field[3]} {field[6]}" for field in fields if field[5] == "CONNECT"]


@contextmanager
def squid(
    users: dict[str, str] | None = None, *, ports: str = "", host: str = HOST
) -> Iterator[Squid]:
    """Yield a squid that lets tunnels through, of `users` (with passwords), to `ports` only.

    host: the address that it listens at.
    """
    binary, port = need("squid"), free_port()
    # Not in pytest's folder: squid does not stay root, and others cannot enter that.
    folder = Path(tempfile.mkdtemp(prefix="squid-"))
    lines = [
        f"http_port {host}:{port}",
        f"pid_filename {folder}/squid.pid",
        f"access_log stdio:{folder}/access.log",
        f"cache_log {folder}/cache.log",
        f"coredump_dir {folder}",
        "cache deny all",
        "shutdown_lifetime 0 seconds",
        "pinger_enable off",
        *([f"acl ports port {ports}", "http_access deny !ports"] if ports else []),
    ]
    if users is None:
        lines.append("http_access allow all")
    else:
        passwords = folder / "passwords"
        passwords.write_text("".join(f"{name}:{_hash(word)}\n" for name, word in users.items()))
        passwords.chmod(0o644)
        lines += [
            f"auth_param basic program {_NCSA} {passwords}",
            "auth_param basic children 1",
            "acl known proxy_auth REQUIRED",
            "http_access allow known",
            "http_access deny all",
        ]
    conf = folder / "squid.conf"
    conf.write_text("\n".join(lines) + "\n")
    if os.geteuid() == 0:
        shutil.chown(folder, "proxy", "proxy")
    # Its shared memory has its service's name, and is there until it ends in order.
    command = [binary, "-N", "-n", f"test{port}", "-f", str(conf)]
    server = Squid(command, port, folder / "squid.log")
    server.host = host
    try:
        server.start()
        yield server
    finally:
        server.stop()
        shutil.rmtree(folder)


def _hash(password: str) -> str:
    command = ["openssl", "passwd", "-apr1", password]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
