"""What strangers and researchers reach by the routes of runs, and what of it is written down."""

from __future__ import annotations

import asyncio
import json
import socketserver
import threading
from collections.abc import Callable, Iterator, MutableMapping
from pathlib import Path
from typing import Annotated, Any

import pytest
from fastapi import Depends, FastAPI, HTTPException
from fastapi.security import HTTPAuthorizationCredentials
from tacit_services.federation.audit_log import AuditLog
from tacit_services.federation.federation_rest import (
    audit_routes,
    create_app,
    run_file_routes,
    run_routes,
)
from tacit_services.federation.file_pool import FilePool
from tacit_services.federation.host_packing import HostPacking
from tacit_services.federation.members import Members
from tacit_services.federation.people import Person, Right
from tacit_services.federation.person_access import PERSON_TOKEN
from tacit_services.federation.run_desk import RunDesk
from tacit_services.federation.run_proxy import RunProxy
from tacit_services.federation.run_records import RunRecord, RunRecords
from tacit_services.federation.run_sockets import RunSockets
from tacit_services.federation.submissions import Submissions
from tacit_services.federation.supervisor import Supervisor

from tacit.errors import ServiceError
from tests.helpers.servers import PATIENCE
from tests.unit.federation.test_submissions import checked_here
from tests.unit.federation.test_supervisor import PRINT, Asked, Process, Rules

STREAMS = ("events", "silence")
PEOPLE_HERE = {
    "adas": Person("ada", Right.RESEARCHER, since=0.0),
    "bobs": Person("bob", Right.RESEARCHER, since=0.0),
    "eves": Person("eve", Right.READER, since=0.0),
    "ops": Person("operator", Right.OPERATOR, since=0.0),
}


def person(
    credentials: Annotated[HTTPAuthorizationCredentials | None, Depends(PERSON_TOKEN)],
) -> Person:
    """Return who asks, by their token."""
    known = PEOPLE_HERE.get("" if credentials is None else credentials.credentials)
    if known is None:
        raise HTTPException(401, "the token is missing or wrong")
    return known


