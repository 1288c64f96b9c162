"""Enrolment over HTTPS.

Who gets a certificate, who does not and why, and what the edge makes of the answers.
"""

from __future__ import annotations

import base64
import itertools
import os
import socket
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import httpx
import hypothesis
import pytest
import schemathesis
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from schemathesis.core.result import Ok
from schemathesis.specs.openapi.checks import positive_data_acceptance
from tacit_services.enrollment import certificates, rest
from tacit_services.enrollment.authority import CertificateAuthority
from tacit_services.enrollment.tokens import TokenRegister
from tacit_services.identity.folder import Identities, Identity
from tacit_services.settings import EdgeSettings, read_settings
from tacit_services.transport.tls import context_trusting
from tacit_services.worker.enroll import prepared

from tacit.errors import ConfigError, ServiceError
from tests.helpers.servers import HOST, PATIENCE, free_port


class Desk:
    """An enrolment server on its own port, and its authority."""

    def __init__(self, folder: Path) -> None:
        self.authority = CertificateAuthority.create(folder)
        self.authority.issue(rest.SERVER, [HOST])
        self.tokens = TokenRegister(folder)
        self.ca = folder / "ca.crt"
        self.url, self.web = "", httpx.Client()

    def post(self, token: str | None, csr: str) -> httpx.Response:
        headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        return self.web.post("/v1/enroll", json={"csr": csr}, headers=headers)


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    new_desk = Desk(tmp_path / "pki")
    server_folder = new_desk.authority.folder / rest.SERVER
    with socket.create_server((HOST, 0)) as listener:
        server = rest.web(
            rest.create_app(rest.RegistrationAuthority(new_desk.authority)), server_folder
        )
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
        thread.start()
        new_desk.url = "https://{}:{}".format(*listener.getsockname())
        new_desk.web.close()
        with httpx.Client(
            base_url=new_desk.url, verify=context_trusting(new_desk.ca), trust_env=False
        ) as new_desk.web:
            yield new_desk
        server.should_exit = True
        thread.join(PATIENCE)


def csr(name: str, key: certificates.Key | None = None) -> str:
    return certificates.pem(certificates.request(key or certificates.new_key(), name)).decode()


P256, SM2 = (bytes.fromhex(oid) for oid in ("06082a8648ce3d030107", "06082a811ccf5501822d"))


def mutated(key: certificates.Key) -> Iterator[str]:
    """Yield a request for an SM2 key, then requests with some bytes changed, without end."""
    good = certificates.request(key, "edge-1").public_bytes(serialization.Encoding.DER)
    yield armoured(good.replace(P256, SM2))
    random = Random(7)
    while True:
        bad = bytearray(good)
        for _ in range(random.choice((1, 1, 2, 4))):
            bad[random.randrange(len(bad))] ^= random.randrange(1, 256)
        yield armoured(bytes(bad))


def armoured(der: bytes) -> str:
    body = base64.encodebytes(der).decode()
    return f"-----BEGIN CERTIFICATE REQUEST-----\n{body}-----END CERTIFICATE REQUEST-----\n"


def problem(response: httpx.Response, status: int) -> str:
    assert (response.status_code, response.headers["content-type"]) == (
        status,
        "application/problem+json",
    )
    return str(response.json()["detail"])


