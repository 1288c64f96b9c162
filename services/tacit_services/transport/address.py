"""Addresses, HOST:PORT or the path of a Unix socket, and sockets that listen at one."""

from __future__ import annotations

import re
import socket
from pathlib import Path
from typing import Annotated
from urllib.parse import urlsplit

from pydantic import AfterValidator

from tacit.errors import ConfigError, ServiceError

_PORT = re.compile("[0-9]{1,5}")  # in ASCII: a superscript is a digit, too, and no number


def checked(value: str) -> str:
    """Return `value` if it has the form HOST:PORT. Raises ValueError."""
    host, _, port = value.rpartition(":")
    if not host or not _PORT.fullmatch(port) or int(port) >= 65536:
        raise ValueError("expected HOST:PORT")
    return value


def is_https(url: str) -> bool:
    """Return whether `url` is https://HOST or https://HOST:PORT.

    Port 0 is none: libraries would take it for 443, where somebody else may answer.
    """
    try:
        parts = urlsplit(url)
        return url.startswith("https://") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False


UNIX = "unix:"  # before the path of a socket of this machine


def checked_place(value: str) -> str:
    """Return `value` if it has the form HOST:PORT or unix:/PATH. Raises ValueError."""
    path = value.removeprefix(UNIX)
    if path == value:
        return checked(value)
    if not Path(path).is_absolute():
        raise ValueError("expected HOST:PORT or unix:/PATH")
    return value


def checked_several(value: str) -> str:
    """Return `value` if it has the form HOST:PORT,HOST:PORT, of one or more. Raises ValueError."""
    try:
        for each in value.split(","):
            checked(each)
    except ValueError as error:
        raise ValueError("expected HOST:PORT, or several with commas between") from error
    return value


HostPort = Annotated[str, AfterValidator(checked)]
HostPorts = Annotated[str, AfterValidator(checked_several)]
ListenPlace = Annotated[str, AfterValidator(checked_place)]


def split_host_port(value: str) -> tuple[str, int]:
    """Split an address into host and port: "127.0.0.1:1883" gives ("127.0.0.1", 1883)."""
    host, _, port = value.rpartition(":")
    return host.strip("[]"), int(port)


class NodeAddresses:
    """The addresses of one server, or of a cluster's nodes, of which one is tried at a time."""

    def __init__(self, addresses: str) -> None:
        """addresses: HOST:PORT, or several with commas between; the first is tried first."""
        self._places = [split_host_port(each) for each in addresses.split(",")]
        self._turn = 0

    def __len__(self) -> int:
        return len(self._places)

    def __str__(self) -> str:
        return ", ".join(f"{host}:{port}" for host, port in self._places)

    @property
    def current(self) -> tuple[str, int]:
        """Host and port of the one to try now."""
        return self._places[self._turn]

    def advance(self) -> None:
        """Go on to the next, as this one was of no use; behind the last comes the first."""
        self._turn = (self._turn + 1) % len(self._places)


def bind(address: str) -> socket.socket:
    """Return a socket bound to HOST:PORT, or to unix:/PATH, which its owner alone may connect to.

    A socket that a dead process has left at PATH is replaced. Raises ServiceError where the address
    is in use or not this machine's.
    """
    if address.startswith(UNIX):
        return _bind_path(Path(address.removeprefix(UNIX)))
    host, port = split_host_port(address)
    if ":" in host:
        family = socket.AF_INET6
    else:
        family = socket.AF_INET
    # With the protocol named, asyncio sets TCP_NODELAY on what it accepts; without it every answer
    # in two pieces waits 40 ms for the other side's acknowledgement.
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
    except OSError as error:
        listener.close()
        raise ServiceError(f"http {address}: {error.strerror or error}") from error
    return listener


def _bind_path(path: Path) -> socket.socket:
    if not hasattr(socket, "AF_UNIX"):
        raise ConfigError(f"http {UNIX}{path}: this system has no Unix sockets; name HOST:PORT")
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        path.unlink(missing_ok=True)
        listener.bind(str(path))
        path.chmod(0o600)  # nobody can connect before it listens
    except OSError as error:
        listener.close()
        raise ServiceError(f"http {UNIX}{path}: {error.strerror or error}") from error
    return listener
