"""`tacit doctor` beside a host, or somebody in its place, that answers strangely."""

from __future__ import annotations

import json
import ssl
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tacit_services.disk import files
from tacit_services.doctor.diagnosis import Diagnosis
from tacit_services.doctor.host_route import HostRoute
from tacit_services.doctor.member_doctor import MemberDoctor
from tacit_services.enrollment import certificates
from tacit_services.member.member_state import Membership, MemberState
from tacit_services.member.run_diary import RunDiary
from tacit_services.member.run_spending import RunSpending
from tacit_services.transport import pinned_authority
from tacit_services.transport.pinned_authority import FederationAuthority
from tacit_services.transport.proxy import DIRECT

from tests.helpers.raw_host import RawHost, json_answer, raw_host
from tests.helpers.servers import HOST
from tests.helpers.slow_server import WAYS, slow_server

KEY = certificates.new_key()
AUTHORITY = certificates.authority(KEY, "authority")
CA = certificates.pem(AUTHORITY).decode()
# Of a curve that our library does not know; made by openssl.
ODD_CURVE = """-----BEGIN CERTIFICATE-----
MIIBYDCCAQ6gAwIBAgIUPhgujbk0N7hZnxjj6oDc8W0s6bcwCgYIKoZIzj0EAwIw
DjEMMAoGA1UEAwwDb2RkMCAXDTI2MTEzMDEyMDg0MloYDzIxMjYxMTA2MTIwODQy
WjAOMQwwCgYDVQQDDANvZGQwTjAQBgcqhkjOPQIBBgUrgQQAIAM6AASBzmXAC+lo
7cAVyF4xc+5k1Y+3zbPitoJE0aP3nyhx/KSnGIe7463b2rx7wDaOkE0ho5uFojZI
u6NTMFEwHQYDVR0OBBYEFFJImizPGKCHsaYizHUtl7BBuj6RMB8GA1UdIwQYMBaA
FFJImizPGKCHsaYizHUtl7BBuj6RMA8GA1UdEwEB/wQFMAMBAf8wCgYIKoZIzj0E
AwIDQAAwPQIdALZIdP0cQPVwvID+vFkF7+nlKb0L/9kHqhxemsgCHB9JM2ATUk3X
XNSITO2eq3Zx8quoq7puZr0bXHE=
-----END CERTIFICATE-----
"""


def member(folder: Path, url: str) -> MemberState:
    """Make the state of a member that believes AUTHORITY, of a host with a certificate of it."""
    state = MemberState(folder / "state")
    key = certificates.new_key()
    own = certificates.sign(AUTHORITY, KEY, "edge-0", key.public_key(), 60)
    for path, content in (
        (state.tls.ca, CA.encode()),
        (state.tls.cert, certificates.pem(own)),
        (state.tls.key, certificates.key_pem(key)),
    ):
        files.write(path, content, files.SECRET)
    state.keep(Membership(url, "edge-0", "St. Mary's", "rows.csv", "rows"))
    return state


def looked(url: str, state: MemberState | None = None) -> dict[str, Diagnosis]:
    doctor = MemberDoctor(HostRoute(url, DIRECT), state, None)
    return {each.what: each for each in doctor.diagnoses()}


@contextmanager
def world_host(
    folder: Path, monkeypatch: pytest.MonkeyPatch, document: FederationAuthority
) -> Iterator[RawHost]:
    """Serve a document with a certificate of an authority that the system trusts."""
    key = certificates.new_key()
    world = certificates.authority(key, "world")
    (folder / "world").write_bytes(certificates.pem(world))
    monkeypatch.setenv("SSL_CERT_FILE", str(folder / "world"))
    with raw_host(folder, world, key, lambda _: json_answer(document.document())) as host:
        yield host


