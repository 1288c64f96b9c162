"""HOST:PORT, and listening there."""

from __future__ import annotations

import socket
from typing import Annotated

from pydantic import AfterValidator

from tacit.errors import ServiceError


def checked(value: str) -> str:
    """`value` if it is HOST:PORT. Raises ValueError."""
    host, _, port = value.rpartition(":")
    if not host or not port.isdigit() or not 0 <= int(port) < 65536:
        raise ValueError("expected HOST:PORT")
    return value


HostPort = Annotated[str, AfterValidator(checked)]


def split_host_port(value: str) -> tuple[str, int]:
    """("127.0.0.1", 1883) of "127.0.0.1:1883"."""
    host, _, port = value.rpartition(":")
    return host.strip("[]"), int(port)


def bind(address: str) -> socket.socket:
    """A TCP socket bound to HOST:PORT. Raises ServiceError: in use, not ours."""
    host, port = split_host_port(address)
    listener = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
    except OSError as error:
        listener.close()
        raise ServiceError(f"http {address}: {error.strerror or error}") from error
    return listener
