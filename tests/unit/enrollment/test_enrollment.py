"""The certificate authority in a folder: what it signs, what it refuses, and its files."""

from __future__ import annotations

import base64
import json
import os
import stat
from contextlib import suppress
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID
from fastapi import HTTPException
from tacit_services.cli import main
from tacit_services.disk import files
from tacit_services.enrollment import certificates, rest
from tacit_services.enrollment.authority import CertificateAuthority, NameTaken
from tacit_services.enrollment.tokens import TokenRegister

from tacit.errors import ConfigError
from tests.helpers.run_files import MAPA, toml


@pytest.fixture
def authority(tmp_path: Path) -> CertificateAuthority:
    return CertificateAuthority.create(tmp_path / "pki")


def tacit(*arguments: str) -> int:
    """Return the exit code of `tacit ARGUMENTS`."""
    with pytest.raises(SystemExit) as ended:
        main.main(list(arguments))
    return int(ended.value.code or 0)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


class TestCertificates:
    def test_an_authority_signs_certificates_and_lists_and_no_other_authority(
        self, authority: CertificateAuthority
    ) -> None:
        certificate = authority.certificate
        constraints = certificate.extensions.get_extension_for_class(x509.BasicConstraints)
        usage = certificate.extensions.get_extension_for_class(x509.KeyUsage)
        assert constraints.critical
        assert (constraints.value.ca, constraints.value.path_length) == (True, 0)
        assert usage.value.key_cert_sign
        assert usage.value.crl_sign
        assert not usage.value.digital_signature

    def test_a_client_is_no_server_and_a_server_names_its_hosts(
        self, authority: CertificateAuthority
    ) -> None:
        client = x509.load_pem_x509_certificate(
            (authority.issue("edge-0") / "tls.crt").read_bytes()
        )
        server = x509.load_pem_x509_certificate(
            (authority.issue("b", ["b.net", "10.0.0.1"]) / "tls.crt").read_bytes()
        )
        for certificate in (client, server):
            certificate.verify_directly_issued_by(authority.certificate)
            assert not certificate.extensions.get_extension_for_class(
                x509.BasicConstraints
            ).value.ca
        usages = [
            set(item.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value)
            for item in (client, server)
        ]
        assert usages[0] == {ExtendedKeyUsageOID.CLIENT_AUTH}
        assert ExtendedKeyUsageOID.SERVER_AUTH in usages[1]
        names = server.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        assert names.get_values_for_type(x509.DNSName) == ["b.net"]
        assert [str(item) for item in names.get_values_for_type(x509.IPAddress)] == ["10.0.0.1"]
        assert certificates.common_name(client) == "edge-0"

    @pytest.mark.parametrize(
        "name", ["", "a/b", "+", "#", "../x", "x" * 65, "a b", "-a", "é", "a\nb"]
    )
    def test_a_name_is_a_level_of_a_topic(self, authority: CertificateAuthority, name: str) -> None:
        with pytest.raises(ConfigError, match="name="):
            authority.issue(name)

    @pytest.mark.parametrize("host", ["", "a/b", "a:1", " a", "é.net"])
    def test_a_host_is_a_name_or_an_address(
        self, authority: CertificateAuthority, host: str
    ) -> None:
        with pytest.raises(ConfigError, match="expected a DNS name or an IP address"):
            authority.issue("broker", [host])

    def test_a_request_gives_name_and_key_and_is_granted_nothing_else(
        self, authority: CertificateAuthority
    ) -> None:
        key = certificates.new_key()
        wish = x509.CertificateSigningRequestBuilder(
            x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "edge-1")])
        )
        wish = wish.add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        name, public = certificates.read_request(
            certificates.pem(wish.sign(key, hashes.SHA256())).decode()
        )
        signed = authority.sign(name, public)
        assert name == "edge-1"
        assert certificates.public_bytes(signed.public_key()) == certificates.public_bytes(
            key.public_key()
        )
        assert not signed.extensions.get_extension_for_class(x509.BasicConstraints).value.ca


def request(name: str, key: certificates.Key | rsa.RSAPrivateKey) -> str:
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, part) for part in name.split("|")])
    signing_request = x509.CertificateSigningRequestBuilder(subject).sign(key, hashes.SHA256())
    return certificates.pem(signing_request).decode()