class TestBelieved:
    """What a member believes is what its own line has said."""

    def test_a_host_that_shows_another_document_than_the_line_is_ill(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        document = FederationAuthority(CA, public_web=True)
        with world_host(tmp_path, monkeypatch, document) as host:
            state = member(tmp_path, host.url)
            tls = looked(host.url, state)["tls"]
        assert tls.is_ill
        assert document.pin() in tls.words
        assert FederationAuthority(CA).pin() in tls.words
        assert "a new line is needed" in tls.advice

    def test_somebody_between_whom_the_system_trusts_is_ill(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        with world_host(tmp_path, monkeypatch, FederationAuthority(CA)) as host:
            tls = looked(host.url, member(tmp_path, host.url))["tls"]
        assert tls.is_ill
        assert "somebody takes it apart: CN=world" in tls.words

    def test_who_is_no_member_yet_is_told_that_the_system_believes_the_host(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        document = FederationAuthority(CA, public_web=True)
        with world_host(tmp_path, monkeypatch, document) as host:
            assert not looked(host.url)["tls"].is_ill

    def test_a_member_whose_authority_was_lost_is_told_so(self, tmp_path: Path) -> None:
        document = FederationAuthority(CA).document()
        with raw_host(tmp_path, AUTHORITY, KEY, lambda _: json_answer(document)) as host:
            state = member(tmp_path, host.url)
            state.tls.ca.unlink()
            tls = looked(host.url, state)["tls"]
        assert tls.is_ill
        assert str(state.tls.ca) in tls.words


@pytest.mark.parametrize(
    "document",
    [
        b'{"format": Infinity}',
        b'{"format": 1e999}',
        b'{"format": NaN}',
        b'{"format": [1]}',
        b'{"format": "' + b"9" * 4_000 + b'"}',
        json.dumps({"format": 1, "ca": ODD_CURVE, "web": "own"}).encode(),
        json.dumps({"format": 1, "ca": CA, "web": "x" * 50_000}).encode(),
        json.dumps({"format": 1, "ca": CA, "web": ["own"]}).encode(),
    ],
    ids=lambda document: repr(document[:30]),
)
def test_a_strange_document_is_a_line(tmp_path: Path, document: bytes) -> None:
    with raw_host(tmp_path, AUTHORITY, KEY, lambda _: json_answer(document)) as host:
        diagnosis = looked(host.url)["host"]
    assert diagnosis.is_ill
    assert len(diagnosis.line()) < 500


def _version_5(der: bytes) -> bytes:
    return der.replace(b"\xa0\x03\x02\x01\x02", b"\xa0\x03\x02\x01\x04", 1)


def _strange_date(der: bytes) -> bytes:
    start = der.index(b"\x17\x0d") + 2  # a UTCTime
    return der[:start] + b"269930" + der[start + 6 :]


@pytest.mark.parametrize("spoil", [_version_5, _strange_date])
def test_a_servers_certificate_that_cannot_be_read_is_a_line(
    tmp_path: Path, spoil: Callable[[bytes], bytes]
) -> None:
    document = FederationAuthority(CA).document()
    with raw_host(tmp_path, AUTHORITY, KEY, lambda _: json_answer(document), spoil=spoil) as host:
        newcomers = looked(host.url)["tls"]
        members = looked(host.url, member(tmp_path, host.url))["tls"]
    for tls in (newcomers, members):
        assert tls.is_ill
        assert "a certificate that cannot be read" in tls.words


@pytest.mark.parametrize("way", WAYS)
def test_a_host_that_answers_byte_by_byte_is_a_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    monkeypatch.setattr(pinned_authority, "_SECONDS", 1.0)
    own = certificates.sign(AUTHORITY, KEY, "host", KEY.public_key(), 30, (HOST,))
    path = tmp_path / "host.pem"
    path.write_bytes(certificates.pem(own) + certificates.key_pem(KEY))
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(path)
    with slow_server(way, tls) as server:
        diagnosis = looked(f"https://{HOST}:{server.port}")["host"]
    assert diagnosis.is_ill
    assert "no whole answer within 1 s" in diagnosis.words


def test_the_keys_of_its_connections_are_written_nowhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys = tmp_path / "keys"
    monkeypatch.setenv("SSLKEYLOGFILE", str(keys))
    document = FederationAuthority(CA).document()
    with raw_host(tmp_path, AUTHORITY, KEY, lambda _: json_answer(document)) as host:
        looked(host.url)
    assert not keys.exists()


class TestLedger:
    @pytest.mark.parametrize("releases", [0, 3])
    def test_a_ledger_that_is_not_where_the_diary_says_is_ill(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, releases: int
    ) -> None:
        monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "home"))
        state = member(tmp_path, f"https://{HOST}:1")
        spent = RunSpending(releases, 0.23, 1e-5)
        RunDiary("a" * 64, began=1.0, state="ended", spent=spent).keep(state.run("retina"))
        ledger = looked(f"https://{HOST}:1", state)["ledger"]
        if releases:
            assert ledger.is_ill
            assert "0 of the 3 releases of run retina, which have cost ε 0.23" in ledger.words
            assert "XDG_DATA_HOME" in ledger.advice
        else:
            assert ledger.words == "of rows: begins with its first run"
