"""A port that is picked now and bound later: no outgoing connection gets it meanwhile."""

from __future__ import annotations

import socket
from contextlib import ExitStack

from tacit_services.children import processes


def test_a_free_port_is_none_that_an_outgoing_connection_may_get() -> None:
    first, last = processes._ports_of_clients()
    ports = [processes.free_port() for _ in range(50)]
    assert all(not first <= port <= last for port in ports)
    assert len(set(ports)) > 45


def test_a_port_is_free_for_who_binds_it() -> None:
    with ExitStack() as stack:
        for _ in range(20):
            server = stack.enter_context(socket.socket())
            server.bind(("127.0.0.1", processes.free_port()))
            server.listen()
