"""X.509 certificates of the authority, its servers and its clients; no files.

All keys are P-256. A certificate's common name is what the broker takes for the user's name, and an
edge's id.
"""

from __future__ import annotations

import hashlib
import ipaddress
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.types import CertificatePublicKeyTypes
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from tacit.errors import ConfigError
from tacit.protocol.topics import checked_name

Key = ec.EllipticCurvePrivateKey
BACKDATED = timedelta(hours=1)  # for machines whose clock is behind
AUTHORITY_DAYS = 3650
_USED = 2 / 3  # of its validity, after which a certificate is renewed


def new_key() -> Key:
    """Return a fresh P-256 key."""
    return ec.generate_private_key(ec.SECP256R1())


def key_pem(key: Key) -> bytes:
    """Return the key as PKCS #8, not encrypted: the file's mode protects it."""
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def read_key(pem: bytes) -> Key:
    """Return the P-256 key in `pem`. Raises ValueError."""
    try:
        key = serialization.load_pem_private_key(pem, password=None)
    except (TypeError, ValueError) as error:
        raise ValueError("not an unencrypted PEM key") from error
    if not isinstance(key, ec.EllipticCurvePrivateKey) or not isinstance(key.curve, ec.SECP256R1):
        raise ValueError("not a P-256 key")
    return key


def pem(
    item: x509.Certificate | x509.CertificateSigningRequest | x509.CertificateRevocationList,
) -> bytes:
    """Return `item` as PEM."""
    return item.public_bytes(serialization.Encoding.PEM)


def public_bytes(key: CertificatePublicKeyTypes) -> bytes:
    """Return the DER form of a public key, to compare keys."""
    return key.public_bytes(
        serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
    )


def read_public(der: bytes) -> ec.EllipticCurvePublicKey:
    """Return the P-256 key whose DER form is `der`. Raises ValueError."""
    try:
        key = serialization.load_der_public_key(der)
    except (TypeError, UnsupportedAlgorithm) as error:
        raise ValueError("not a P-256 key") from error
    if not isinstance(key, ec.EllipticCurvePublicKey) or not isinstance(key.curve, ec.SECP256R1):
        raise ValueError("not a P-256 key")
    return key


def key_digest(key: CertificatePublicKeyTypes) -> str:
    """Return SHA-256 of a public key's DER form, in hex: how registers name keys."""
    return hashlib.sha256(public_bytes(key)).hexdigest()


def fingerprint(certificate: x509.Certificate) -> str:
    """Return how people name a certificate: `sha256:` and its SHA-256 in hex."""
    return f"sha256:{certificate.fingerprint(hashes.SHA256()).hex()}"


def common_name(item: x509.Certificate | x509.CertificateSigningRequest) -> str:
    """Return the common name of `item`, or "" if it has none or more than one."""
    names = item.subject.get_attributes_for_oid(NameOID.COMMON_NAME)
    if len(names) == 1:
        return str(names[0].value)
    return ""


def hosts(certificate: x509.Certificate) -> list[str]:
    """Return the names and addresses of a server's certificate; a client's has none.

    One that cannot be read has none either.
    """
    try:
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except (
        x509.ExtensionNotFound,
        x509.DuplicateExtension,
        x509.UnsupportedGeneralNameType,
        ValueError,
    ):
        return []
    return [str(item.value) for item in names]


def is_issued_by(certificate: x509.Certificate, authority: bytes) -> bool:
    """Return whether an authority, whose certificate is `authority` (PEM), has signed it."""
    try:
        certificate.verify_directly_issued_by(x509.load_pem_x509_certificate(authority))
    except (ValueError, TypeError, InvalidSignature, UnsupportedAlgorithm):
        return False
    return True


def is_same(authority: bytes, other: bytes) -> bool:
    """Return whether two files of authorities (PEM) begin with the same one's certificate."""
    first, second = (x509.load_pem_x509_certificate(text) for text in (authority, other))
    return first == second


def due(certificate: x509.Certificate, days: int) -> bool:
    """Return whether the certificate ends within `days` days."""
    return certificate.not_valid_after_utc < datetime.now(UTC) + timedelta(days=days)


def mostly_over(certificate: x509.Certificate, at: float | None = None) -> bool:
    """Return whether two thirds of the time for which it was signed are over.

    at: in seconds since 1970, or None for now.
    """
    now = datetime.now(UTC).timestamp() if at is None else at
    signed = (certificate.not_valid_before_utc + BACKDATED).timestamp()
    ends = certificate.not_valid_after_utc.timestamp()
    return now >= signed + _USED * (ends - signed)


