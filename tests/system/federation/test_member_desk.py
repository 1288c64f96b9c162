"""A machine joins over the one port, is known by its certificate, and leaves."""

from __future__ import annotations

import ssl
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest
from cryptography import x509
from fastapi import Depends, FastAPI, Request
from tacit_services.disk import files
from tacit_services.enrollment import certificates, rest
from tacit_services.enrollment.authority import CertificateAuthority
from tacit_services.enrollment.join_client import Admitted, JoinClient
from tacit_services.enrollment.join_tokens import JoinTokens
from tacit_services.federation.member_desk import (
    MemberDesk,
    member_of_request,
    near_member_of_request,
)
from tacit_services.federation.members import Member, Members
from tacit_services.transport.address import bind
from tacit_services.transport.front_door import FrontDoor
from tacit_services.transport.problems import install
from tacit_services.transport.tls import Tls, context_trusting
from tacit_services.versions import VERSION_HEADER, own_version

from tacit.errors import ConfigError, ServiceError
from tests.helpers.servers import HOST, PATIENCE


class Clock:
    now = 1_800_000_000.0

    def __call__(self) -> float:
        return self.now


class FederationHost:
    """The HTTPS half of a federation's host, behind its front door."""

    def __init__(self, folder: Path) -> None:
        self.clock = Clock()
        self.wall = Clock()  # by which certificates end
        self.wall.now = time.time()
        self.authority = CertificateAuthority.create(folder / "ca")
        self.server_folder = self.authority.issue("https", [HOST])
        self.tokens = JoinTokens(folder / "ca", self.clock)
        self.members = Members(folder / "members", self.clock)
        self.url = ""

    @property
    def ca(self) -> Path:
        return self.authority.folder / "ca.crt"

    def app(self) -> FastAPI:
        app = FastAPI()
        install(app)
        desk = MemberDesk(self.authority, self.tokens, self.members, clock=self.wall)
        app.include_router(desk.router())

        known = Depends(member_of_request(self.members, self.wall))

        near = Depends(near_member_of_request(self.members, self.wall))

        @app.get("/runs")
        def runs(member: Member = near) -> dict[str, str]:
            return {"id": member.id}

        @app.get("/me")
        def me(request: Request, member: Member = known) -> dict[str, str]:
            assert request.client is not None
            return {"id": member.id, "name": member.name, "from": request.client.host}

        return app

    def join(
        self,
        token: str,
        key: certificates.Key,
        name: str | None = None,
        machine: str = "clinic",
        version: str = "",
    ) -> Admitted:
        client = JoinClient(self.url)
        return client.enroll(
            context_trusting(self.ca), token, key, name=name, machine=machine, version=version
        )

    def context(
        self, folder: Path, key: certificates.Key, certificate: x509.Certificate
    ) -> ssl.SSLContext:
        """Return TLS that shows this certificate, which is kept in `folder`."""
        folder.mkdir(exist_ok=True)
        files.write(folder / "tls.crt", certificates.pem(certificate), files.PUBLIC)
        files.write(folder / "tls.key", certificates.key_pem(key), files.SECRET)
        return Tls(self.ca, folder / "tls.crt", folder / "tls.key").context()

    def me(
        self, trusted: ssl.SSLContext, source: str = HOST, headers: dict[str, str] | None = None
    ) -> httpx.Response:
        """Ask who one is, from the loopback address `source`."""
        way = httpx.HTTPTransport(verify=trusted, local_address=source)
        with httpx.Client(base_url=self.url, transport=way, trust_env=False) as web:
            return web.get("/me", headers=headers)


@contextmanager
def opened(host: FederationHost) -> Iterator[None]:
    with bind(f"{HOST}:0") as listener:
        listener.listen()
        address = "{}:{}".format(*listener.getsockname())
        door = FrontDoor(bind(f"{HOST}:0"), f"{HOST}:1", address)
        server = rest.web(host.app(), host.server_folder, clients=host.ca, origin=door.origin)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
        thread.start()
        door.start()
        host.url = f"https://{door.address}"
        try:
            yield
        finally:
            door.close()
            server.should_exit = True
            thread.join(PATIENCE)


@pytest.fixture
def host(tmp_path: Path) -> Iterator[FederationHost]:
    new = FederationHost(tmp_path / "federation")
    with opened(new):
        yield new


def test_a_machine_joins_by_a_line_and_is_known_by_its_certificate(
    host: FederationHost, tmp_path: Path
) -> None:
    # Given what a join line says: the host, a token, the authority's digest,
    token, key = host.tokens.add("line", uses=1), certificates.new_key()
    digest = certificates.fingerprint(host.authority.certificate)
    # when a machine joins,
    assert JoinClient(host.url).authority(digest) == host.authority.certificate
    member = host.join(token, key, "St. Mary's")
    # then it is a member, and REST knows it, its address and its version, by its certificate.
    assert (member.edge, member.name) == ("edge-0", "St. Mary's")
    trusted = host.context(tmp_path / "site", key, member.certificate)
    answer = host.me(trusted, "127.0.0.5", {VERSION_HEADER: "0.4"})
    assert answer.json() == {"id": "edge-0", "name": "St. Mary's", "from": "127.0.0.5"}
    heard = host.members.last_heard("edge-0")
    assert heard is not None
    assert (heard.at, heard.version) == (host.clock.now, "0.4")


