"""How often one address may ask, and that memory for addresses is bounded."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from dataclasses import dataclass, field

import pytest
from starlette.types import Message, Receive, Scope, Send
from tacit_services.transport.http_pace import BURST, MOST, RATE, Caller, Pace

ALL, BEYOND = int(BURST), 7


async def well(scope: Scope, receive: Receive, send: Send) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b""})


@dataclass
class Desk:
    """An application behind a pace, and its clock."""

    now: float = 100.0
    pace: Pace = field(init=False)

    def __post_init__(self) -> None:
        self.pace = Pace(
            well, lambda scope: scope["path"] == "/free", self.caller, clock=lambda: self.now
        )

    def caller(self, scope: Scope) -> Caller | None:
        """Return who asks, as a header says."""
        name = scope.get("caller")
        return None if name is None else Caller(name, waits=name != "operator")

    def ask(self, address: str, path: str = "/", name: str = "") -> list[Message]:
        """Return what is answered to one request."""
        sent: list[Message] = []

        async def send(message: Message) -> None:
            sent.append(message)

        async def receive() -> Message:
            raise AssertionError("no byte of a body is waited for")

        scope = {"type": "http", "path": path, "client": (address, 1), "headers": []}
        if name:
            scope["caller"] = name
        asyncio.run(self.pace(scope, receive, send))
        return sent

    def asked(self, address: str, times: int, path: str = "/", name: str = "") -> Counter[int]:
        """Count the statuses of `times` requests."""
        return Counter(self.ask(address, path, name)[0]["status"] for _ in range(times))


@pytest.fixture
def desk() -> Desk:
    return Desk()


def test_an_address_has_its_allowance_and_then_its_pace(desk: Desk) -> None:
    assert desk.asked("192.0.2.1", ALL + BEYOND) == {200: ALL, 429: BEYOND}
    desk.now += 1.0
    assert desk.asked("192.0.2.1", ALL)[200] == RATE
    desk.now += 3600.0
    assert desk.asked("192.0.2.1", ALL + BEYOND) == {200: ALL, 429: BEYOND}


def test_another_address_and_what_is_free_do_not_wait(desk: Desk) -> None:
    assert desk.asked("192.0.2.1", ALL + BEYOND)[429] == BEYOND
    assert desk.asked("192.0.2.2", ALL) == {200: ALL}
    assert desk.asked("192.0.2.1", ALL + BEYOND, "/free") == {200: ALL + BEYOND}


def test_strangers_take_nothing_from_who_is_known_at_their_address(desk: Desk) -> None:
    assert desk.asked("192.0.2.1", ALL + BEYOND)[429] == BEYOND
    assert desk.asked("192.0.2.1", ALL + BEYOND, name="ada") == {200: ALL, 429: BEYOND}
    assert desk.asked("192.0.2.1", ALL + BEYOND, name="bob") == {200: ALL, 429: BEYOND}
    assert desk.asked("192.0.2.1", ALL + BEYOND, name="operator") == {200: ALL + BEYOND}
    assert desk.asked("192.0.2.1", BEYOND) == {429: BEYOND}


def test_who_is_known_is_looked_up_only_where_the_address_is_at_its_end(desk: Desk) -> None:
    desk.asked("192.0.2.1", ALL, name="ada")
    assert desk.pace._callers.buckets == {}


def test_who_owns_a_network_of_ipv6_is_one_address(desk: Desk) -> None:
    statuses = Counter[int]()
    for number in range(ALL + BEYOND):
        statuses += desk.asked(f"2001:db8::{number:x}", 1)
    assert statuses == {200: ALL, 429: BEYOND}
    assert desk.asked("2001:db8:0:1::1", 1) == {200: 1}


def test_a_refusal_says_when_to_come_again(desk: Desk) -> None:
    desk.asked("192.0.2.1", ALL)
    head, body = desk.ask("192.0.2.1")
    headers = dict(head["headers"])
    assert (head["status"], headers[b"retry-after"]) == (429, b"1")
    assert headers[b"content-type"] == b"application/problem+json"
    assert "operator's token" in json.loads(body["body"])["detail"]


def test_the_memory_for_addresses_is_bounded_and_the_last_share_one_allowance(desk: Desk) -> None:
    def crowd(first: int) -> Counter[int]:
        statuses = Counter[int]()
        for number in range(first, first + ALL + BEYOND):
            statuses += desk.asked(f"host-{number}", 1)
        return statuses

    for number in range(MOST):
        desk.asked(f"host-{number}", 1)
    assert crowd(MOST) == {200: ALL, 429: BEYOND}
    assert len(desk.pace._addresses.buckets) == MOST
    # Who was there before keeps its own, and all are told apart again when those have gone.
    assert desk.asked("host-5", ALL) == {200: ALL - 1, 429: 1}
    desk.now += BURST / RATE
    assert crowd(2 * MOST) == {200: ALL + BEYOND}
    assert len(desk.pace._addresses.buckets) == ALL + BEYOND
