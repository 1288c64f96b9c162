"""The way out through an organisation's HTTP proxy, for HTTPS and MQTT alike (CONNECT).

The proxy sees the name and the port that are asked for, and TLS bytes. The caller passes the
settings in. Nothing here reads the environment.
"""

from __future__ import annotations

import base64
import ipaddress
import re
import socket
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from urllib.parse import quote, unquote, urlsplit

from tacit.errors import ConfigError
from tacit.shown import printable
from tacit_services.transport.patience import Patience

_PORT = 3128  # where a proxy listens whose address has no port
_LONGEST = 120  # characters of what a proxy says
_FORM = "http://[USER:PASSWORD@]HOST:PORT, with %2F, %23, %3F, %40 for / # ? @ in a password"
_LONGEST_HEAD = 1 << 16  # bytes of its answer
_STATUS = re.compile(r"HTTP/[0-9.]+ +([0-9]{3})(?: (.*))?$")


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
        patience = Patience()
        patience.begin(timeout)
        try:
            opened = patience.connected(self.host, self.port)
            try:
                # The request is ASCII; what is no ASCII in a name has a form in it.
                name = host if host.isascii() else host.encode("idna").decode("ascii")
                patience.send(opened, self._connect(name, port))
                _check_opened(opened, patience)
            except BaseException:
                opened.close()
                raise
        except (OSError, ValueError) as error:
            raise OSError(refusal(self, error)) from error
        opened.settimeout(timeout)
        return opened

    def _connect(self, host: str, port: int) -> bytes:
        """Return the request to be connected to `host`:`port`. Raises ValueError for no name."""
        place = f"{_in_url(host)}:{port}"
        if not place.isprintable() or " " in place:
            raise ValueError(f"{place[:80]!r}: is no name")
        lines = [f"CONNECT {place} HTTP/1.0", f"Host: {place}"]
        if self.user is not None:
            access = base64.b64encode(f"{self.user}:{self.password}".encode())
            lines.append(f"Proxy-Authorization: Basic {access.decode('ascii')}")
        return "\r\n".join((*lines, "", "")).encode("ascii")


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
    except ValueError:
        # Neither value nor error is quoted: where a port should be, a part of a password may be.
        raise ConfigError(f"proxy setting: has no such port; expected {_FORM}") from None
    if parts.scheme != "http" or not host or parts.path.strip("/") or parts.query:
        raise ConfigError(f"{shown}: expected {_FORM}")
    user = None if parts.username is None else unquote(parts.username)
    return HttpProxy(host, port, user, unquote(parts.password or ""))


def _check_opened(link: socket.socket, patience: Patience) -> None:
    """Read a proxy's answer, and no byte behind it. Raises OSError for any but 200."""
    lines = _lines(link, patience)
    first = next(lines)
    if (status := _STATUS.match(first)) is None:
        raise OSError(first or "closes the connection")
    if status[1] != "200":
        raise OSError(f"{status[1]} {(status[2] or '').strip()}")
    while next(lines):
        pass


def _lines(link: socket.socket, patience: Patience) -> Iterator[str]:
    """Yield the lines of an answer, then "" for ever. Raises OSError for too many bytes."""
    line = bytearray()
    for _ in range(_LONGEST_HEAD):
        byte = patience.waited(link, partial(link.recv, 1))
        line += byte
        if byte in (b"\n", b""):
            yield line.decode("latin-1").rstrip("\r\n")
            line.clear()
    raise OSError(f"answers with more than {_LONGEST_HEAD:,} bytes")


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
    answer = printable(" ".join(str(error).split())[:_LONGEST]) or type(error).__name__
    where = "the proxy" if proxy is None else f"proxy {proxy.address}"
    if not re.match(r"\d{3}\b", answer):
        return f"{where}: {answer}"
    if answer.startswith("407"):
        return f"{where}: asks for a user and a password, or for others than these ({answer})"
    return f"{where}: refuses to connect us ({answer})"


def _in_url(host: str) -> str:
    return f"[{host}]" if ":" in host else host