class House:
    """A host's desk with a run of ada's, whose aggregator answers with what it was asked."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.records = RunRecords(folder / "runs")
        self.records.add(RunRecord("retina", PRINT, "ada", 1.0, 1, 1, 60.0, 100, "training"))
        self.rules = Rules()
        self.sockets = RunSockets(folder / "runs")
        supervisor = Supervisor(self.records, self.rules, Asked(), lambda _: Process(), 2, list)
        pool = FilePool(folder / "files")
        submissions = Submissions(self.records, pool, folder / "code", checked_here)
        audit = AuditLog(folder / "audit.jsonl")
        members = Members(folder / "members")
        self.desk = RunDesk(self.records, supervisor, submissions, pool, audit, members.roll)
        packing = HostPacking(folder / "packing", pool, folder / "page.pem")
        self.app: FastAPI = create_app(
            [
                run_routes(self.desk, RunProxy(self.sockets, every=0.05), self.person),
                run_file_routes(packing, self.desk, self.person),
                audit_routes(audit, self.person),
            ],
            [],
        )
        self.asked: list[str] = []
        self.cancelled: set[str] = set()  # tokens
        self.left = threading.Event()  # whoever has read a stream

    def person(
        self, credentials: Annotated[HTTPAuthorizationCredentials | None, Depends(PERSON_TOKEN)]
    ) -> Person:
        """Return who asks, by a token that was not cancelled."""
        if credentials is not None and credentials.credentials in self.cancelled:
            raise HTTPException(401, "the token is missing or wrong")
        return person(credentials)

    def audited(self) -> list[dict[str, Any]]:
        """Return the lines of the audit log."""
        path = self.folder / "audit.jsonl"
        lines = path.read_text().splitlines() if path.exists() else []
        return [json.loads(line) for line in lines]

    def ask(
        self,
        method: str,
        path: str,
        token: str = "",
        length: int = 0,
        read: bool = True,
        body: bytes = b"",
        hear: Callable[[bytes], object] = bool,
    ) -> int:
        """Ask as a client at this machine does; returns the status.

        read: whether a body comes. hear: gets each piece of the answer's.
        """
        length = length or len(body)
        headers = [(b"host", b"127.0.0.1"), (b"content-length", str(length).encode())]
        if body:
            headers.append((b"content-type", b"application/json"))
        headers.append((b"authorization", f"Bearer {token}".encode()))
        scope = {
            "type": "http", "method": method, "path": path, "raw_path": path.encode(),
            "query_string": b"", "headers": headers, "client": ("127.0.0.1", 1),
            "server": ("127.0.0.1", 443), "scheme": "https", "http_version": "1.1",
        }  # fmt: skip
        statuses: list[int] = []
        came: list[bool] = []  # whether the body has

        async def receive() -> dict[str, Any]:
            assert read, "the body is waited for"
            if came:
                await asyncio.Event().wait()  # the client stays
            came.append(True)
            return {"type": "http.request", "body": body, "more_body": False}

        async def send(message: MutableMapping[str, Any]) -> None:
            if message["type"] == "http.response.start":
                statuses.append(message["status"])
            elif message.get("body"):
                hear(message["body"])

        asyncio.run(self.app(scope, receive, send))
        (status,) = statuses
        return status


@pytest.fixture
def house(tmp_path: Path) -> Iterator[House]:
    house = House(tmp_path)

    class Aggregator(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            house.asked.append(self.rfile.readline().decode().rsplit(" ", 1)[0])
            while self.rfile.readline().strip():
                pass
            if house.asked[-1].endswith(STREAMS):
                self.stream()
                return
            self.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")

        def stream(self) -> None:
            """Answer without an end: one event, or one again and again."""
            self.wfile.write(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\ndata: first\n\n")
            talks = house.asked[-1].endswith("events")
            self.connection.settimeout(0.02 if talks else PATIENCE)
            while True:
                try:
                    if talks:
                        self.wfile.write(b"data: another\n\n")
                    if not self.connection.recv(1):
                        break
                except TimeoutError:
                    continue
                except OSError:
                    break
            house.left.set()

    with socketserver.ThreadingUnixStreamServer(
        str(house.sockets.path("retina")), Aggregator
    ) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield house
        server.shutdown()
        thread.join()
    house.sockets.close()


@pytest.mark.parametrize("stream", STREAMS)
def test_whose_token_is_cancelled_reads_no_stream_on(house: House, stream: str) -> None:
    heard: list[bytes] = []

    def cancel(piece: bytes) -> None:
        heard.append(piece)
        house.cancelled.add("adas")

    assert house.ask("GET", f"/v1/runs/retina/{stream}", "adas", hear=cancel) == 200
    assert heard[0].startswith(b"data: first")
    assert house.left.wait(PATIENCE)
    assert house.ask("GET", "/v1/runs/retina/status", "adas") == 401


def test_whose_token_is_good_reads_a_stream_on(house: House) -> None:
    heard: list[bytes] = []

    def hear(piece: bytes) -> None:
        heard.append(piece)
        if len(heard) == 20:  # each some hundredths of a second after the one before
            house.cancelled.add("adas")

    house.ask("GET", "/v1/runs/retina/events", "adas", hear=hear)
    assert len(heard) >= 20


@pytest.mark.parametrize("path", ["/v1/runs", "/v1/run-files"])
def test_a_strangers_offer_is_refused_before_it_is_read(house: House, path: str) -> None:
    assert house.ask("POST", path, "nobodys", length=1 << 22, read=False) == 401


@pytest.mark.parametrize(
    ("token", "status"), [("", 401), ("adas", 403), ("eves", 403), ("ops", 200)]
)
def test_what_was_done_is_for_the_operator(house: House, token: str, status: int) -> None:
    assert house.ask("GET", "/v1/audit", token) == status


def test_what_a_researcher_asks_of_their_run_is_written_down(house: House) -> None:
    assert house.ask("POST", "/v1/runs/retina/halt", "adas") == 200
    assert house.asked == ["POST /v1/halt"]
    (line,) = house.audited()
    assert (line["who"], line["run"], line["path"]) == ("ada", "retina", "halt")


@pytest.mark.parametrize(
    ("reason", "status"),
    [("no more budget", 202), ("a\nretina2  ended", 422), ("\x1b[31m", 422), ("x" * 201, 422)],
)
def test_a_stops_reason_is_a_line(house: House, reason: str, status: int) -> None:
    body = json.dumps({"reason": reason}).encode()
    assert house.ask("POST", "/v1/runs/retina/stop", "adas", body=body) == status
    assert len(house.audited()) == (1 if status == 202 else 0)


@pytest.mark.parametrize("token", ["bobs", "eves", "nobodys"])
def test_nobody_else_changes_a_run(house: House, token: str) -> None:
    assert house.ask("POST", "/v1/runs/retina/halt", token) in (401, 403, 404)
    assert (house.asked, house.audited()) == ([], [])


@pytest.mark.parametrize("path", ["../metrics", "x/../../metrics", "./status", "/status", ".."])
def test_a_path_that_leads_out_of_the_interface_is_not_passed_on(house: House, path: str) -> None:
    assert house.ask("GET", f"/v1/runs/retina/{path}", "adas") == 404
    assert house.asked == []


@pytest.mark.parametrize("path", ["status?x=1", "status#x", "sta\ttus", "st atus"])
def test_a_path_is_one_path_whatever_it_contains(house: House, path: str) -> None:
    assert house.ask("GET", f"/v1/runs/retina/{path}", "adas") == 200
    (asked,) = house.asked
    assert asked.startswith("GET /v1/st")
    assert not set("?# \r\n").intersection(asked.removeprefix("GET "))


def test_an_answer_is_followed_again_where_the_broker_was_silent(house: House) -> None:
    silent = [False, True]  # taken from the end

    def once(run: str, member: str) -> None:
        if silent.pop():
            raise ServiceError("broker: no answer")
        Rules.open(house.rules, run, member)

    house.rules.open = once  # type: ignore[method-assign]
    content = {"fingerprint": PRINT, "answer": "accepted", "reason": ""}
    with pytest.raises(ServiceError):
        house.desk.answer("retina", "edge-3", content)
    house.desk.answer("retina", "edge-3", content)
    assert ("retina", "edge-3") in house.rules.opened
    assert [line["did"] for line in house.audited()] == ["accepted"]


def test_no_run_counts_on_a_member_that_was_revoked(house: House) -> None:
    content = {"fingerprint": PRINT, "answer": "accepted", "reason": ""}
    for member in ("edge-3", "edge-4"):
        house.desk.answer("retina", member, content)
    house.desk.gone("edge-3", "unavailable")
    record = house.records.get("retina")
    assert record is not None
    assert (record.consenting, record.refusing) == (["edge-4"], [("edge-3", "unavailable")])


def test_who_has_withdrawn_is_told_from_who_never_took_part(house: House) -> None:
    content = {"fingerprint": PRINT, "answer": "accepted", "reason": ""}
    house.desk.answer("retina", "edge-3", content)
    for member, answer in (("edge-3", "withdrawn"), ("edge-4", "declined")):
        house.desk.answer("retina", member, content | {"answer": answer, "reason": "declined"})
    (stands,) = house.desk.runs(PEOPLE_HERE["adas"])
    assert stands["refused"] == [
        {"member": "edge-3", "reason": "withdrawn"},
        {"member": "edge-4", "reason": "declined"},
    ]
    assert stands["state"] == "waiting"
