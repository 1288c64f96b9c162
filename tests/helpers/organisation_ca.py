"""An organisation's own certificate authority: a root, and what signs below it."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from tacit_services.enrollment import certificates


class OrganisationCa:
    """A root and an intermediate. Each certificate that it gives is a chain in one file."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(exist_ok=True)
        self.folder = folder
        self._root_key = certificates.new_key()
        self._root = _signed(
            "Example Hospital Root CA", self._root_key.public_key(), None, self._root_key, 1
        )
        self.intermediate_key = certificates.new_key()
        self.intermediate = _signed(
            "Example Hospital Servers CA", self.intermediate_key.public_key(), self._root,
            self._root_key, 0,
        )  # fmt: skip
        self.root_file = folder / "root.pem"
        self.root_file.write_bytes(certificates.pem(self._root))

    def server(self, name: str, hosts: Sequence[str], days: float = 90) -> tuple[Path, Path]:
        """Return the files of a server's chain and of its key."""
        key = certificates.new_key()
        certificate = certificates.sign(
            self.intermediate, self.intermediate_key, name, key.public_key(), days, hosts
        )
        chain, secret = self.folder / f"{name}.pem", self.folder / f"{name}.key"
        chain.write_bytes(certificates.pem(certificate) + certificates.pem(self.intermediate))
        secret.write_bytes(certificates.key_pem(key))
        return chain, secret

    def authority_below(self, folder: Path) -> None:
        """Write an authority that the root has signed where a federation would have its own."""
        folder.mkdir(parents=True)
        (folder / "ca.crt").write_bytes(certificates.pem(self.intermediate))
        (folder / "ca.key").write_bytes(certificates.key_pem(self.intermediate_key))


def _signed(
    name: str,
    public_key: ec.EllipticCurvePublicKey,
    issuer: x509.Certificate | None,
    issuer_key: certificates.Key,
    below: int,
) -> x509.Certificate:
    """Return an authority's certificate. issuer: None: it is a root. below: authorities below it."""
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    above = subject if issuer is None else issuer.subject
    now = datetime.now(UTC)
    builder = x509.CertificateBuilder(above, subject, public_key, x509.random_serial_number())
    builder = builder.not_valid_before(now - timedelta(hours=1))
    builder = builder.not_valid_after(now + timedelta(days=365))
    constraints = x509.BasicConstraints(ca=True, path_length=below)
    usage = x509.KeyUsage(
        digital_signature=False, content_commitment=False, key_encipherment=False,
        data_encipherment=False, key_agreement=False, key_cert_sign=True, crl_sign=True,
        encipher_only=False, decipher_only=False,
    )  # fmt: skip
    identifier = x509.SubjectKeyIdentifier.from_public_key(public_key)
    above_key = x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer_key.public_key())
    builder = builder.add_extension(constraints, critical=True)
    builder = builder.add_extension(usage, critical=True)
    builder = builder.add_extension(identifier, critical=False)
    return builder.add_extension(above_key, critical=False).sign(issuer_key, hashes.SHA256())