class TestServer:
    def test_a_token_and_a_request_make_a_certificate_for_that_key(self, desk: Desk) -> None:
        key = certificates.new_key()
        answer = desk.post(desk.tokens.add("edge-*", once=False), csr("edge-3", key))
        assert answer.status_code == 201
        signed = x509.load_pem_x509_certificate(answer.json()["certificate"].encode())
        signed.verify_directly_issued_by(desk.authority.certificate)
        assert certificates.common_name(signed) == "edge-3"
        assert certificates.public_bytes(signed.public_key()) == certificates.public_bytes(
            key.public_key()
        )

    @pytest.mark.parametrize("token", [None, "wrong", "x" * 500])
    def test_without_a_token_nobody_is_asked_for_more(self, desk: Desk, token: str | None) -> None:
        desk.tokens.add("edge-*", once=False)
        refused = desk.post(token, csr("edge-3"))
        assert problem(refused, 401) == "the enrolment token is missing or wrong"
        assert refused.headers["www-authenticate"] == "Bearer"
        assert desk.authority.issued("edge-3") == []

    @pytest.mark.parametrize("name", ["aggregator", "broker", "edge", "xedge-1"])
    def test_a_token_is_good_for_its_edges_only(self, desk: Desk, name: str) -> None:
        token = desk.tokens.add("edge-*", once=False)
        assert "this token is for edge-*" in problem(desk.post(token, csr(name)), 403)

    def test_a_name_that_is_taken_is_not_given_again(self, desk: Desk) -> None:
        token = desk.tokens.add("*", once=False)
        assert desk.post(token, csr("edge-0")).status_code == 201
        assert "belongs to another key" in problem(desk.post(token, csr("edge-0")), 409)
        assert "belongs to another key" in problem(desk.post(token, csr("enrollment")), 409)

    def test_a_lost_answer_can_be_had_again_with_the_same_key(self, desk: Desk) -> None:
        for once in (False, True):
            key, token, name = (
                certificates.new_key(),
                desk.tokens.add("edge-*", once=once),
                f"edge-{once:d}",
            )
            first, again = (desk.post(token, csr(name, key)) for _ in range(2))
            assert first.json() == again.json()
            assert len(desk.authority.issued(name)) == 1

    def test_a_one_time_token_serves_one_edge(self, desk: Desk) -> None:
        token = desk.tokens.add("edge-*", once=True)
        assert desk.post(token, csr("edge-0")).status_code == 201
        assert "has been used" in problem(desk.post(token, csr("edge-1")), 409)
        assert "belongs to another key" in problem(desk.post(token, csr("edge-0")), 409)

    def test_a_refusal_does_not_use_a_one_time_token_up(self, desk: Desk) -> None:
        token = desk.tokens.add("edge-*", once=True)
        problem(desk.post(token, "garbage"), 422)
        problem(desk.post(token, csr("broker")), 403)
        assert desk.post(token, csr("edge-0")).status_code == 201

    def test_a_revoked_edge_needs_a_new_key_and_a_token_made_for_it(self, desk: Desk) -> None:
        shared, key = desk.tokens.add("edge-*", once=False), certificates.new_key()
        desk.post(shared, csr("edge-0", key))
        desk.authority.revoke("edge-0")
        for request in (csr("edge-0", key), csr("edge-0")):
            assert "was revoked" in problem(desk.post(shared, request), 409)
        once = desk.tokens.add("edge-0", once=True)
        assert "was revoked" in problem(desk.post(once, csr("edge-0", key)), 409)
        assert desk.post(once, csr("edge-0")).status_code == 201

    @pytest.mark.parametrize(
        "text", ["garbage", csr("a/b"), csr("+"), csr("x" * 64).replace("M", "N", 3)]
    )
    def test_a_bad_request_is_a_problem(self, desk: Desk, text: str) -> None:
        assert problem(desk.post(desk.tokens.add("*", once=False), text), 422).startswith("csr: ")

    def test_no_request_however_odd_is_a_bug(self, desk: Desk) -> None:
        token, form = desk.tokens.add("*", once=False), mutated(certificates.new_key())
        answers = [desk.post(token, text) for text in itertools.islice(form, 400)]
        statuses = Counter(answer.status_code for answer in answers)
        assert statuses[422] >= 390  # a bit flipped in an attribute of no meaning may pass
        assert set(statuses) <= {201, 409, 422}
        details = " ".join(str(answer.json().get("detail")) for answer in answers)
        for why in ("not signed", "Curve", "key type", "CSR version", "not a PEM"):
            assert why in details

    @pytest.mark.parametrize(
        "body",
        [b"", b"{}", b"[]", b'{"csr": 7}', b'{"csr": ""}', b'{"csr": "x", "name": "edge-1"}'],
    )
    def test_a_body_of_another_form_is_a_problem(self, desk: Desk, body: bytes) -> None:
        headers = {
            "Content-Type": "application/json",
            "Authorization": f"Bearer {desk.tokens.add('*', once=False)}",
        }
        problem(desk.web.post("/v1/enroll", content=body, headers=headers), 422)

    def test_a_large_body_is_refused(self, desk: Desk) -> None:
        problem(desk.post("x", "x" * 70_000), 413)
        problem(desk.web.get("/v1/enroll"), 405)

    @pytest.mark.parametrize("registered", [True, False])
    def test_answers_are_as_openapi_says(self, tmp_path: Path, registered: bool) -> None:
        authority = CertificateAuthority.create(tmp_path / "pki")
        token = TokenRegister(authority.folder).add("*", once=False) if registered else "unknown"
        contract = schemathesis.openapi.from_asgi(
            "/openapi.json", rest.create_app(rest.RegistrationAuthority(authority))
        )
        operations = [
            result.ok() for result in contract.get_all_operations() if isinstance(result, Ok)
        ]
        assert len(operations) == 2
        for operation in operations:

            @hypothesis.given(case=operation.as_strategy())
            @hypothesis.settings(max_examples=10, deadline=None, derandomize=True, database=None)
            def holds(case: schemathesis.Case[Any]) -> None:
                # What a signing request is, no schema says.
                case.call_and_validate(
                    headers={"Authorization": f"Bearer {token}"},
                    excluded_checks=[positive_data_acceptance],
                )

            holds()
        assert authority.names() == []

    def test_it_does_not_speak_plain_http(self, desk: Desk) -> None:
        with pytest.raises(httpx.TransportError):
            httpx.post(
                desk.url.replace("https", "http") + "/v1/enroll", json={"csr": "x"}, trust_env=False
            )


