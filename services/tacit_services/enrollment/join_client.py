"""What a machine that joins a federation asks its host over HTTPS, before and after it is a member.

A join line names the host, a token, and the SHA-256 of the federation's authority. The authority's
certificate is fetched from the host itself, of which nothing is believed by then, and is compared
with that. The token is shown only after it, to a server whose certificate the authority has signed.
"""

from __future__ import annotations

import hmac
import json
import ssl
import threading
from dataclasses import dataclass
from typing import Any

import httpx
from cryptography import x509

from tacit.errors import ConfigError, ServiceError
from tacit.shown import printable
from tacit_services.enrollment import certificates
from tacit_services.transport import foreign_certificate
from tacit_services.transport.address import is_https
from tacit_services.transport.patient_http import content, patient_client
from tacit_services.transport.proxy import DIRECT, Proxies, refusal

_SECONDS = 10.0  # for a whole answer
_MOST = 1 << 16  # bytes of an answer


@dataclass(frozen=True, slots=True)
class Admitted:
    """What the host has answered: the member's id and name, and its certificate."""

    edge: str
    name: str
    certificate: x509.Certificate


class JoinClient:
    """The host of a federation, as a machine that joins it reaches it."""

    def __init__(
        self, url: str, proxies: Proxies = DIRECT, stop: threading.Event | None = None
    ) -> None:
        """url: https://HOST:PORT; nothing is sent yet. Raises ConfigError for another kind.

        stop: once it is set nothing is waited for, as if the host did not answer.
        """
        if not is_https(url):
            raise ConfigError(f"url={url!r}: expected https://HOST:PORT")
        self._url = url.rstrip("/")
        self._proxy = proxies.before(url)
        self._stop = stop

    def authority(self, digest: str) -> x509.Certificate:
        """Return the federation's authority, whose SHA-256 is `digest` (`sha256:…`).

        Raises ConfigError where the host's is another, ServiceError where it does not answer.
        """
        unbelieved = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        unbelieved.check_hostname = False
        unbelieved.verify_mode = ssl.CERT_NONE  # the digest says whether it is the right one
        answer = self._asked("GET", "/v1/ca", unbelieved)
        certificate = self._certificate(answer, "ca")
        shown = certificates.fingerprint(certificate)
        if not hmac.compare_digest(shown, digest.strip().lower()):
            raise ConfigError(
                f"{self._url}: its authority is {shown}, not the one of the join line; it is "
                "another host, or somebody is between"
            )
        return certificate

    def enroll(
        self,
        trusted: ssl.SSLContext,
        token: str,
        key: certificates.Key,
        *,
        name: str | None,
        machine: str,
        version: str,
    ) -> Admitted:
        """Become a member, by a join token. The same key may ask again.

        trusted: believes the authority. name: None: the host makes one of `machine`. Raises
        ConfigError where the host refuses, in its words, ServiceError where it does not answer.
        """
        request = certificates.request(key, "member")
        body = {
            "csr": certificates.pem(request).decode("ascii"),
            "name": name,
            "machine": machine,
            "version": version,
        }
        headers = {"Authorization": f"Bearer {token}"}
        answer = self._asked("POST", "/v1/enroll", trusted, json=body, headers=headers)
        return self._membership(answer, key)

    def renew(self, trusted: ssl.SSLContext, key: certificates.Key) -> Admitted:
        """Get another certificate of the same key. trusted: shows the one that is there.

        Raises as `enroll` does.
        """
        request = certificates.request(key, "member")
        body = {"csr": certificates.pem(request).decode("ascii")}
        return self._membership(self._asked("POST", "/v1/renew", trusted, json=body), key)

    def _membership(self, answer: dict[str, Any], key: certificates.Key) -> Admitted:
        certificate = self._certificate(answer, "certificate")
        mine = certificates.key_digest(key.public_key())
        edge = certificates.common_name(certificate)
        if certificates.key_digest(certificate.public_key()) != mine or edge != answer.get("edge"):
            raise ServiceError(f"{self._url}: the certificate in its answer is not ours")
        return Admitted(edge, printable(str(answer.get("name", "")), 100), certificate)

    def _certificate(self, answer: dict[str, Any], field: str) -> x509.Certificate:
        try:
            return foreign_certificate.read_pem(str(answer[field]))
        except (KeyError, ValueError) as error:
            raise ServiceError(f"{self._url}: not the answer of a federation's host") from error

    def _asked(
        self, method: str, path: str, trusted: ssl.SSLContext, **more: Any
    ) -> dict[str, Any]:
        """Return the JSON object that is answered. Raises ConfigError, ServiceError."""
        try:
            with (
                patient_client(
                    self._url, trusted, _SECONDS, proxy=self._proxy, stop=self._stop
                ) as client,
                client.stream(method, path, **more) as answer,
            ):
                values = self._values(answer)
                status = answer.status_code
        except (httpx.InvalidURL, httpx.UnsupportedProtocol) as error:
            raise ConfigError(f"url={self._url!r}: {error}") from error
        except httpx.ProxyError as error:
            raise ServiceError(f"{self._url}: {refusal(self._proxy, error)}") from error
        except httpx.TransportError as error:
            reason = printable(str(error), 200) or type(error).__name__
            raise ServiceError(f"{self._url}: {reason}") from error
        if status >= httpx.codes.INTERNAL_SERVER_ERROR:
            raise ServiceError(f"{self._url}: {status}")
        if status >= httpx.codes.BAD_REQUEST:
            detail = printable(str(values.get("detail", status)), 300)
            raise ConfigError(f"{self._url}: {detail}")
        return values

    def _values(self, answer: httpx.Response) -> dict[str, Any]:
        data = content(answer, _MOST)
        if data is None:
            raise ServiceError(f"{self._url}: an answer of more than {_MOST} bytes")
        try:
            values = json.loads(data)
        except (ValueError, RecursionError):
            values = None
        if not isinstance(values, dict):
            raise ServiceError(f"{self._url}: not the answer of a federation's host")
        return values
