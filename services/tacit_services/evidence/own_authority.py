"""The authorities that sign bundles: a throwaway one, or a federation's."""

from __future__ import annotations

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec

from tacit.errors import ConfigError
from tacit_services.enrollment import certificates
from tacit_services.enrollment.authority import DAYS, CertificateAuthority


class ThrowawayAuthority:
    """An authority whose key is forgotten: what it certifies is one machine's own word."""

    def __init__(self, name: str = "tacit run, self-stated") -> None:
        self._key = certificates.new_key()
        self.certificate = certificates.authority(self._key, name)

    def certified(self, name: str, key: ec.EllipticCurvePublicKey) -> x509.Certificate:
        """Return a certificate of `name` for this public key."""
        return certificates.sign(self.certificate, self._key, name, key, DAYS)


class FederationsAuthority:
    """The authority of a federation, at its host."""

    def __init__(self, authority: CertificateAuthority) -> None:
        self._authority = authority

    @property
    def certificate(self) -> x509.Certificate:
        """Its own certificate."""
        return self._authority.certificate

    def certified(self, name: str, key: ec.EllipticCurvePublicKey) -> x509.Certificate:
        """Return a certificate of `name` for this public key. Raises ConfigError."""
        with self._authority.locked():
            return self._authority.sign(name, key)

    def issued(self, name: str, key: ec.EllipticCurvePublicKey) -> x509.Certificate:
        """Return the newest certificate that `name` has of this key. Raises ConfigError."""
        digest = certificates.key_digest(key)
        for certificate in reversed(self._authority.issued(name)):
            if certificates.key_digest(certificate.public_key()) == digest:
                return certificate
        raise ConfigError(f"{name}: the authority has certified another key than it has signed by")
