"""An edge's certificate: from files that it was given, or by enrolling with a token.

The key is made in the identity's own directory, and never leaves it. There are two steps. The first
checks all that can be checked here, and sends nothing. The second may enrol. Between them a worker
reads its rows, so that nobody sees for how long.
"""

from __future__ import annotations

import json
import logging
import ssl
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from random import uniform

import httpx
from cryptography import x509
from cryptography.exceptions import InvalidSignature

from tacit import regular_file
from tacit.errors import ConfigError, ServiceError
from tacit_services.disk import files
from tacit_services.disk.secret_file import token_in
from tacit_services.enrollment import certificates
from tacit_services.enrollment.authority import CERTIFICATE, KEY, RENEW_DAYS
from tacit_services.identity.folder import Identity
from tacit_services.settings import EdgeSettings
from tacit_services.transport import foreign_certificate
from tacit_services.transport.address import is_https
from tacit_services.transport.patient_http import content, patient_client
from tacit_services.transport.proxy import DIRECT, Proxies, refusal
from tacit_services.transport.tls import Tls, context_trusting

log = logging.getLogger("tacit.edge")
_SETTING = "TACIT_ENROLL_TOKEN_FILE"
RETRY_CAP = 4.0  # seconds between two tries, at most
_SECONDS = 10.0  # for a whole answer
_MOST = 1 << 16  # bytes of it


@dataclass(frozen=True, slots=True)
class EnrolmentServer:
    """The server that signs edges' certificates.

    url: https://HOST:PORT. ca: certificates of the authorities that it, its signatures and the
    broker may be from. token_file: what allows an edge to enrol. timeout: seconds that it may be
    away. proxies: by which it is reached.
    """

    url: str
    ca: Path
    token_file: Path
    timeout: float
    proxies: Proxies = DIRECT

    def check(self) -> None:
        """Raise ConfigError where the token or the authorities cannot be read."""
        token_in(self.token_file, _SETTING)
        context_trusting(self.ca)

    def signed(self, csr: x509.CertificateSigningRequest, stop: threading.Event) -> str | None:
        """Return the certificate for `csr`, as it came; None when `stop` is set meanwhile.

        Raises ConfigError where the token is wrong or the server refuses, ServiceError where it
        does not answer.
        """
        token = token_in(self.token_file, _SETTING)
        believed = context_trusting(self.ca)
        deadline = time.monotonic() + self.timeout
        tries = 0
        while not stop.is_set():
            try:
                return self._post(csr, token, believed, stop)
            except ServiceError:
                if stop.is_set():
                    return None
                if time.monotonic() > deadline:
                    raise
            tries += 1
            stop.wait(uniform(0.1, min(RETRY_CAP, 0.5 * 2**tries)))
        return None

    def _post(
        self,
        csr: x509.CertificateSigningRequest,
        token: str,
        believed: ssl.SSLContext,
        stop: threading.Event,
    ) -> str:
        """Return the certificate that is answered. Raises ConfigError, ServiceError."""
        url = self.url
        proxy = self.proxies.before(url)
        try:
            with (
                patient_client(url, believed, _SECONDS, proxy=proxy, stop=stop) as client,
                client.stream(
                    "POST",
                    "/v1/enroll",
                    json={"csr": certificates.pem(csr).decode("ascii")},
                    headers={"Authorization": f"Bearer {token}"},
                ) as answer,
            ):
                body = content(answer, _MOST) or b""
        except (httpx.InvalidURL, httpx.UnsupportedProtocol) as error:
            raise ConfigError(f"TACIT_ENROLL_URL={url!r}: {error}") from error
        except httpx.ProxyError as error:
            raise ServiceError(f"enrolment at {url}: {refusal(proxy, error)}") from error
        except httpx.TransportError as error:
            raise ServiceError(f"enrolment at {url}: {error or type(error).__name__}") from error
        return _certificate(url, answer, body)


@dataclass(frozen=True, slots=True)
class Credentials:
    """The credentials of an identity at the broker, checked as far as this machine goes.

    tls: files that settings name, None if there are none. server: where it enrols, None if nowhere.
    """

    identity: Identity
    tls: Tls | None
    server: EnrolmentServer | None

    @property
    def key_file(self) -> Path | None:
        """The file of the key of its certificate; None: it has no certificate."""
        if self.server is not None:
            return _own_files(self.server, self.identity).key
        return None if self.tls is None else self.tls.key

    def obtain(self, stop: threading.Event) -> Tls | None:
        """Return them; None: plain. Enrols if there is a server and no certificate.

        Raises ConfigError: the server refuses, or the certificate names somebody else.
        ServiceError: it does not answer in time.
        """
        if self.server is None:
            return self.tls
        tls = _enrolled(self.server, self.identity, stop)
        if not stop.is_set():
            _check_name(tls, self.identity)
        return tls


def prepared(settings: EdgeSettings, identity: Identity) -> Credentials:
    """Check what this identity will show to the broker, or enrol with; no packet leaves.

    Raises ConfigError: settings, files or token are wrong, or the certificate names somebody else.
    """
    server = _server(settings)
    if server is None:
        broker_tls = settings.tls()
        if broker_tls is not None:
            _check_name(broker_tls, identity)
            broker_tls.context()
        return Credentials(identity, broker_tls, None)
    tls = _own_files(server, identity)
    if not _usable(_read(tls.cert), _own_key(tls.key), server.ca):
        server.check()
    return Credentials(identity, None, server)


