"""What a host, or somebody in its place, answers to a machine that looks, joins or renews."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

import pytest
from tacit_services.disk import files
from tacit_services.doctor.host_route import HostRoute
from tacit_services.doctor.member_doctor import MemberDoctor
from tacit_services.enrollment import certificates
from tacit_services.member.member_state import Membership, MemberState
from tacit_services.member.own_certificate import OwnCertificate
from tacit_services.transport import pinned_authority
from tacit_services.transport.pinned_authority import FederationAuthority
from tacit_services.transport.proxy import DIRECT

from tacit.errors import ServiceError
from tests.helpers.raw_host import json_answer, raw_host

KEY = certificates.new_key()
AUTHORITY = certificates.authority(KEY, "authority")
DOCUMENT = FederationAuthority(certificates.pem(AUTHORITY).decode()).document()
MANY = 64 << 20


def endless(request: bytes) -> Iterable[bytes]:
    yield b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n"
    for _ in range(MANY >> 16):
        yield b" " * (1 << 16)


def test_an_answer_without_end_is_not_taken_in(tmp_path: Path) -> None:
    with raw_host(tmp_path, AUTHORITY, KEY, endless) as host:
        with pytest.raises(ServiceError, match="not a federation's answer"):
            pinned_authority.document_at(host.url)
        assert host.sent < MANY


@pytest.mark.parametrize("zone", ["+99999999999999999999", "+9999999999"])
def test_a_time_that_is_none_says_nothing_of_the_clock(tmp_path: Path, zone: str) -> None:
    def answer(_: bytes) -> Iterable[bytes]:
        return json_answer(DOCUMENT, f"Date: Mon, 01 Jan 2024 00:00:00 {zone}")

    with raw_host(tmp_path, AUTHORITY, KEY, answer) as host:
        document = pinned_authority.document_at(host.url)
    assert (document.content, document.clock_apart) == (DOCUMENT, None)


def test_names_of_a_certificate_write_nothing_into_a_terminal(tmp_path: Path) -> None:
    names = ("evil\x1b[2J.example", *(f"n{number}.example" for number in range(200)))
    with raw_host(tmp_path, AUTHORITY, KEY, lambda _: json_answer(DOCUMENT), names) as host:
        doctor = MemberDoctor(HostRoute(host.url, DIRECT), None, None)
        lines = [each.line() for each in doctor.diagnoses() if each.what == "tls"]
    assert "evil?[2J.example" in lines[0]
    assert all(line.isprintable() and len(line) < 500 for line in lines)


def test_a_certificate_of_another_authority_does_not_replace_ones_own(tmp_path: Path) -> None:
    state = MemberState(tmp_path / "state")
    key, other = certificates.new_key(), certificates.new_key()
    before = certificates.sign(AUTHORITY, KEY, "edge-0", key.public_key(), 1e-6)
    foreign = certificates.authority(other, "authority")
    offered = certificates.sign(foreign, other, "edge-0", key.public_key(), 60)
    for path, content in (
        (state.tls.ca, certificates.pem(AUTHORITY)),
        (state.tls.cert, certificates.pem(before)),
        (state.tls.key, certificates.key_pem(key)),
    ):
        files.write(path, content, files.SECRET)
    body = {"edge": "edge-0", "name": "x", "certificate": certificates.pem(offered).decode()}

    with raw_host(
        tmp_path, AUTHORITY, KEY, lambda _: json_answer(json.dumps(body).encode())
    ) as host:
        membership = Membership(host.url, "edge-0", "St. Mary's", "rows.csv", "rows")
        with pytest.raises(ServiceError, match="not of the federation's authority"):
            OwnCertificate(state, membership)._asked()
    assert state.tls.cert.read_bytes() == certificates.pem(before)
