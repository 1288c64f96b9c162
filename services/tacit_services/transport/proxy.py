"""The way out through an organisation's HTTP proxy, for HTTPS and MQTT alike (CONNECT).

The proxy sees the name and the port that are asked for, and TLS bytes. Who makes a connection
passes the settings in. Nothing here reads the environment.
"""

from __future__ import annotations

import base64
import http.client
import ipaddress
import re
import socket
from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import quote, unquote, urlsplit

from tacit.errors import ConfigError
from tacit.shown import printable

_PORT = 3128  # where a proxy listens whose address has no port
_TUNNEL = "Tunnel connection failed: "  # how Python's http.client begins
_LONGEST = 120  # characters of what a proxy says


@dataclass(frozen=True, slots=True)
class HttpProxy:
    """A proxy that speaks HTTP to us; `user` is None where it asks for none."""

    host: str
    port: int
    user: str | None = None
    password: str = field(default="", repr=False)

    @property
    def address(self) -> str:
        """HOST:PORT, fit for messages: it has no password."""
        return f"{self.host}:{self.port}"

    @property
    def url(self) -> str:
        """Its URL with user and password, as `httpx.Client(proxy=…)` takes it."""
        access = ""
        if self.user is not None:
            access = f"{quote(self.user, safe='')}:{quote(self.password, safe='')}@"
        return f"http://{access}{_in_url(self.host)}:{self.port}"

    def tunnel(self, host: str, port: int, timeout: float) -> socket.socket:
        """Return a socket whose bytes the proxy passes to `host`:`port`, and back.

        Raises OSError, in one line that names the proxy.
        """
        headers = {"Host": f"{_in_url(host)}:{port}"}
        if self.user is not None:
            access = base64.b64encode(f"{self.user}:{self.password}".encode())
            headers["Proxy-Authorization"] = f"Basic {access.decode('ascii')}"
        connection = http.client.HTTPConnection(self.host, self.port, timeout=timeout)
        try:
            # Python encodes the name as ASCII; what is no ASCII has a form in it.
            name = host if host.isascii() else host.encode("idna").decode("ascii")
            connection.set_tunnel(_in_url(name), port, headers)
            connection.connect()
        except (OSError, http.client.HTTPException, UnicodeError) as error:
            connection.close()
            raise OSError(refusal(self, error)) from error
        opened: socket.socket = connection.sock
        connection.sock = None  # it is the caller's from now on
        return opened


@dataclass(frozen=True, slots=True)
class Proxies:
    """Which addresses are reached by a proxy. The default: none."""

    https: HttpProxy | None = None
    exempt: tuple[str, ...] = ()

    @classmethod
    def parsed(cls, proxy: str | None, exempt: str = "") -> Proxies:
        """Return them for values of HTTPS_PROXY and NO_PROXY.

        proxy: http://[USER:PASSWORD@]HOST[:PORT], or nothing. exempt: names, with all names below
        them, addresses and networks, each with `:PORT` or without, ',' between. `*` is all.
        Raises ConfigError, which shows no password.
        """
        entries = tuple(entry.strip().lower() for entry in exempt.split(",") if entry.strip())
        if not proxy:
            return cls(None, entries)
        return cls(_parsed(proxy), entries)

    @classmethod
    def of_environment(cls, variables: Mapping[str, str]) -> Proxies:
        """Return what these environment variables ask for, in either case of letters.

        The lower case goes first, as in other programs. Raises ConfigError.
        """
        values = (
            variables.get(name.lower()) or variables.get(name) or ""
            for name in ("HTTPS_PROXY", "NO_PROXY")
        )
        return cls.parsed(*values)

    def between(self, host: str, port: int) -> HttpProxy | None:
        """Return the proxy between us and `host`:`port`; None: it is reached directly."""
        if any(_names(entry, host.lower().strip("[]"), port) for entry in self.exempt):
            return None
        return self.https

    def before(self, url: str) -> HttpProxy | None:
        """Return the proxy between us and the server of an https `url`, as `between` does."""
        try:
            parts = urlsplit(url)
            host, port = parts.hostname or "", parts.port or 443
        except ValueError:  # who asks the server says what is wrong with the URL
            return None
        return self.between(host, port)

    def url_before(self, url: str) -> str | None:
        """Return the URL of the proxy before `url`, as `httpx.Client(proxy=…)` takes it."""
        proxy = self.before(url)
        return None if proxy is None else proxy.url


DIRECT = Proxies()


def _parsed(proxy: str) -> HttpProxy:
    shown = f"proxy {proxy.rpartition('@')[2]!r}"  # without a password
    try:
        parts = urlsplit(proxy if "://" in proxy else f"http://{proxy}")
        host, port = parts.hostname, parts.port or _PORT
    except ValueError as error:
        raise ConfigError(f"{shown}: {error}") from error
    if parts.scheme != "http" or not host or parts.path.strip("/") or parts.query:
        raise ConfigError(f"{shown}: expected http://[USER:PASSWORD@]HOST:PORT")
    user = None if parts.username is None else unquote(parts.username)
    return HttpProxy(host, port, user, unquote(parts.password or ""))


def _names(entry: str, host: str, port: int) -> bool:
    """Return whether an entry of NO_PROXY is for this host and port."""
    name, _, number = entry.rpartition(":")
    if name and number.isdecimal() and (":" not in name or name.endswith("]")):
        if int(number) != port:
            return False
        entry = name
    entry = entry.strip("[]")
    try:
        return ipaddress.ip_address(host) in ipaddress.ip_network(entry, strict=False)
    except ValueError:
        pass
    domain = entry.removeprefix("*").removeprefix(".")
    return entry == "*" or (bool(domain) and (host == domain or host.endswith(f".{domain}")))


def refusal(proxy: HttpProxy | None, error: Exception) -> str:
    """Return in one line that `proxy` lets nobody through, for what a library says of it."""
    text = printable(" ".join(str(error).split())[:_LONGEST]) or type(error).__name__
    answer = text.removeprefix(_TUNNEL)
    where = "the proxy" if proxy is None else f"proxy {proxy.address}"
    if not re.match(r"\d{3}\b", answer):
        return f"{where}: {text}"
    if answer.startswith("407"):
        return f"{where}: asks for a user and a password, or for others than these ({answer})"
    return f"{where}: refuses to connect us ({answer})"


def _in_url(host: str) -> str:
    return f"[{host}]" if ":" in host else host
