"""The way of the clients to a server, on which no answer takes longer than it may.

httpx's timeouts are for one read each: who sends a byte every few seconds never meets them. It also
builds the next request of a redirection that it shall not follow, and fails at some addresses.
"""

from __future__ import annotations

import math
import ssl
import time
import urllib.request
from collections.abc import Iterable
from typing import Any

import httpcore
import httpx

from tacit_client.httpcore_answers import STEERING, AnswerBody, as_httpx

WHOLE = 30.0  # seconds for a whole answer, beside those for which nothing may come
FILE = {"piece": 1 << 17}  # extensions of a request for or with a file: bytes for new time
ENDLESS = {"endless": True}  # of one whose answer has no end
_KEPT = 5.0  # seconds for which a silent connection is kept
_RECORD = 1 << 14  # bytes that TLS takes at once


def proxy_before(url: httpx.URL) -> str | None:
    """Return the address of the proxy that the environment has before `url`; None: there is none.

    It reads HTTP_PROXY, HTTPS_PROXY, ALL_PROXY and NO_PROXY as `urllib.request` does.
    """
    if urllib.request.proxy_bypass(url.netloc.decode("ascii")):
        return None
    proxies = urllib.request.getproxies()
    proxy = proxies.get(url.scheme) or proxies.get("all")
    return proxy if proxy is None or "://" in proxy else f"http://{proxy}"


class BoundedTransport(httpx.BaseTransport):
    """A way to servers. No redirection is followed, and no cookie is kept.

    Guarantee: a request and its answer take at most WHOLE seconds more than the timeout of a read.
    With the extensions FILE each piece may take as long. An answer that is ENDLESS is ended by
    silence alone, once its headers are there.
    """

    def __init__(self, trusted: ssl.SSLContext, proxy: str | None = None) -> None:
        """trusted: whom to believe. proxy: http://[USER:PASSWORD@]HOST:PORT, or None.

        Raises ValueError for another kind of proxy.
        """
        self._pool: httpcore.ConnectionPool
        if proxy is None:
            self._pool = httpcore.ConnectionPool(
                ssl_context=trusted, keepalive_expiry=_KEPT, network_backend=_Backend()
            )
            return
        parts = httpx.Proxy(proxy)
        if parts.url.scheme not in ("http", "https"):
            raise ValueError(f"proxy of the environment, {parts.url.scheme}://…: expected http://")
        self._pool = httpcore.HTTPProxy(
            httpcore.URL(
                scheme=parts.url.raw_scheme,
                host=parts.url.raw_host,
                port=parts.url.port,
                target=parts.url.raw_path,
            ),
            proxy_auth=parts.raw_auth,
            ssl_context=trusted,
            keepalive_expiry=_KEPT,
            network_backend=_Backend(),
        )

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        """Send a request, and return its answer, whose body is still to come."""
        more = request.extensions
        times = _Times(more)
        with as_httpx():
            answer = self._pool.handle_request(
                httpcore.Request(
                    request.method,
                    httpcore.URL(
                        scheme=request.url.raw_scheme,
                        host=request.url.raw_host,
                        port=request.url.port,
                        target=request.url.raw_path,
                    ),
                    headers=request.headers.raw,
                    content=request.stream,
                    extensions={**more, "timeout": times.by_operation},
                )
            )
        if "endless" in more:
            times.lift()
        assert isinstance(answer.stream, Iterable)
        return httpx.Response(
            answer.status,
            headers=[(name, value) for name, value in answer.headers if not _steers(name)],
            stream=AnswerBody(answer.stream),
            extensions=answer.extensions,
        )

    def close(self) -> None:
        """Close every connection."""
        self._pool.close()


def _steers(name: bytes) -> bool:
    return name.lower() in STEERING


class _Times:
    """The time of one exchange, of which each operation on its socket has what is left."""

    def __init__(self, extensions: Any) -> None:
        """extensions: of the request; `timeout` is httpx's."""
        timeouts = extensions["timeout"]
        self._whole = WHOLE + (timeouts["read"] or 0.0)
        self._piece = extensions.get("piece", math.inf)
        self._passed = 0
        self._ends = time.monotonic() + self._whole
        # httpcore hands each operation its timeout on as it is.
        self.by_operation = timeouts | {
            name: _Timeout(timeouts[name] or math.inf, self)
            for name in ("connect", "read", "write")
        }

    def seconds(self) -> float:
        """Return the seconds that are left. Raises ReadTimeout."""
        seconds = self._ends - time.monotonic()
        if seconds <= 0:
            raise httpcore.ReadTimeout(f"no whole answer within {self._whole:g} s")
        return seconds

    def passed(self, count: int) -> None:
        """Take note of bytes that have come or gone."""
        self._passed += count
        if self._passed >= self._piece:
            self._passed = 0
            self._ends = time.monotonic() + self._whole

    def lift(self) -> None:
        """Let the exchange take any time from now on."""
        self._ends = math.inf


class _Timeout(float):
    """A timeout of an operation, which knows the times of its exchange."""

    def __new__(cls, seconds: float, times: _Times) -> _Timeout:
        return super().__new__(cls, seconds)

    def __init__(self, seconds: float, times: _Times) -> None:
        self.times = times


def _now(timeout: float | None) -> float | None:
    """Return what an operation may take now. Raises ReadTimeout."""
    if not isinstance(timeout, _Timeout):
        return timeout
    seconds = min(float(timeout), timeout.times.seconds())
    return None if seconds == math.inf else seconds


def _note(timeout: float | None, count: int) -> None:
    if isinstance(timeout, _Timeout):
        timeout.times.passed(count)


class _Backend(httpcore.NetworkBackend):
    """httpcore's sockets, each operation within the time of its exchange."""

    def __init__(self) -> None:
        self._sockets = httpcore.SyncBackend()

    def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore.NetworkStream:
        return _Stream(
            self._sockets.connect_tcp(host, port, _now(timeout), local_address, socket_options)
        )


class _Stream(httpcore.NetworkStream):
    """One connection of `_Backend`."""

    def __init__(self, stream: httpcore.NetworkStream) -> None:
        self._stream = stream

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        data = self._stream.read(max_bytes, _now(timeout))
        _note(timeout, len(data))
        return data

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        for start in range(0, len(buffer), _RECORD):
            record = buffer[start : start + _RECORD]
            self._stream.write(record, _now(timeout))
            _note(timeout, len(record))

    def close(self) -> None:
        self._stream.close()

    def start_tls(
        self,
        ssl_context: ssl.SSLContext,
        server_hostname: str | None = None,
        timeout: float | None = None,
    ) -> httpcore.NetworkStream:
        return _Stream(self._stream.start_tls(ssl_context, server_hostname, _now(timeout)))

    def get_extra_info(self, info: str) -> Any:
        return self._stream.get_extra_info(info)