def test_a_machine_whose_tacit_is_too_far_is_told_which_must_move_and_uses_nothing_up(
    host: FederationHost,
) -> None:
    token, key = host.tokens.add("line", uses=1), certificates.new_key()
    for apart, behind in ((2, "host"), (-2, "member")):
        line = f"at the member: update the {behind}; one minor apart works"
        with pytest.raises(ConfigError, match=line) as refused:
            host.join(token, key, version=apart_by(apart))
        assert "\n" not in str(refused.value)
    assert host.members.all() == []
    assert host.join(token, key, version=apart_by(1)).edge == "edge-0"


def test_a_member_whose_tacit_is_too_far_has_no_part_in_runs_and_stays_one(
    host: FederationHost, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    key = certificates.new_key()
    member = host.join(host.tokens.add("line"), key, "A", version=own_version())
    trusted = host.context(tmp_path / "site", key, member.certificate)
    with httpx.Client(base_url=host.url, verify=trusted, trust_env=False) as web:

        def status(path: str, version: str) -> int:
            return web.get(path, headers={VERSION_HEADER: version}).status_code

        for apart in (-1, 0, 1):
            assert status("/runs", apart_by(apart)) == 200
        assert status("/runs", "of my own") == 200
        far = apart_by(2)
        for _ in range(3):
            assert status("/runs", far) == 412
        assert status("/v1/host", far) == status("/me", far) == 200
        assert status("/runs", own_version()) == 200
    [warning] = [r.message for r in caplog.records if "update the host" in r.message]
    assert "'A' (edge-0)" in warning


def apart_by(minors: int) -> str:
    """Return a version so many minor versions ahead of this one."""
    major, minor = map(int, own_version().split(".")[:2])
    number = 1000 * major + minor + minors  # as of `minors_apart`
    return f"{number // 1000}.{number % 1000}.0"


def test_a_lost_answer_is_had_again_and_nothing_is_used_up_by_it(host: FederationHost) -> None:
    token, key = host.tokens.add("two", uses=2), certificates.new_key()
    first = host.join(token, key)
    assert host.join(token, key) == first
    assert host.join(token, certificates.new_key()).edge == "edge-1"
    assert [member.name for member in host.members.all()] == ["clinic-1", "clinic-2"]
    assert host.authority.names() == ["edge-0", "edge-1", "https"]


def test_a_token_that_is_worth_nothing_is_refused_in_one_line(host: FederationHost) -> None:
    used, ended, cancelled = (
        host.tokens.add("used", uses=1),
        host.tokens.add("ended", until=host.clock.now + 60),
        host.tokens.add("cancelled"),
    )
    host.join(used, certificates.new_key())
    host.tokens.cancel("cancelled")
    host.clock.now += 61
    for token, why in (
        (used, "was for 1 and is used up"),
        (ended, "ended on "),
        (cancelled, "unknown, or was cancelled"),
        ("guess", "unknown, or was cancelled"),
    ):
        with pytest.raises(ConfigError, match=f"{host.url}: the join token .*{why}") as refused:
            host.join(token, certificates.new_key())
        assert "\n" not in str(refused.value)
    assert len(host.members.all()) == 1


def test_without_a_token_no_body_is_read(host: FederationHost) -> None:
    with httpx.Client(base_url=host.url, verify=context_trusting(host.ca), trust_env=False) as web:
        for headers in ({}, {"Authorization": "Bearer guess"}):
            assert web.post("/v1/enroll", content=b"{", headers=headers).status_code == 401


def test_another_authority_than_the_lines_is_refused_before_the_token_is_shown(
    host: FederationHost,
) -> None:
    with pytest.raises(ConfigError, match="not the one of the join line"):
        JoinClient(host.url).authority("sha256:" + "0" * 64)
    other = ssl.create_default_context()
    with pytest.raises(ServiceError, match="CERTIFICATE_VERIFY_FAILED"):
        JoinClient(host.url).enroll(
            other, "secret", certificates.new_key(), name=None, machine="m", version=""
        )


def test_a_name_that_is_taken_is_refused_and_uses_nothing_up(host: FederationHost) -> None:
    host.join(host.tokens.add("first"), certificates.new_key(), "A")
    token, key = host.tokens.add("second", uses=1), certificates.new_key()
    with pytest.raises(ConfigError, match="'A' is taken by edge-0; choose another with --as"):
        host.join(token, key, "A")
    assert host.join(token, key, "B").edge == "edge-1"


def test_a_member_gets_another_certificate_by_the_one_that_it_has(
    host: FederationHost, tmp_path: Path
) -> None:
    key = certificates.new_key()
    member = host.join(host.tokens.add("line"), key)
    # Given one that ends soon,
    with host.authority.locked():
        short = host.authority.sign("edge-0", key.public_key(), days=2)
    trusted = host.context(tmp_path / "site", key, short)
    # when it asks, then it gets one of the same key and name that lasts longer.
    renewed = JoinClient(host.url).renew(trusted, key)
    assert renewed.edge == member.edge
    assert not certificates.due(renewed.certificate, 300)
    # For another key it gets none.
    with pytest.raises(ConfigError, match="another key than the member's"):
        JoinClient(host.url).renew(trusted, certificates.new_key())


def test_who_shows_no_certificate_or_one_of_nobody_is_refused(
    host: FederationHost, tmp_path: Path
) -> None:
    assert host.me(context_trusting(host.ca)).status_code == 401
    # A server's certificate is of the authority, and its name is no member's;
    server = host.server_folder
    shown = Tls(host.ca, server / "tls.crt", server / "tls.key").context()
    assert host.me(shown).status_code == 403
    # one of the member's name, but of another key, is not the member's;
    host.join(host.tokens.add("line"), certificates.new_key())
    key = certificates.new_key()
    with host.authority.locked():
        forged = host.authority.sign("edge-0", key.public_key())
    assert host.me(host.context(tmp_path / "forged", key, forged)).status_code == 403
    # and one of another authority does not get in at all.
    other = CertificateAuthority.create(tmp_path / "other").issue("edge-0")
    foreign = Tls(host.ca, other / "tls.crt", other / "tls.key").context()
    with pytest.raises(httpx.TransportError):
        host.me(foreign)


def test_who_was_revoked_is_refused_on_a_connection_that_is_open(
    host: FederationHost, tmp_path: Path
) -> None:
    token, key = host.tokens.add("line"), certificates.new_key()
    member = host.join(token, key, "A")
    trusted = host.context(tmp_path / "site", key, member.certificate)
    with httpx.Client(base_url=host.url, verify=trusted, trust_env=False) as web:
        assert web.get("/me").status_code == 200
        host.members.revoke("A")
        assert web.get("/me").status_code == 403
        assert web.post("/v1/renew", json={"csr": "x"}).status_code == 403
    with pytest.raises(ConfigError, match=r"'A' \(edge-0\) was revoked"):
        host.join(token, key, "A")


def test_a_certificate_that_has_ended_is_refused_on_a_connection_that_is_open(
    host: FederationHost, tmp_path: Path
) -> None:
    token, key = host.tokens.add("line"), certificates.new_key()
    member = host.join(token, key, "A")
    trusted = host.context(tmp_path / "site", key, member.certificate)
    csr = {"csr": certificates.pem(certificates.request(key, "edge-0")).decode()}
    with httpx.Client(base_url=host.url, verify=trusted, trust_env=False) as web:
        ends = member.certificate.not_valid_after_utc.timestamp()
        host.wall.now = ends - 1
        assert (web.get("/me").status_code, web.get("/runs").status_code) == (200, 200)
        host.wall.now = ends
        for answer in (web.get("/me"), web.get("/runs"), web.post("/v1/renew", json=csr)):
            assert (answer.status_code, "has ended" in answer.json()["detail"]) == (401, True)
    with host.authority.locked():
        assert len(host.authority.issued("edge-0")) == 1


def test_members_and_numbers_outlive_their_host(tmp_path: Path) -> None:
    folder = tmp_path / "federation"
    first = FederationHost(folder)
    token, key = first.tokens.add("line"), certificates.new_key()
    with opened(first):
        first.join(token, key)
        first.join(token, certificates.new_key())
    again = FederationHost.__new__(FederationHost)
    again.clock, again.wall = first.clock, first.wall
    again.authority = CertificateAuthority(folder / "ca")
    again.server_folder = first.server_folder
    again.tokens, again.members = JoinTokens(folder / "ca"), Members(folder / "members")
    with opened(again):
        assert again.join(token, key).edge == "edge-0"
        assert again.join(token, certificates.new_key()).edge == "edge-2"


def test_a_host_that_is_none_is_named(host: FederationHost) -> None:
    with pytest.raises(ServiceError, match=f"https://{HOST}:1: .*refused"):
        JoinClient(f"https://{HOST}:1").authority("sha256:0")
    with pytest.raises(ConfigError, match="expected https://HOST:PORT"):
        JoinClient(f"http://{HOST}:1")


def test_who_has_left_is_refused_until_its_key_joins_again(
    host: FederationHost, tmp_path: Path
) -> None:
    token, key = host.tokens.add("line"), certificates.new_key()
    member = host.join(token, key)
    trusted = host.context(tmp_path / "site", key, member.certificate)
    host.members.leave("edge-0")
    assert host.me(trusted).status_code == 403
    assert "has left; it may join anew" in host.me(trusted).json()["detail"]
    assert host.join(token, key).edge == "edge-0"
    assert host.me(trusted).status_code == 200