def _server(settings: EdgeSettings) -> EnrolmentServer | None:
    """Return the server to enrol at, if there is one.

    Raises ConfigError: settings that do not fit.
    """
    url = settings.enroll_url
    ca = settings.tls_ca
    token_file = settings.enroll_token_file
    if url is None:
        return None
    if not is_https(url):
        raise ConfigError(f"TACIT_ENROLL_URL={url!r}: expected https://HOST:PORT")
    if ca is None or token_file is None:
        raise ConfigError(
            f"TACIT_ENROLL_URL={url!r}: TACIT_TLS_CA and TACIT_ENROLL_TOKEN_FILE must be set as "
            f"well"
        )
    if settings.tls_cert is not None or settings.tls_key is not None:
        raise ConfigError(
            f"TACIT_ENROLL_URL={url!r}: leave TACIT_TLS_CERT and TACIT_TLS_KEY out, they are made"
        )
    return EnrolmentServer(url, ca, token_file, settings.connect_timeout, settings.proxies())


def _check_name(tls: Tls, identity: Identity) -> None:
    certificate = _read(tls.cert)
    if certificate is None:
        raise ConfigError(f"{tls.cert}: not a certificate")
    name = certificates.common_name(certificate)
    if name != identity.edge:  # the broker would let it say nothing, and not tell
        raise ConfigError(
            f"{tls.cert}: is the certificate of {name!r}, and this identity is {identity.edge!r}"
        )


def _enrolled(server: EnrolmentServer, identity: Identity, stop: threading.Event) -> Tls:
    tls = _own_files(server, identity)
    key = _own_key(tls.key)
    certificate = _read(tls.cert)
    usable = _usable(certificate, key, server.ca)
    if usable and not certificates.due(usable, RENEW_DAYS):
        return tls
    try:
        answer = server.signed(certificates.request(key, identity.edge), stop)
    except (ConfigError, ServiceError) as error:
        if usable is None:
            raise
        log.warning(
            "%s ends on %s and was not renewed: %s",
            tls.cert,
            usable.not_valid_after_utc.date(),
            error,
        )
        return tls
    if answer is not None:
        _keep(answer, key, tls, server.url)
        log.info("%s has enrolled at %s", identity.edge, server.url)
    return tls


def _own_files(server: EnrolmentServer, identity: Identity) -> Tls:
    return Tls(server.ca, identity.path / CERTIFICATE, identity.path / KEY)


def _usable(
    certificate: x509.Certificate | None, key: certificates.Key, ca: Path
) -> x509.Certificate | None:
    """Return the certificate if it is valid, for this key, and of one of our authorities."""
    if certificate is None or not _fits(certificate, key, ca) or certificates.due(certificate, 0):
        return None
    return certificate


def _own_key(path: Path) -> certificates.Key:
    try:
        if path.exists():
            return certificates.read_key(regular_file.content(path))
        key = certificates.new_key()
        files.write(
            path, certificates.key_pem(key), files.SECRET
        )  # before it is asked for: the answer may be lost
        return key
    except (OSError, ValueError) as error:
        raise ConfigError(f"{path}: {error}") from error


def _read(path: Path) -> x509.Certificate | None:
    try:
        return x509.load_pem_x509_certificate(regular_file.content(path))
    except FileNotFoundError:
        return None
    except OSError as error:
        raise ConfigError(f"{path}: {error}") from error
    except ValueError:
        return None


def _fits(certificate: x509.Certificate, key: certificates.Key, ca: Path) -> bool:
    """Return whether it is for this key, and from one of our authorities."""
    if certificates.public_bytes(certificate.public_key()) != certificates.public_bytes(
        key.public_key()
    ):
        return False
    try:
        authorities = x509.load_pem_x509_certificates(regular_file.content(ca))
    except (OSError, ValueError) as error:
        raise ConfigError(f"TACIT_TLS_CA={str(ca)!r}: {error}") from error
    return any(_signed_by(certificate, authority) for authority in authorities)


def _signed_by(certificate: x509.Certificate, authority: x509.Certificate) -> bool:
    try:
        certificate.verify_directly_issued_by(authority)
    except (ValueError, TypeError, InvalidSignature):
        return False
    return True


def _certificate(url: str, answer: httpx.Response, body: bytes) -> str:
    """Return the certificate of an answer. Raises ConfigError, ServiceError."""
    try:
        values = json.loads(body)
        if answer.is_success:
            return str(values["certificate"])
        detail = str(values["detail"])[:300]
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        if answer.is_success:
            raise ServiceError(
                f"enrolment at {url}: not a tacit enrolment server's answer"
            ) from error
        detail = f"{answer.status_code}, not a tacit enrolment server's answer"
    if answer.is_server_error:
        raise ServiceError(f"enrolment at {url}: {answer.status_code}")
    raise ConfigError(f"enrolment at {url} was refused: {detail}")


def _keep(answer: str, key: certificates.Key, tls: Tls, url: str) -> None:
    try:
        certificate = foreign_certificate.read_pem(answer)
        fits = _fits(certificate, key, tls.ca)
    except ValueError as error:
        raise ServiceError(f"enrolment at {url}: the answer holds no certificate") from error
    if not fits:
        raise ServiceError(
            f"enrolment at {url}: the certificate is not for our key, or not from an authority "
            f"we believe"
        )
    try:
        files.write(tls.cert, certificates.pem(certificate), files.PUBLIC)
    except OSError as error:
        raise ConfigError(f"{tls.cert}: {error}") from error
