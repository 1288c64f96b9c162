"""Whom a newcomer believes: a federation's authority, known by the SHA-256 of a short document.

    {"format": 1, "ca": "-----BEGIN CERTIFICATE-----…", "web": "own"}

The host serves it at /v1/authority. Its SHA-256 stands in the line that the host's operator gives
away, so the connection by which it comes need not be believed.
"""

from __future__ import annotations

import hashlib
import json
import socket
import ssl
import time
from dataclasses import dataclass
from email.utils import parsedate_to_datetime

import httpx

from tacit.errors import ConfigError, ServiceError, other_format
from tacit.shown import printable
from tacit_services.transport import foreign_certificate
from tacit_services.transport.address import is_https
from tacit_services.transport.patient_http import content, patient_client
from tacit_services.transport.proxy import DIRECT, Proxies, refusal

PATH = "/v1/authority"
FORMAT = 1
PREFIX = "sha256:"
_MOST = 1 << 16
_SECONDS = 20.0  # for a whole answer
CLOCK = 300.0  # seconds by which this machine's clock may differ from the host's


@dataclass(frozen=True, slots=True)
class FederationAuthority:
    """A federation's authority. ca: its certificate (PEM), and then those of an organisation's
    own authority, if the host or its broker shows one of its certificates.

    public_web: whether the host's HTTPS certificate is of an authority that the system trusts.
    """

    ca: str
    public_web: bool = False

    def document(self) -> bytes:
        """Return the document, byte for byte the same each time."""
        web = "public" if self.public_web else "own"
        content = {"format": FORMAT, "ca": self.ca, "web": web}
        return json.dumps(content, sort_keys=True, separators=(",", ":")).encode()

    def pin(self) -> str:
        """Return the SHA-256 of the document, as `--ca` takes it."""
        return PREFIX + hashlib.sha256(self.document()).hexdigest()

    def context(self) -> ssl.SSLContext:
        """Return a context that believes this authority, and the system's for a public HTTPS."""
        context = _context()
        context.load_verify_locations(cadata=self.ca)
        if self.public_web:
            context.load_default_certs()
        return context


def _context() -> ssl.SSLContext:
    """Return a context that believes nobody yet.

    Not Python's default one, which writes the keys of its connections where SSLKEYLOGFILE says.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    return context


def fetched(url: str, pin: str, proxies: Proxies = DIRECT) -> FederationAuthority:
    """Return the authority of the host at `url`, whose document has this SHA-256.

    Nothing else that the connection says is believed. Raises ConfigError for another document or a
    bad `pin`, ServiceError where there is no answer.
    """
    shown = document_at(url, proxies)
    if shown.pin != pin:
        raise ConfigError(
            f"--ca {pin[:80]}: the host at {url} shows {shown.pin}; it is not the one that the "
            "line is from, or somebody takes the connection apart. Ask its operator for a new line"
        )
    if shown.clock_apart is not None and abs(shown.clock_apart) > CLOCK:
        raise ConfigError(f"clock: {clocks(shown.clock_apart)}")
    return read(shown.content)


@dataclass(frozen=True, slots=True)
class ShownDocument:
    """What a server shows as its authority. Nothing of it is believed.

    clock_apart: seconds by which this machine's clock is ahead of its, or None.
    """

    content: bytes
    clock_apart: float | None

    @property
    def pin(self) -> str:
        """The SHA-256 of the document, as `--ca` takes it."""
        return PREFIX + hashlib.sha256(self.content).hexdigest()


def document_at(url: str, proxies: Proxies = DIRECT) -> ShownDocument:
    """Return what the server at `url` shows as its authority, without asking who it is.

    Raises ConfigError for a bad address, ServiceError where there is no such answer.
    """
    if not is_https(url):
        raise ConfigError(f"{url!r}: expected https://HOST:PORT")
    unverified = _context()
    unverified.check_hostname = False
    unverified.verify_mode = ssl.CERT_NONE
    try:
        with (
            patient_client(url, unverified, _SECONDS, proxy=proxies.before(url)) as client,
            client.stream("GET", PATH) as answer,
        ):
            body = content(answer, _MOST)
    except (httpx.InvalidURL, httpx.UnsupportedProtocol) as error:
        raise ConfigError(f"{url!r}: {error}") from error
    except httpx.TransportError as error:
        raise unreachable(url, error, proxies) from error
    if not answer.is_success or body is None:
        raise ServiceError(f"{url}: {answer.status_code}, not a federation's answer")
    return ShownDocument(body, _clock_apart(answer))


def clocks(apart: float) -> str:
    """Return in words that this machine's clock and the host's differ, and what to do."""
    where = "ahead of" if apart > 0 else "behind"
    return (
        f"this machine's is {abs(apart):.0f} s {where} the host's; set it, as certificates are "
        "valid by the clock"
    )


def unreachable(url: str, error: httpx.TransportError, proxies: Proxies) -> ServiceError:
    """Return the error, in one line, that `url` did not answer, or that a proxy is in the way."""
    if isinstance(error, httpx.ProxyError):
        return ServiceError(f"{url}: {refusal(proxies.before(url), error)}")
    reason = printable(str(error), 200) or type(error).__name__
    way = "" if (proxy := proxies.before(url)) is None else f" (by the proxy {proxy.address})"
    return ServiceError(f"{url}: {reason}{way}{_advice(error)}")


def _advice(error: BaseException | None) -> str:
    """Return what to look at, as far as an error and its causes say; "" where they say nothing."""
    while error is not None:
        for kind, words in _ADVICE:
            if isinstance(error, kind):
                return f"; {words}"
        error = error.__cause__ or error.__context__
    return ""


_ADVICE: tuple[tuple[type[BaseException], str], ...] = (
    (socket.gaierror, "this machine does not find the host's name: is it right?"),
    (
        ssl.SSLCertVerificationError,
        "its certificate is not the federation's: a proxy takes the connection apart, the host's "
        "name or address is not one of its `hosts`, or a new line is needed (`tacit doctor`)",
    ),
    (ssl.SSLError, "it speaks no TLS at that port, or does not take our certificate"),
    (
        ConnectionRefusedError,
        "nothing listens at that port: does the host run, and is the port right?",
    ),
    (
        httpx.TimeoutException,
        "does a firewall let this port out? Where a proxy must be used, HTTPS_PROXY names it",
    ),
    (OSError, "is there a network? Where a proxy must be used, HTTPS_PROXY names it"),
)


def _clock_apart(answer: httpx.Response) -> float | None:
    try:
        return time.time() - parsedate_to_datetime(answer.headers["date"]).timestamp()
    except (KeyError, ValueError, TypeError, OverflowError):
        return None


def read(content: bytes) -> FederationAuthority:
    """Return the authority of a document. Raises ConfigError."""
    try:
        values = json.loads(content)
        if (number := values["format"]) != FORMAT:
            raise ValueError(other_format(number, FORMAT))
        ca = str(values["ca"])
        foreign_certificate.read_pem(ca)
        return FederationAuthority(ca, {"own": False, "public": True}[values["web"]])
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        words = printable(str(error), 200)
        raise ConfigError(f"authority: not a federation's document ({words})") from error
