"""Strangers at a port: as many connections as they can hold, of every kind that holds something.

A process of its own: `python -m tests.helpers.attackers HOST:PORT rest|enroll SECONDS`.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import resource
import socket
import sys
import time

HELD = 1500  # connections that are to be open at a time
PAUSE = 0.002  # seconds between two attempts; who wants more needs more machines
_ESTABLISHED = 1  # tcpi_state
SOURCES = tuple(f"127.0.0.{number}" for number in range(2, 10))
_TO = b"Host: localhost\r\n"
REST = (
    b"",
    b"GET /v1/status HTTP/1.1\r\nHost: ",
    b"POST /v1/halt HTTP/1.1\r\n" + _TO + b"Content-Length: 100\r\n\r\n{",
    b"GET /v1/events HTTP/1.1\r\n" + _TO + b"\r\n",
    b"GET /v1/model/weights HTTP/1.1\r\n" + _TO + b"\r\n",
    b"GET /v1/model/weights HTTP/1.1\r\n" + _TO + b"Connection: close\r\n\r\n",
    b"GET /v1/status HTTP/1.1\r\n" + _TO + b"\r\n",
    20 * (b"GET /v1/edges HTTP/1.1\r\n" + _TO + b"\r\n"),
    b"\x16\x03\x01 garbage\r\n\r\n",
)
ENROLL = (b"", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc", b"GET / HTTP/1.1\r\n\r\n", b"\x16" * 5000)


async def _hold(address: tuple[str, int], source: str, payload: bytes, until: float) -> None:
    """Send `payload` on one connection and read nothing, until the other side closes it."""
    connection = socket.socket()
    connection.setblocking(False)
    # An attacker's buffers are small: what it does not read stays with the server.
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    loop = asyncio.get_running_loop()
    with contextlib.suppress(OSError), connection:
        connection.bind((source, 0))
        await loop.sock_connect(connection, address)
        await loop.sock_sendall(connection, payload)
        while time.monotonic() < until:
            await asyncio.sleep(0.5)
            if _closed(connection):
                return


def _closed(connection: socket.socket) -> bool:
    """Check whether the other side has closed the connection, whether or not its data was read."""
    return connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)[0] != _ESTABLISHED


async def attack(host: str, port: int, kinds: tuple[bytes, ...], seconds: float) -> int:
    """Hold HELD connections; returns how many were made."""
    until, tasks, attempts = time.monotonic() + seconds, set[asyncio.Task[None]](), 0
    for source, payload in zip(itertools.cycle(SOURCES), itertools.cycle(kinds), strict=False):
        if time.monotonic() > until:
            break
        if len(tasks) < HELD:
            task = asyncio.ensure_future(_hold((host, port), source, payload, until))
            tasks.add(task)
            task.add_done_callback(tasks.discard)
            attempts += 1
        await asyncio.sleep(PAUSE)
    await asyncio.gather(*tasks, return_exceptions=True)
    return attempts


def main() -> None:
    """Attack as the arguments state, and print how many connections were opened."""
    address, what, seconds = sys.argv[1:]
    host, _, port = address.rpartition(":")
    os.nice(10)  # it stands for other machines, whose processors are not ours
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 4096), hard))
    kinds = REST if what == "rest" else ENROLL
    sys.stdout.write(f"{asyncio.run(attack(host, int(port), kinds, float(seconds)))}\n")


if __name__ == "__main__":
    main()
