"""A certificate authority whose whole state is one folder.

    ca.key ca.crt crl.pem   the authority's key (0600), its certificate, the list of revoked ones
    issued/NAME.pem         every certificate of NAME, the newest last: this decides who has a name
    tokens                  digests of the enrollment tokens (enrollment/tokens.py)
    NAME/                   all that the machine of NAME needs: ca.crt, tls.crt, tls.key (0600),
                            and for a server crl.pem

Several processes may work on one folder: every change is made under its lock.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec

from tacit import file_lock
from tacit.errors import ConfigError
from tacit.protocol.topics import checked_name
from tacit_services.disk import files
from tacit_services.enrollment import certificates

DAYS = 365
RENEW_DAYS = 30  # a certificate with fewer days left is due
CA = "ca.crt"
CERTIFICATE = "tls.crt"
KEY = "tls.key"
REVOKED = "crl.pem"
_RESERVED = ("issued", "ca.key", CA, REVOKED, "tokens", "lock")


class NameTaken(ConfigError):  # noqa: N818 (a verdict on a name)
    """The name has a valid certificate of another key, or its certificate was revoked."""


class CertificateAuthority:
    """The certificate authority in `folder`."""

    def __init__(self, folder: Path) -> None:
        """Open the authority.

        Raises ConfigError where there is none, or it is unreadable or damaged.
        """
        self.folder = folder
        self._ends: dict[str, tuple[int, float]] = {}  # when the file was written; its newest's end
        try:
            self._key = certificates.read_key((folder / "ca.key").read_bytes())
            self.certificate = x509.load_pem_x509_certificate((folder / CA).read_bytes())
        except OSError as error:
            raise ConfigError(
                f"{folder}: no certificate authority ({error}); make one with tacit pki init"
            ) from error
        except ValueError as error:
            raise ConfigError(f"{folder}: ca.key or ca.crt is damaged: {error}") from error
        if self.certificate.issuer != self.certificate.subject:
            raise ConfigError(
                f"{folder / CA}: is signed by {self.certificate.issuer.rfc4514_string()}; this "
                "authority is nobody's but its own, as a broker that believed one above it would "
                "let everybody in whom that one has signed. Take ca.crt and ca.key away"
            )

    @classmethod
    def create(cls, folder: Path, name: str = "tacit") -> CertificateAuthority:
        """Make a new authority.

        Raises ConfigError if there is one already, or the folder cannot be written.
        """
        if any((folder / part).exists() for part in ("ca.key", CA)):
            raise ConfigError(
                f"{folder}: there is a certificate authority already; it is not overwritten"
            )
        key = certificates.new_key()
        certificate = certificates.authority(key, name)
        with _writing(folder):
            (folder / "issued").mkdir(parents=True, exist_ok=True)
            files.write(
                folder / REVOKED,
                certificates.pem(certificates.revocations(certificate, key, ())),
                0o644,
            )
            files.write(folder / CA, certificates.pem(certificate), files.PUBLIC)
            files.write(folder / "ca.key", certificates.key_pem(key), files.SECRET)
        return cls(folder)

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Be the only writer of the folder until the end of the block.

        Raises ConfigError where the folder cannot be written.
        """
        with _writing(self.folder), file_lock.locked(self.folder / "lock"):
            yield

    # -- under the lock --

    def standing(
        self, name: str, public_key: ec.EllipticCurvePublicKey, *, reopen: bool = False
    ) -> x509.Certificate | None:
        """Return the newest certificate of `name` if it is of this key; None: the name is free.

        Raises NameTaken where it belongs to another key, or was revoked. With `reopen` a revoked
        name may get another key.
        """
        issued = self.issued(name)
        revoked = self.revoked()
        if not issued:
            return None
        mine = certificates.public_bytes(public_key)
        lost = {
            certificates.public_bytes(old.public_key())
            for old in issued
            if old.serial_number in revoked
        }
        newest = issued[-1]
        if newest.serial_number in revoked:
            if mine in lost or not reopen:
                raise NameTaken(f"{name!r} was revoked")
            return None
        if certificates.public_bytes(newest.public_key()) != mine:
            raise NameTaken(f"{name!r} belongs to another key; revoke it first")
        return newest

    def sign(
        self,
        name: str,
        public_key: ec.EllipticCurvePublicKey,
        days: float = DAYS,
        hosts: Sequence[str] = (),
    ) -> x509.Certificate:
        """Sign a certificate of `name` for this key, and enter it in the register.

        Ask `standing` first.
        """
        certificate = certificates.sign(self.certificate, self._key, name, public_key, days, hosts)
        path = self._issued_path(name)
        if path.exists():
            earlier = path.read_bytes()
        else:
            earlier = b""
        files.write(path, earlier + certificates.pem(certificate), files.PUBLIC)
        return certificate

    def issue(
        self, name: str, hosts: Sequence[str] = (), days: int = DAYS, *, group: bool = False
    ) -> Path:
        """Make a key and a certificate of `name`, in the folder NAME, which is returned.

        With `group` the file's group may read the key. Raises ConfigError for a bad name or host, a
        folder that has a key already, or a name that is taken.
        """
        if name in _RESERVED:
            raise ConfigError(f"name={name!r}: kept for the authority's own files")
        bundle = self.folder / checked_name("name", name)
        if (bundle / KEY).exists():
            raise ConfigError(f"{bundle}: there is a key already; it is not overwritten")
        key = certificates.new_key()
        self.standing(name, key.public_key(), reopen=True)
        certificate = self.sign(name, key.public_key(), days, hosts)
        bundle.mkdir(exist_ok=True)
        files.write(bundle / CA, certificates.pem(self.certificate), files.PUBLIC)
        files.write_for_owner(bundle / CERTIFICATE, certificates.pem(certificate), files.PUBLIC)
        if hosts:
            files.write(bundle / REVOKED, (self.folder / REVOKED).read_bytes(), files.PUBLIC)
        files.write(bundle / KEY, certificates.key_pem(key), files.GROUP if group else files.SECRET)
        return bundle

    def renew(self, name: str, hosts: Sequence[str] = (), days: int = DAYS) -> Path:
        """Sign a new certificate for the key in the folder NAME; returns the folder.

        It is for the same hosts unless `hosts` are given. Raises ConfigError where there is no key,
        or it is damaged, or its certificate was revoked.
        """
        bundle = self.folder / checked_name("name", name)
        try:
            key = certificates.read_key((bundle / KEY).read_bytes())
        except (OSError, ValueError) as error:
            raise ConfigError(f"{bundle / KEY}: {error}") from error
        newest = self.standing(name, key.public_key())
        if newest is None:
            raise ConfigError(f"{name!r}: never had a certificate of {self.folder}")
        certificate = self.sign(name, key.public_key(), days, hosts or certificates.hosts(newest))
        files.write_for_owner(bundle / CERTIFICATE, certificates.pem(certificate), files.PUBLIC)
        return bundle

    def revoke(self, name: str) -> int:
        """Revoke every certificate of `name`; returns how many were not revoked before.

        The list of revoked certificates is replaced in every folder that has a copy. Raises
        ConfigError for a name that never had a certificate.
        """
        issued = self.issued(name)
        revoked = self.revoked()
        if not issued:
            raise ConfigError(f"{name!r}: never had a certificate of {self.folder}")
        serials = {certificate.serial_number for certificate in issued}
        data = certificates.pem(
            certificates.revocations(self.certificate, self._key, revoked | serials)
        )
        for path in (self.folder / REVOKED, *self.folder.glob(f"*/{REVOKED}")):
            files.write_for_owner(path, data, files.PUBLIC)
        return len(serials - revoked)

    # -- reading --

    def names(self) -> list[str]:
        """Return the names that ever had a certificate."""
        return sorted(path.stem for path in (self.folder / "issued").glob("*.pem"))

    def issued(self, name: str) -> list[x509.Certificate]:
        """Return every certificate of `name`, the oldest first.

        Raises ConfigError where this cannot be a name, or the file is damaged.
        """
        path = self._issued_path(name)
        try:
            if path.exists():
                return x509.load_pem_x509_certificates(path.read_bytes())
            return []
        except ValueError as error:
            raise ConfigError(f"{path}: damaged: {error}") from error

    def ends(self, name: str) -> float | None:
        """Return when the newest certificate of `name` ends, in seconds since 1970.

        None: it never had any. The file is read once, until another is written. Raises as `issued`.
        """
        try:
            written = self._issued_path(name).stat().st_mtime_ns
        except FileNotFoundError:
            return None
        last = self._ends.get(name)
        if last is None or last[0] != written:
            newest = self.issued(name)[-1]
            last = self._ends[name] = written, newest.not_valid_after_utc.timestamp()
        return last[1]

    def revoked(self) -> set[int]:
        """Return the serial numbers of revoked certificates.

        Raises ConfigError where the list is missing or damaged: then nothing is signed.
        """
        path = self.folder / REVOKED
        try:
            return {entry.serial_number for entry in x509.load_pem_x509_crl(path.read_bytes())}
        except (OSError, ValueError) as error:
            raise ConfigError(f"{path}: {error}") from error

    def _issued_path(self, name: str) -> Path:
        return self.folder / "issued" / f"{checked_name('name', name)}.pem"


@contextmanager
def _writing(folder: Path) -> Iterator[None]:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        yield
    except OSError as error:
        raise ConfigError(f"{folder}: {error}") from error