def forged() -> str:
    """Return a request whose signature is another's."""
    good, other = (request("edge-0", certificates.new_key()) for _ in range(2))
    ders = [
        x509.load_pem_x509_csr(text.encode()).public_bytes(serialization.Encoding.DER)
        for text in (good, other)
    ]
    mixed = ders[0][:-40] + ders[1][-40:]
    body = base64.encodebytes(mixed).decode()
    return f"-----BEGIN CERTIFICATE REQUEST-----\n{body}-----END CERTIFICATE REQUEST-----\n"


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "not a PEM"),
        ("garbage", "not a PEM"),
        (
            "-----BEGIN CERTIFICATE REQUEST-----\nAAAA\n-----END CERTIFICATE REQUEST-----\n",
            "not a PEM",
        ),
        ("é", "not a PEM"),
        (request("a/b", certificates.new_key()), "common name='a/b'"),
        (request("edge-0|edge-1", certificates.new_key()), "common name=''"),
        (request("edge-0", ec.generate_private_key(ec.SECP384R1())), "not for a P-256 key"),
        (request("edge-0", rsa.generate_private_key(65537, 2048)), "not for a P-256 key"),
        (forged(), "not "),
    ],
)
def test_a_bad_request_says_why(text: str, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        certificates.read_request(text)


class TestAuthority:
    def test_keys_are_for_their_owner(self, authority: CertificateAuthority) -> None:
        edge, broker = (
            authority.issue("edge-0"),
            authority.issue("broker", ["localhost"], group=True),
        )
        assert mode(authority.folder / "ca.key") == 0o600
        assert mode(edge / "tls.key") == 0o600
        assert mode(broker / "tls.key") == 0o640
        assert mode(edge / "tls.crt") == mode(edge / "ca.crt") == 0o644
        assert not (edge / "ca.key").exists()

    def test_nothing_is_overwritten(self, authority: CertificateAuthority) -> None:
        before = (authority.issue("edge-0") / "tls.key").read_bytes()
        with pytest.raises(ConfigError, match="not overwritten"):
            CertificateAuthority.create(authority.folder)
        with pytest.raises(ConfigError, match="not overwritten"):
            authority.issue("edge-0")
        assert (authority.folder / "edge-0" / "tls.key").read_bytes() == before

    def test_what_is_missing_or_damaged_is_named(
        self, authority: CertificateAuthority, tmp_path: Path
    ) -> None:
        with pytest.raises(ConfigError, match="tacit pki init"):
            CertificateAuthority(tmp_path / "nowhere")
        (authority.folder / "crl.pem").write_text("no list")
        with pytest.raises(ConfigError, match=r"crl\.pem"):
            authority.issue("edge-0")
        (authority.folder / "ca.key").write_text("no key")
        with pytest.raises(ConfigError, match="damaged"):
            CertificateAuthority(authority.folder)

    def test_a_name_belongs_to_one_key(self, authority: CertificateAuthority) -> None:
        first, second = certificates.new_key().public_key(), certificates.new_key().public_key()
        assert authority.standing("edge-0", first) is None
        signed = authority.sign("edge-0", first)
        assert authority.standing("edge-0", first) == signed
        with pytest.raises(NameTaken, match="belongs to another key"):
            authority.standing("edge-0", second, reopen=True)

    def test_a_revoked_key_stays_out_and_a_revoked_name_needs_to_be_reopened(
        self, authority: CertificateAuthority
    ) -> None:
        first, second = certificates.new_key().public_key(), certificates.new_key().public_key()
        authority.sign("edge-0", first)
        assert authority.revoke("edge-0") == 1
        assert authority.revoke("edge-0") == 0
        for key, reopen in ((first, False), (first, True), (second, False)):
            with pytest.raises(NameTaken, match="was revoked"):
                authority.standing("edge-0", key, reopen=reopen)
        assert authority.standing("edge-0", second, reopen=True) is None

    def test_the_list_of_the_revoked_reaches_every_server_and_outlives_every_certificate(
        self, authority: CertificateAuthority
    ) -> None:
        broker = authority.issue("broker", ["localhost"])
        for name in ("edge-0", "edge-1"):
            authority.issue(name)
            authority.revoke(name)
        copy = x509.load_pem_x509_crl((broker / "crl.pem").read_bytes())
        assert {entry.serial_number for entry in copy} == {
            authority.issued(name)[0].serial_number for name in ("edge-0", "edge-1")
        }
        assert copy.is_signature_valid(authority.certificate.public_key())  # type: ignore[arg-type]
        assert copy.next_update_utc == authority.certificate.not_valid_after_utc
        with pytest.raises(ConfigError, match="never had a certificate"):
            authority.revoke("edge-7")

    def test_renewal_keeps_the_key_and_revocation_finds_both(
        self, authority: CertificateAuthority
    ) -> None:
        bundle = authority.issue("edge-0", days=1)
        key = (bundle / "tls.key").read_bytes()
        authority.renew("edge-0")
        assert (bundle / "tls.key").read_bytes() == key
        newest = x509.load_pem_x509_certificate((bundle / "tls.crt").read_bytes())
        assert not certificates.due(newest, 300)
        assert authority.revoke("edge-0") == 2

    def test_the_newest_certificate_of_a_name_says_when_it_ends(
        self, authority: CertificateAuthority
    ) -> None:
        key = certificates.new_key()
        assert authority.ends("edge-0") is None
        ends = []
        for days in (1, 30):
            signed = authority.sign("edge-0", key.public_key(), days)
            ends.append(signed.not_valid_after_utc.timestamp())
            assert authority.ends("edge-0") == ends[-1]
        assert ends[1] > ends[0]

    def test_a_renewed_server_keeps_its_hosts(self, authority: CertificateAuthority) -> None:
        bundle = authority.issue("broker", ["b.net", "10.0.0.1"], days=1)
        authority.renew("broker")
        newest = x509.load_pem_x509_certificate((bundle / "tls.crt").read_bytes())
        assert certificates.hosts(newest) == ["b.net", "10.0.0.1"]
        authority.renew("broker", ["c.net"])
        assert certificates.hosts(authority.issued("broker")[-1]) == ["c.net"]

    def test_a_file_is_replaced_whole_with_its_mode(self, tmp_path: Path) -> None:
        path = tmp_path / "secret"
        files.write(path, b"old", 0o644)
        files.write(path, b"new", 0o600)
        assert path.read_bytes() == b"new"
        assert mode(path) == 0o600
        assert [item.name for item in tmp_path.iterdir()] == ["secret"]


class TestTokens:
    def test_only_digests_are_kept(self, authority: CertificateAuthority) -> None:
        tokens = TokenRegister(authority.folder)
        shared, once = tokens.add("edge-*", once=False), tokens.add("edge-7", once=True)
        text = (authority.folder / "tokens").read_text()
        assert shared not in text
        assert once not in text
        assert mode(authority.folder / "tokens") == 0o600
        token, other = tokens.find(shared), tokens.find(once)
        assert token is not None
        assert other is not None
        assert [token.allows(name) for name in ("edge-1", "aggregator", "broker")] == [
            True,
            False,
            False,
        ]
        assert [other.allows(name) for name in ("edge-7", "edge-77")] == [True, False]
        assert tokens.find("guess") is None

    def test_a_shared_token_gives_no_more_certificates_than_it_has_places(
        self, authority: CertificateAuthority
    ) -> None:
        # Given a shared token for a run of eight edges,
        desk, tokens = rest.RegistrationAuthority(authority), TokenRegister(authority.folder)
        token = tokens.add("edge-0..7", once=False)
        # when 300 ask for a certificate with it, each under a name of its own,
        enrolled = []
        names = (*(f"edge-{number}" for number in range(150)), *(f"edge-0{n}" for n in range(150)))
        for name in names:
            with suppress(HTTPException):
                enrolled.append(desk.enroll(token, request(name, certificates.new_key())).edge)
        # then eight get one.
        assert enrolled == authority.names() == [f"edge-{number}" for number in range(8)]

    def test_a_token_can_be_for_fewer_edges_from_now_on(
        self, authority: CertificateAuthority
    ) -> None:
        tokens = TokenRegister(authority.folder)
        token, other = tokens.add("edge-*", once=False), tokens.add("edge-*", once=False)
        tokens.limit(token, "edge-0..1")
        assert [remaining.edges for remaining in tokens.all()] == ["edge-0..1", "edge-*"]
        tokens.limit("guess", "edge-0..1")
        assert (remaining := tokens.find(other)) is not None
        assert remaining.edges == "edge-*"

    @pytest.mark.parametrize("pattern", ["", "a b", "a/b", "[a-z]", "edge-?", "x" * 65])
    def test_a_pattern_is_a_name_with_stars(
        self, authority: CertificateAuthority, pattern: str
    ) -> None:
        with pytest.raises(ConfigError, match="edges="):
            TokenRegister(authority.folder).add(pattern, once=False)

    def test_a_damaged_file_is_named(self, authority: CertificateAuthority) -> None:
        (authority.folder / "tokens").write_text("junk\n")
        with pytest.raises(ConfigError, match="tokens: has no format"):
            TokenRegister(authority.folder).all()
        (authority.folder / "tokens").write_text("tacit tokens 1\njunk\n")
        with pytest.raises(ConfigError, match="not a token: 'junk'"):
            TokenRegister(authority.folder).all()


class TestCommand:
    def test_init_for_a_run_makes_the_acl_and_a_token_of_its_edges(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        # Given an authority of before, whose token is for any edge,
        folder, run = tmp_path / "pki", tmp_path / "run.toml"
        assert tacit("pki", "init", str(folder), "--token", "edge-*") == 0
        run.write_text(toml(MAPA, run={"updates": 5}, edges={"count": 2}, data={"spare": 1}))
        monkeypatch.setenv("TACIT_RUN_FILE", str(run))
        monkeypatch.setenv("TACIT_RUN_ID", "trial")
        # when it is made ready for a run of two edges and a spare one,
        assert tacit("pki", "init", str(folder), "--keep", "--run", "--group", "broker") == 0
        # then the broker knows these three, and the token, which stays, is for them.
        rules, text = folder / "broker" / "dynamic-security.json", folder / "broker" / "acl"
        usernames = ["aggregator", "broker", "edge-0", "edge-1", "edge-2"]
        assert [user["username"] for user in json.loads(rules.read_text())["clients"]] == usernames
        lines = text.read_text().splitlines()
        assert [line.removeprefix("user ") for line in lines if line[:4] == "user"] == usernames
        assert "topic write tacit/v1/trial/up/edge-2/0/0" in lines
        definitions = json.loads((folder / "broker" / "rabbitmq.json").read_text())
        assert [user["name"] for user in definitions["users"]] == usernames
        assert mode(rules) == mode(text) == 0o640
        (token,) = TokenRegister(folder).all()
        assert (token.edges, token.once) == ("edge-0..2", False)
        capsys.readouterr()
        for option, file in (((), text), (("--plugin",), rules)):
            assert tacit("pki", "acl", *option) == 0
            assert capsys.readouterr().out == file.read_text()

    def test_the_command_for_a_run_is_given_again_for_the_next_one(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        # Given the command that made authority, certificates and rules, with hosts of its own,
        folder, run = tmp_path / "pki", tmp_path / "run.toml"
        run.write_text(toml(MAPA, run={"updates": 5}, edges={"count": 2}))
        monkeypatch.setenv("TACIT_RUN_FILE", str(run))
        monkeypatch.setenv("TACIT_RUN_ID", "trial")
        servers = ("--server", "broker=b.net", "--server", "enrollment=b.net")
        assert tacit("pki", "init", str(folder), *servers, "--days", "20", "--run") == 0
        before = (folder / "broker" / "tls.key").read_bytes()
        # when it is given again for two runs more, with fewer words,
        monkeypatch.setenv("TACIT_RUN_ID", "second")
        capsys.readouterr()
        assert tacit("pki", "init", str(folder), "--run", "--runs", "3") == 0
        # then it names the runs that the broker's rules are of, for every edge,
        assert "rules are those of 3 runs, second, second-2 to second-3" in capsys.readouterr().out
        lines = (folder / "broker" / "acl").read_text().splitlines()
        for name in ("second", "second-2", "second-3"):
            assert f"topic write tacit/v1/{name}/up/edge-1/0/0" in lines
            assert f"topic read tacit/v1/{name}/down/edge-1/#" in lines
        assert not [line for line in lines if "trial" in line or "second-4" in line]
        # keys stay, and a renewed server has the hosts that it had.
        assert (folder / "broker" / "tls.key").read_bytes() == before
        newest = CertificateAuthority(folder).issued("broker")[-1]
        assert not certificates.due(newest, 300)
        assert list(certificates.hosts(newest)) == ["b.net"]

    @pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
    def test_what_root_writes_into_the_folder_of_a_service_belongs_to_it(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        folder, run = tmp_path / "pki", tmp_path / "run.toml"
        run.write_text(toml(MAPA, run={"updates": 5}, edges={"count": 2}))
        monkeypatch.setenv("TACIT_RUN_FILE", str(run))
        assert tacit("pki", "init", str(folder), "--days", "20", "--run") == 0
        for path in (folder / "broker", *(folder / "broker").iterdir()):
            os.chown(path, 1883, 1884)
        # When rules and certificate are written anew, and a client's certificate is revoked,
        assert tacit("pki", "init", str(folder), "--run") == 0
        assert tacit("pki", "revoke", "aggregator", "--dir", str(folder)) == 0
        # then all that the broker reads is still its own, and its key for nobody else.
        owners = {
            (path.stat().st_uid, path.stat().st_gid) for path in (folder / "broker").iterdir()
        }
        assert owners == {(1883, 1884)}
        assert mode(folder / "broker" / "tls.key") == 0o600
        assert (folder / "ca.key").stat().st_uid == 0

    def test_init_makes_what_a_run_needs_and_refuses_to_do_it_twice(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        folder = tmp_path / "pki"
        assert tacit("pki", "init", str(folder), "--token", "edge-*") == 0
        assert {path.name for path in folder.iterdir() if path.is_dir()} == {
            "aggregator",
            "broker",
            "edges",
            "enrollment",
            "issued",
        }
        assert mode(folder / "edges" / "token") == 0o600
        capsys.readouterr()
        assert tacit("pki", "init", str(folder)) == 2
        assert "not overwritten" in capsys.readouterr().err
        before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
        assert tacit("pki", "init", str(folder), "--keep", "--token", "edge-*") == 0
        assert before == {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}

    def test_keep_renews_what_is_about_to_end(self, tmp_path: Path) -> None:
        folder = str(tmp_path / "pki")
        assert tacit("pki", "init", folder, "--days", "20") == 0
        assert tacit("pki", "init", folder, "--keep") == 0
        newest = x509.load_pem_x509_certificate(
            (tmp_path / "pki" / "broker" / "tls.crt").read_bytes()
        )
        assert not certificates.due(newest, 300)
        assert newest.extensions.get_extension_for_class(x509.SubjectAlternativeName)

    def test_issue_list_revoke(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        folder = str(tmp_path / "pki")
        tacit("pki", "init", folder)
        assert tacit("pki", "issue", "edge-0", "--dir", folder) == 0
        assert tacit("pki", "revoke", "edge-0", "--dir", folder, "--json") == 0
        assert tacit("pki", "token", "edge-0", "--once", "--dir", folder) == 0
        capsys.readouterr()
        assert tacit("pki", "list", "--dir", folder) == 0
        assert "edge-0                   revoked" in capsys.readouterr().out

    @pytest.mark.parametrize(
        ("arguments", "line"),
        [
            (["issue", "a/b"], "name='a/b'"),
            (["issue", "tokens"], "kept for the authority's own files"),
            (["issue", "edge-0", "--renew"], "tls.key"),
            (["revoke", "edge-0"], "never had a certificate"),
            (["token", "a b"], "edges='a b'"),
            (["serve", "--listen", "nowhere"], "--listen 'nowhere': expected HOST:PORT"),
            (
                ["init", "{dir}/new", "--server", "broker"],
                "--server 'broker': expected NAME=HOST,HOST",
            ),
        ],
    )
    def test_bad_input_is_one_line_and_exit_code_2(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], line: str
    ) -> None:
        folder = str(tmp_path / "pki")
        tacit("pki", "init", folder)
        capsys.readouterr()
        where = [] if arguments[0] == "init" else ["--dir", folder]
        assert tacit("pki", *(item.format(dir=tmp_path) for item in arguments), *where) == 2
        assert line in capsys.readouterr().err
