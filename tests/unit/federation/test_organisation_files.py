"""What an organisation brings is looked at when the host starts: its authority, its certificate."""

from __future__ import annotations

from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from tacit_services.enrollment import certificates
from tacit_services.enrollment.authority import CertificateAuthority
from tacit_services.federation import federation_settings, organisation
from tacit_services.federation.federation_settings import FederationSettings
from tacit_services.transport.pinned_authority import FederationAuthority, read

from tacit.errors import ConfigError
from tests.helpers.organisation_ca import OrganisationCa


@pytest.fixture
def hospital(tmp_path: Path) -> OrganisationCa:
    return OrganisationCa(tmp_path / "organisation")


def believing(*roots: str) -> FederationAuthority:
    return FederationAuthority("".join(roots))


def test_members_take_what_the_organisation_has_signed_for_this_name(
    hospital: OrganisationCa,
) -> None:
    pair = hospital.server("fed", ["fed.example.org", "10.1.2.3"])
    members = believing(organisation.roots(hospital.root_file)).context()
    for name in ("fed.example.org", "10.1.2.3"):
        assert organisation.complaint_of_web(*pair, members, name) == ""
    for name in ("other.example.org", "10.1.2.4"):
        assert "get one for that name" in organisation.complaint_of_web(*pair, members, name)


def test_what_members_will_not_take_is_said_with_what_to_do(
    tmp_path: Path, hospital: OrganisationCa
) -> None:
    members = believing(organisation.roots(hospital.root_file)).context()
    host = "fed.example.org"
    ended = hospital.server("ended", [host], days=-0.01)
    assert "expired; put a new one" in organisation.complaint_of_web(*ended, members, host)
    other = OrganisationCa(tmp_path / "other").server("fed", [host])
    said = organisation.complaint_of_web(*other, members, host)
    assert "--organisation-ca names the root" in said
    chain, key = hospital.server("fed", [host])
    chain.write_bytes(chain.read_bytes().partition(b"-----END CERTIFICATE-----\n")[0])
    chain.write_bytes(chain.read_bytes() + b"-----END CERTIFICATE-----\n")  # the leaf alone
    assert "must hold the chain" in organisation.complaint_of_web(chain, key, members, host)


def test_files_of_no_use_are_named(tmp_path: Path, hospital: OrganisationCa) -> None:
    members = believing(organisation.roots(hospital.root_file)).context()
    chain, key = hospital.server("fed", ["fed.example.org"])
    locked = tmp_path / "locked.key"
    secret = certificates.read_key(key.read_bytes()).private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.BestAvailableEncryption(b"word"),
    )
    locked.write_bytes(secret)
    _, other = hospital.server("other", ["fed.example.org"])
    for certificate, secret_file in (
        (tmp_path / "none.pem", key),
        (key, key),
        (chain, other),
        (chain, locked),
    ):
        with pytest.raises(ConfigError, match="not a certificate and its unencrypted key") as said:
            organisation.complaint_of_web(certificate, secret_file, members, "fed.example.org")
        assert str(certificate) in str(said.value)
        assert "\n" not in str(said.value)


def test_only_roots_are_believed(tmp_path: Path, hospital: OrganisationCa) -> None:
    between = tmp_path / "between.pem"
    between.write_bytes(certificates.pem(hospital.intermediate))
    with pytest.raises(ConfigError, match="CN=Example Hospital Root CA has signed it"):
        organisation.roots(between)
    for content in (b"", b"nothing", b"-----BEGIN CERTIFICATE-----\n" * 4000):
        between.write_bytes(content)
        with pytest.raises(ConfigError, match=r"organisation_ca=.*between.pem"):
            organisation.roots(between)
    with pytest.raises(ConfigError, match="No such file"):
        organisation.roots(tmp_path / "none.pem")


def test_the_line_names_the_organisation_and_the_federation_comes_first(
    tmp_path: Path, hospital: OrganisationCa
) -> None:
    own = CertificateAuthority.create(tmp_path / "ca")
    plain = FederationSettings()
    stated = FederationSettings(organisation_ca=hospital.root_file)
    pins = set()
    for settings in (plain, stated):
        federation_settings.note_believed(tmp_path, settings)
        authority = federation_settings.authority(tmp_path, settings)
        assert read(authority.document()) == authority
        pins.add(authority.pin())
    assert len(pins) == 2
    ca = authority.ca.encode()
    key = certificates.new_key().public_key()
    assert certificates.is_issued_by(own.sign("edge-0", key), ca)
    chain, _ = hospital.server("edge-0", ())
    assert not certificates.is_issued_by(x509.load_pem_x509_certificate(chain.read_bytes()), ca)


def test_no_authority_of_members_is_below_another(tmp_path: Path, hospital: OrganisationCa) -> None:
    hospital.authority_below(tmp_path / "ca")
    with pytest.raises(ConfigError, match=r"ca.crt: is signed by CN=Example Hospital Root CA"):
        CertificateAuthority(tmp_path / "ca")
