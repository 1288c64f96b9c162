"""Sockets that listen: in use is said in one line, and an answer waits for no acknowledgement."""

from __future__ import annotations

import asyncio
import socket
import ssl
from contextlib import closing

import pytest
from tacit_client import FederationClient
from tacit_services.doctor.host_route import HostRoute
from tacit_services.enrollment.join_client import JoinClient
from tacit_services.transport.address import NodeAddresses, bind, checked_several, is_https
from tacit_services.transport.pinned_authority import document_at
from tacit_services.transport.proxy import DIRECT

from tacit.errors import ConfigError, ServiceError


def test_of_several_addresses_each_has_its_turn() -> None:
    places = NodeAddresses("a:1,[::1]:2")
    turns = []
    for _ in range(3):
        turns.append(places.current)
        places.advance()
    assert turns == [("a", 1), ("::1", 2), ("a", 1)]
    assert checked_several("a:1,[::1]:2") == "a:1,[::1]:2"
    for wrong in ("", "a:1,", "a:1,b", "a:1;b"):
        with pytest.raises(ValueError, match="expected HOST:PORT, or several with commas"):
            checked_several(wrong)


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


@pytest.mark.parametrize(
    "url", ["https://h", "https://h:1", "https://[::1]:8443/", "https://h:443"]
)
def test_an_https_address_has_a_host_and_perhaps_a_port(url: str) -> None:
    assert is_https(url)


@pytest.mark.parametrize(
    "url",
    ["https://h:0", "https://h:00/", "https://h:x", "https://h:65536", "https://", "http://h", "h:1",
     "https://[::1"],
)  # fmt: skip
def test_another_is_none_nor_is_one_with_port_0(url: str) -> None:
    assert not is_https(url)
    for act in (lambda: JoinClient(url), lambda: document_at(url), lambda: HostRoute(url, DIRECT)):
        with pytest.raises(ConfigError):
            act()
    with pytest.raises(ValueError, match=r"https://HOST:PORT|[Pp]ort|IPv6"):
        FederationClient(url, "token", ssl.create_default_context())
