"""Sockets that listen: in use is said in one line, and an answer waits for no acknowledgement."""

from __future__ import annotations

import asyncio
import socket
from contextlib import closing

import pytest
from tacit_services.transport.address import bind

from tacit.errors import ServiceError


def test_what_is_accepted_sends_at_once() -> None:
    async def accepted() -> int:
        option: asyncio.Future[int] = asyncio.get_running_loop().create_future()

        def come(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            accepted_socket: socket.socket = writer.get_extra_info("socket")
            option.set_result(accepted_socket.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))
            writer.close()

        with bind("127.0.0.1:0") as listener:
            server = await asyncio.start_server(come, sock=listener)
            async with server:
                _, writer = await asyncio.open_connection(*listener.getsockname())
                nodelay = await asyncio.wait_for(option, 60)
                writer.close()
                return nodelay

    assert asyncio.run(accepted()) != 0


def test_an_address_in_use_is_said_in_one_line() -> None:
    with closing(bind("127.0.0.1:0")) as listener:
        listener.listen()
        host, port = listener.getsockname()
        with pytest.raises(ServiceError, match=f"^http {host}:{port}: Address already in use$"):
            bind(f"{host}:{port}")
