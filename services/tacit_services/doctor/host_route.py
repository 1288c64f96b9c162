"""The way from this machine to a federation's host: name, proxy, port, who answers by TLS.

Nothing here shows a token. The own certificate is shown where a handshake is made with it.
"""

from __future__ import annotations

import socket
import ssl
from urllib.parse import urlsplit

from cryptography import x509

from tacit.errors import ConfigError
from tacit.shown import printable
from tacit_services.doctor.diagnosis import Diagnosis, ill, well
from tacit_services.transport import foreign_certificate
from tacit_services.transport.address import is_https
from tacit_services.transport.proxy import Proxies
from tacit_services.transport.tls import Tls

SECONDS = 10.0  # for a connection, or a handshake
_HTTPS = 443


class HostRoute:
    """The way to the host at `url`, by the proxies that this machine has."""

    def __init__(self, url: str, proxies: Proxies) -> None:
        """Prepare it; nothing is sent. Raises ConfigError for what is no https address."""
        self.url = url.rstrip("/")
        self.proxies = proxies
        try:
            parts = urlsplit(url)
            host, port = parts.hostname, parts.port or _HTTPS
        except ValueError as error:
            raise ConfigError(f"{url!r}: {error}") from error
        if not host or not is_https(url):
            raise ConfigError(f"{url!r}: expected https://HOST:PORT")
        self.host: str = host
        self.port: int = port
        self._proxy = proxies.before(url)

    @property
    def address(self) -> str:
        """HOST:PORT, as the broker's address is written."""
        return f"{f'[{self.host}]' if ':' in self.host else self.host}:{self.port}"

    def name(self) -> Diagnosis:
        """Look the host's name up; behind a proxy the proxy's, which looks up the host's."""
        host = self.host if self._proxy is None else self._proxy.host
        whose = "" if self._proxy is None else "proxy "
        try:
            addresses = {str(entry[4][0]) for entry in socket.getaddrinfo(host, None)}
        except (OSError, UnicodeError) as error:
            return ill(
                "name",
                f"{whose}{host}: no such name ({getattr(error, 'strerror', None) or error})",
                "write the name as the host's operator gives it; ask your network for its DNS",
            )
        return well("name", f"{whose}{host} is {', '.join(sorted(addresses)[:3])}")

    def port_answers(self) -> Diagnosis:
        """Connect to the port, by the proxy if there is one."""
        try:
            self._connected().close()
        except ConnectionRefusedError:
            return ill(
                "port",
                f"{self._shown()}: nothing listens there",
                "is `tacit serve` running, and the port the one of the join line?",
            )
        except OSError as error:
            return self._not_reached(error)
        return well("port", f"{self._shown()} answers")

    def certificate(self, protocol: str, tls: Tls | None = None) -> x509.Certificate:
        """Return the certificate that is shown to a client of `protocol` (ALPN); not checked.

        tls: the own certificate, where the other side asks for one. Raises OSError, ConfigError.
        """
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT) if tls is None else tls.context()
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE  # who it is, is what we are here to see
        return self.shown_to(context, protocol)

    def shown_to(self, context: ssl.SSLContext, protocol: str) -> x509.Certificate:
        """Return the certificate that is shown, checked by `context`.

        Raises OSError, ssl.SSLCertVerificationError for one that the context does not believe.
        """
        context.set_alpn_protocols([protocol])
        with self._connected() as raw, context.wrap_socket(raw, server_hostname=self.host) as link:
            certificate = link.getpeercert(binary_form=True)
        if certificate is None:
            raise OSError("no certificate was shown")
        try:
            return foreign_certificate.read_der(certificate)
        except ValueError as error:
            raise OSError(printable(str(error), 200)) from error

    def _connected(self) -> socket.socket:
        if self._proxy is not None:
            return self._proxy.tunnel(self.host, self.port, SECONDS)
        return socket.create_connection((self.host, self.port), SECONDS)

    def _not_reached(self, error: OSError) -> Diagnosis:
        if self._proxy is None:
            return ill(
                "port",
                f"{self._shown()}: {error}",
                "ask your network to let this machine out to that name and port (docs/firewall.md)",
            )
        return ill(
            "proxy",
            str(error),
            f"ask who runs the proxy to allow CONNECT to {self.address}; user and password stand "
            "in HTTPS_PROXY; NO_PROXY names what needs no proxy",
        )

    def _shown(self) -> str:
        by = "" if self._proxy is None else f", by proxy {self._proxy.address}"
        return f"{self.address}{by}"
