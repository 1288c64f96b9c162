"""Whoever shows a good token at the host is served, whatever strangers at its address do."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Annotated

import httpx
import pytest
from fastapi import Depends, FastAPI
from fastapi.security import HTTPAuthorizationCredentials
from tacit_services.federation.callers import Callers
from tacit_services.federation.federation_rest import create_app, person_routes
from tacit_services.federation.people import People, Person, Right
from tacit_services.federation.person_access import PERSON_TOKEN, PersonAccess
from tacit_services.transport.http_pace import Caller

from tests.helpers.servers import HOST


@pytest.fixture
def people(tmp_path: Path) -> People:
    return People(tmp_path)


def host(people: People) -> FastAPI:
    """Return a host that says who people are. Its time stands: an allowance stays used up."""
    access = PersonAccess(people)

    def person(
        credentials: Annotated[HTTPAuthorizationCredentials | None, Depends(PERSON_TOKEN)],
    ) -> Person:
        return access.person(credentials)

    return create_app([person_routes(person)], [HOST], Callers(access).caller, clock=lambda: 0.0)


def test_strangers_shut_nobody_out_who_shows_a_token(people: People) -> None:
    app, reader = host(people), people.add("rita", Right.READER)
    digest = "0" * 64  # of the host's authority, as a token is given away
    tokens = (people.operator_token(), reader, f"{reader}.{digest}") * 5

    async def beside_strangers() -> list[int]:
        way = httpx.ASGITransport(app=app, client=("192.0.2.1", 1))  # the address of everybody
        async with httpx.AsyncClient(transport=way, base_url=f"http://{HOST}") as web:

            async def asked(token: str) -> int:
                headers = {"Authorization": f"Bearer {token}"}
                return (await web.get("/v1/me", headers=headers)).status_code

            answers = []
            for token in tokens:
                while await asked("guess") != 429:
                    pass
                answers.append(await asked(token))
            return answers

    assert set(asyncio.run(beside_strangers())) == {200}


def test_whose_token_is_good_is_known_and_the_operator_waits_for_nobody(people: People) -> None:
    tokens = {right: people.add(right.name.lower(), right) for right in Right if right < 3}
    callers = Callers(PersonAccess(people))

    def caller(authorization: str) -> Caller | None:
        headers = [(b"authorization", authorization.encode())]
        return callers.caller({"type": "http", "headers": headers})

    for right, token in tokens.items():
        assert caller(f"Bearer {token}.{'0' * 64}") == Caller(f"person {right.name.lower()}")
    assert caller(f"bearer {people.operator_token()}") == Caller("person operator", waits=False)
    reader = tokens[Right.READER]
    people.remove("reader")
    for word in (f"Bearer {reader}", f"Basic {tokens[Right.RESEARCHER]}", "Bearer", "Bearer .", ""):
        assert caller(word) is None


def test_a_member_is_known_by_the_certificate_that_it_shows(people: People) -> None:
    callers = Callers(PersonAccess(people))

    def caller(*chain: str) -> Caller | None:
        return callers.caller(
            {"type": "http", "headers": [], "extensions": {"tls": {"client_cert_chain": chain}}}
        )

    first, second = caller("one"), caller("another")
    assert first is not None
    assert (first == caller("one"), first == second, first.waits) == (True, False, True)
    assert caller() is None