STOP = threading.Event()


class TestEdge:
    @pytest.fixture
    def token(self, desk: Desk, tmp_path: Path) -> Path:
        path = tmp_path / "token"
        path.write_text(desk.tokens.add("edge-*", once=False) + "\n")
        return path

    @pytest.fixture
    def identity(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Identity]:
        for name in [name for name in os.environ if name.startswith("TACIT_")]:
            monkeypatch.delenv(name)
        acquired = Identities(tmp_path / "identities", 1).acquire(2, STOP)
        assert acquired is not None
        yield acquired
        acquired.close()

    def settings(self, **values: object) -> EdgeSettings:
        return read_settings(EdgeSettings, run_file="x", connect_timeout=0.5, **values)

    def enrolling(self, desk: Desk, token: Path, **more: object) -> EdgeSettings:
        options = {"tls_ca": desk.ca, "enroll_url": desk.url, "enroll_token_file": token} | more
        return self.settings(**options)

    def test_it_enrols_once_with_a_key_of_its_own(
        self, desk: Desk, token: Path, identity: Identity
    ) -> None:
        settings = self.enrolling(desk, token)
        tls = prepared(settings, identity).obtain(STOP)
        assert tls is not None
        tls.context()
        assert tls.key == identity.path / "tls.key"
        desk.url = "https://127.0.0.1:1"  # with a certificate it needs nobody
        assert prepared(self.enrolling(desk, token), identity).obtain(STOP) == tls

    def test_it_renews_with_its_key_before_the_certificate_ends(
        self, desk: Desk, token: Path, identity: Identity, caplog: pytest.LogCaptureFixture
    ) -> None:
        key = certificates.new_key()
        (identity.path / "tls.key").write_bytes(certificates.key_pem(key))
        old = certificates.pem(desk.authority.sign("edge-1", key.public_key(), 3))
        (identity.path / "tls.crt").write_bytes(old)
        away = self.enrolling(desk, token, enroll_url=f"https://{HOST}:{free_port()}")
        assert prepared(away, identity).obtain(STOP) is not None  # it is good for three days yet
        assert "was not renewed" in caplog.text
        tls = prepared(self.enrolling(desk, token), identity).obtain(STOP)
        assert tls is not None
        renewed = x509.load_pem_x509_certificate(tls.cert.read_bytes())
        assert not certificates.due(renewed, 300)
        assert certificates.public_bytes(renewed.public_key()) == certificates.public_bytes(
            key.public_key()
        )

    def test_a_certificate_of_another_authority_is_replaced(
        self, desk: Desk, token: Path, identity: Identity, tmp_path: Path
    ) -> None:
        bundle = CertificateAuthority.create(tmp_path / "other").issue("edge-1")
        for name in ("tls.key", "tls.crt"):
            (identity.path / name).write_bytes((bundle / name).read_bytes())
        tls = prepared(self.enrolling(desk, token), identity).obtain(STOP)
        assert tls is not None
        x509.load_pem_x509_certificate(tls.cert.read_bytes()).verify_directly_issued_by(
            desk.authority.certificate
        )

    def test_a_refusal_is_one_line(self, desk: Desk, token: Path, identity: Identity) -> None:
        desk.post(token.read_text().strip(), csr("edge-1"))
        with pytest.raises(ConfigError, match="was refused: 'edge-1' belongs to another key"):
            prepared(self.enrolling(desk, token), identity).obtain(STOP)
        for text in ("", "two words", "two\nlines", "\u00e9"):
            token.write_text(text)
            with pytest.raises(
                ConfigError, match=r"TACIT_ENROLL_TOKEN_FILE=.*: (not a token|'ascii')"
            ):
                prepared(self.enrolling(desk, token), identity).obtain(STOP)
        token.write_text("wrong")
        with pytest.raises(
            ConfigError, match="was refused: the enrolment token is missing or wrong"
        ):
            prepared(self.enrolling(desk, token), identity).obtain(STOP)

    def test_a_server_that_is_away_or_not_ours_is_named(
        self,
        desk: Desk,
        token: Path,
        identity: Identity,
        tmp_path: Path,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        monkeypatch.setattr("tacit_services.worker.enroll.RETRY_CAP", 0.2)
        with pytest.raises(ServiceError, match=r"enrolment at https://.*refused"):
            prepared(
                self.enrolling(desk, token, enroll_url=f"https://{HOST}:{free_port()}"), identity
            ).obtain(STOP)
        other = CertificateAuthority.create(tmp_path / "other").folder / "ca.crt"
        with pytest.raises(ServiceError, match="CERTIFICATE_VERIFY_FAILED"):
            prepared(self.enrolling(desk, token, tls_ca=other), identity).obtain(STOP)

    @pytest.mark.parametrize(
        ("values", "why"),
        [
            (
                {"enroll_url": "http://h:1"},
                "TACIT_ENROLL_URL='http://h:1': expected https://HOST:PORT",
            ),
            ({"enroll_url": "https://h:1"}, "TACIT_TLS_CA and TACIT_ENROLL_TOKEN_FILE must be set"),
            (
                {"tls_ca": Path("a")},
                "TACIT_TLS_CA='a': TACIT_TLS_CERT and TACIT_TLS_KEY must be set as well",
            ),
            (
                {"tls_key": Path("k"), "tls_cert": Path("c")},
                "TACIT_TLS_CERT='c': TACIT_TLS_CA must be set as well",
            ),
        ],
    )
    def test_half_a_setting_is_named(
        self, identity: Identity, values: dict[str, object], why: str
    ) -> None:
        with pytest.raises(ConfigError) as failure:
            prepared(self.settings(**values), identity).obtain(STOP)
        assert why in str(failure.value)

    def test_anothers_certificate_is_named(self, desk: Desk, identity: Identity) -> None:
        bundle = desk.authority.issue("edge-0")
        edge_settings = self.settings(
            tls_ca=desk.ca, tls_cert=bundle / "tls.crt", tls_key=bundle / "tls.key"
        )
        with pytest.raises(
            ConfigError, match="is the certificate of 'edge-0', and this identity is 'edge-1'"
        ):
            prepared(edge_settings, identity).obtain(STOP)

    def test_without_settings_it_stays_plain(self, identity: Identity) -> None:
        assert prepared(self.settings(), identity).obtain(STOP) is None
