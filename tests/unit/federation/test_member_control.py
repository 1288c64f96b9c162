"""What the operator asks about members and tokens is done whole, whatever their names are."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from tacit_services.enrollment import certificates
from tacit_services.enrollment.authority import CertificateAuthority
from tacit_services.enrollment.join_tokens import JoinTokens
from tacit_services.federation.audit_log import AuditLog
from tacit_services.federation.federation_rest import create_app, member_routes
from tacit_services.federation.member_control import MemberControl
from tacit_services.federation.members import Members
from tacit_services.federation.people import People, Person, Right
from tacit_services.federation.submissions import Refused
from tacit_services.transport.address import bind
from tacit_services.transport.http_server import HttpServer, in_thread
from tacit_services.transport.pinned_authority import FederationAuthority

from tests.helpers.servers import HOST
from tests.unit.federation.test_run_routes import person
from tests.unit.federation.test_supervisor import Rules

OPERATOR = Person("operator", Right.OPERATOR, since=0.0)
LAST_YEAR = 1_700_000_000.0
OF_PATHS = ["a/b", "a\\b", ".", ".."]


class Desk:
    """The operator's desk of a host with nobody in it."""

    def __init__(self, folder: Path) -> None:
        self.members = Members(folder / "members")
        self.people = People(folder / "people")
        self.tokens = JoinTokens(folder / "members", lambda: LAST_YEAR)
        self.authority = CertificateAuthority.create(folder / "ca")
        self.rules = Rules()
        self.withdrawn: list[str] = []
        self.control = MemberControl(
            self.members, self.people, self.tokens, self.authority, self.rules,
            FederationAuthority(certificates.pem(self.authority.certificate).decode()),
            "https://host:8443", AuditLog(folder / "audit.jsonl"),
            lambda member, _: self.withdrawn.append(member),
        )  # fmt: skip

    def rename(self, old: str, new: str) -> None:
        """Let a name be one that an earlier tacit has taken."""
        for path in (self.members._file.path, self.people._file.path, self.tokens._file.path):
            if path.exists():
                path.write_text(path.read_text().replace(f'"{old}"', f'"{new}"'))


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path)


def test_a_person_and_a_join_token_have_no_name_that_looks_the_same(desk: Desk) -> None:
    desk.control.invite(OPERATOR, "ada", "reader", None, None)
    desk.control.invite(OPERATOR, "clinics", "member", None, LAST_YEAR + 1)
    for name, role in (("Ada", "member"), ("CLINICS", "researcher"), ("Clinics", "member")):
        with pytest.raises(Refused, match=f"name='{name}'"):
            desk.control.invite(OPERATOR, name, role, None, None)
    desk.control.cancel(OPERATOR, "clinics")
    desk.control.invite(OPERATOR, "Clinics", "reader", None, None)


def test_a_cancelled_name_is_worth_nothing_whoever_has_it(desk: Desk) -> None:
    # Given a person and a join token that has ended, of one name, as earlier hosts allowed,
    secret = desk.people.add("ada", Right.READER)
    desk.tokens.add("ada", until=LAST_YEAR + 1)
    # when the operator cancels it, then neither is left.
    desk.control.cancel(OPERATOR, "ada")
    assert (desk.people.person(secret), desk.people.all(), desk.tokens.all()) == (None, [], [])
    with pytest.raises(Refused, match="there is none"):
        desk.control.cancel(OPERATOR, "ada")


@pytest.mark.parametrize("name", OF_PATHS)
def test_no_new_name_reads_like_a_path(desk: Desk, name: str) -> None:
    for role in ("member", "reader"):
        with pytest.raises(Refused, match="reads like a path"):
            desk.control.invite(OPERATOR, name, role, None, None)


def test_a_member_that_never_had_a_certificate_is_revoked_whole(desk: Desk) -> None:
    # Given a member whose host ended between its entry and its certificate,
    member = desk.members.admit("0" * 64, "A", "x", "")
    desk.rules.open("retina", member.id)
    # when it is revoked, then all of it is.
    shown = desk.control.revoke(OPERATOR, "A")
    assert (shown["id"], shown["certificate_until"]) == (member.id, None)
    assert (desk.rules.opened, desk.withdrawn) == (set(), [member.id])


@pytest.fixture
def operator(desk: Desk) -> Iterator[httpx.Client]:
    """Yield the operator's client, at a port of this machine's."""
    listener = bind(f"{HOST}:0")
    host, port = listener.getsockname()
    server = HttpServer(create_app([member_routes(desk.control, person)], []))
    with (
        in_thread(server, listener, "host"),
        httpx.Client(
            base_url=f"http://{host}:{port}",
            headers={"Authorization": "Bearer ops"},
            trust_env=False,
        ) as client,
    ):
        yield client


@pytest.mark.parametrize("name", [*OF_PATHS, "St. Mary's"])
def test_whoever_has_a_name_of_old_is_cancelled_and_revoked_by_it(
    desk: Desk, operator: httpx.Client, name: str
) -> None:
    desk.people.add("old", Right.READER)
    desk.members.admit("0" * 64, "old", "x", "")
    desk.rename("old", name.replace("\\", "\\\\"))
    assert operator.post("/v1/members/cancel", json={"name": name}).status_code == 204
    assert desk.people.all() == []
    assert operator.post("/v1/members/revoke", json={"name": name}).json()["id"] == "edge-0"
    assert operator.post("/v1/members/revoke", json={"name": "nobody"}).status_code == 404


@pytest.mark.parametrize("until", [1e308, 253_402_300_800.0, 0.0])
def test_a_token_ends_at_a_date(operator: httpx.Client, until: float) -> None:
    body: dict[str, Any] = {"name": "ada", "role": "reader", "until": until}
    answer = operator.post("/v1/members/invite", json=body)
    assert (answer.status_code, "until" in answer.text) == (422, True)