def authority(key: Key, name: str) -> x509.Certificate:
    """Return a self-signed certificate that may sign certificates and revocation lists only."""
    subject = _name(name)
    usage = _usage(key_cert_sign=True, crl_sign=True)
    builder = _builder(subject, subject, key.public_key(), key.public_key(), AUTHORITY_DAYS)
    builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
    return builder.add_extension(usage, critical=True).sign(key, hashes.SHA256())


def sign(
    issuer: x509.Certificate,
    issuer_key: Key,
    name: str,
    public_key: ec.EllipticCurvePublicKey,
    days: float,
    hosts: Sequence[str] = (),
) -> x509.Certificate:
    """Sign a certificate of `name` for a client; with `hosts`, for a server that is one too.

    Raises ConfigError for a name that cannot be part of a topic, or a host that is neither a DNS
    name nor an address.
    """
    subject = _name(checked_name("name", name))
    builder = _builder(subject, issuer.subject, public_key, issuer_key.public_key(), days)
    builder = builder.add_extension(
        x509.BasicConstraints(ca=False, path_length=None), critical=True
    )
    builder = builder.add_extension(_usage(digital_signature=True), critical=True)
    purposes = [ExtendedKeyUsageOID.CLIENT_AUTH]
    if hosts:
        purposes.insert(0, ExtendedKeyUsageOID.SERVER_AUTH)
        builder = builder.add_extension(
            x509.SubjectAlternativeName([_host(host) for host in hosts]), critical=False
        )
    builder = builder.add_extension(x509.ExtendedKeyUsage(purposes), critical=False)
    return builder.sign(issuer_key, hashes.SHA256())


def request(key: Key, name: str) -> x509.CertificateSigningRequest:
    """Return a signing request: name, public key, and proof that its sender has the private key."""
    return (
        x509.CertificateSigningRequestBuilder().subject_name(_name(name)).sign(key, hashes.SHA256())
    )


def read_request(text: str) -> tuple[str, ec.EllipticCurvePublicKey]:
    """Return the name and the key of a signing request; nothing else in it is granted.

    Raises ValueError for text that is not such a request, or not one for a P-256 key.
    """
    try:
        signing_request = x509.load_pem_x509_csr(text.encode("ascii"))
        key = signing_request.public_key()
        valid = signing_request.is_signature_valid
        name = common_name(signing_request)
    except (UnsupportedAlgorithm, x509.InvalidVersion) as error:
        raise ValueError(f"not for a P-256 key: {error}"[:200]) from error
    except (ValueError, TypeError, InvalidSignature, UnicodeError) as error:
        raise ValueError("not a PEM certificate signing request") from error
    if not valid:
        raise ValueError("not signed with the key that it names")
    if not isinstance(key, ec.EllipticCurvePublicKey) or not isinstance(key.curve, ec.SECP256R1):
        raise ValueError("not for a P-256 key")
    try:
        return checked_name("common name", name), key
    except ConfigError as error:
        raise ValueError(str(error)) from error


def revocations(
    issuer: x509.Certificate, issuer_key: Key, serials: Iterable[int]
) -> x509.CertificateRevocationList:
    """Return the list of revoked serial numbers. It is valid as long as the authority is.

    A list that had expired would lock everybody out.
    """
    now = datetime.now(UTC)
    builder = x509.CertificateRevocationListBuilder().issuer_name(issuer.subject)
    builder = builder.last_update(now - BACKDATED).next_update(issuer.not_valid_after_utc)
    for serial in sorted(serials):
        entry = x509.RevokedCertificateBuilder().serial_number(serial).revocation_date(now).build()
        builder = builder.add_revoked_certificate(entry)
    return builder.sign(issuer_key, hashes.SHA256())


def _name(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _host(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        pass
    try:
        if not host or host.strip() != host or "/" in host or ":" in host:
            raise ValueError
        return x509.DNSName(host)
    except ValueError as error:
        raise ConfigError(f"host {host!r}: expected a DNS name or an IP address") from error


def _builder(
    subject: x509.Name,
    issuer: x509.Name,
    public_key: ec.EllipticCurvePublicKey,
    issuer_key: ec.EllipticCurvePublicKey,
    days: float,
) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    builder = x509.CertificateBuilder(issuer, subject, public_key, x509.random_serial_number())
    builder = builder.not_valid_before(now - BACKDATED).not_valid_after(now + timedelta(days=days))
    builder = builder.add_extension(
        x509.SubjectKeyIdentifier.from_public_key(public_key), critical=False
    )
    return builder.add_extension(
        x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer_key), critical=False
    )


def _usage(
    *, digital_signature: bool = False, key_cert_sign: bool = False, crl_sign: bool = False
) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=digital_signature,
        key_cert_sign=key_cert_sign,
        crl_sign=crl_sign,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )
