"""HTTP clients of servers that nobody has to trust with our time.

httpx's timeouts are for one read each, and it follows `Location` into a request of its own even
where it shall not follow it.
"""

from __future__ import annotations

import selectors
import socket
import ssl
import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any

import httpcore
import httpx
from tacit_client.httpcore_answers import STEERING, AnswerBody, as_httpx

from tacit_services.transport.patience import Patience
from tacit_services.transport.proxy import HttpProxy

PIECE = {"piece": 1 << 17}  # extensions of a request whose answer is a file: bytes for new time
_KEPT = 5.0  # seconds for which a silent connection is kept


def patient_client(
    url: str,
    trusted: ssl.SSLContext,
    seconds: float,
    *,
    proxy: HttpProxy | None = None,
    headers: Mapping[str, str] | None = None,
    stop: threading.Event | None = None,
) -> httpx.Client:
    """Return a client of the server at `url` whose exchanges take at most `seconds` each.

    A request with the extensions PIECE has the time anew with every such piece. stop: ends a
    waiting, too. Answers come as they were sent, not unpacked. What it raises is httpx.InvalidURL
    or an httpx.TransportError.
    """
    return httpx.Client(
        base_url=url,
        transport=_PatientTransport(trusted, seconds, proxy, stop),
        trust_env=False,
        # A few bytes cannot become very many.
        headers={"Accept-Encoding": "identity", **(headers or {})},
    )


def content(answer: httpx.Response, most: int) -> bytes | None:
    """Return the body of an answer, which may have no end; None: it has more than `most` bytes."""
    body = bytearray()
    for piece in answer.iter_raw():
        body += piece
        if len(body) > most:
            return None
    return bytes(body)


class UnsteeredTransport(httpx.HTTPTransport):
    """httpx's way, of whose answers it takes no next request and keeps nothing."""

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        """Send as httpx.HTTPTransport does."""
        return _unsteered(super().handle_request(request))


class UnsteeredAsyncTransport(httpx.AsyncHTTPTransport):
    """The same for asyncio."""

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Send as httpx.AsyncHTTPTransport does."""
        return _unsteered(await super().handle_async_request(request))


def _unsteered(answer: httpx.Response) -> httpx.Response:
    for name in STEERING:
        answer.headers.pop(name.decode("ascii"), None)
    return answer


class _PatientTransport(httpx.BaseTransport):
    """The way of `patient_client`."""

    def __init__(
        self,
        trusted: ssl.SSLContext,
        seconds: float,
        proxy: HttpProxy | None,
        stop: threading.Event | None,
    ) -> None:
        self._seconds = seconds
        self._patience = Patience(stop)
        backend = _PatientBackend(self._patience)
        if proxy is None:
            self._pool = httpcore.ConnectionPool(
                ssl_context=trusted, keepalive_expiry=_KEPT, network_backend=backend
            )
        else:
            access = None
            if proxy.user is not None:
                access = (proxy.user.encode(), proxy.password.encode())
            self._pool = httpcore.HTTPProxy(
                httpcore.URL(scheme=b"http", host=proxy.host.encode(), port=proxy.port, target="/"),
                proxy_auth=access,
                ssl_context=trusted,
                keepalive_expiry=_KEPT,
                network_backend=backend,
            )

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        """Send a request; the time begins here, and is for the answer's body as well."""
        assert isinstance(request.stream, httpx.SyncByteStream)
        self._patience.begin(self._seconds, request.extensions.get("piece"))
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
                    extensions=request.extensions,
                )
            )
        assert isinstance(answer.stream, Iterable)
        return httpx.Response(
            answer.status,
            headers=[
                (name, value) for name, value in answer.headers if name.lower() not in STEERING
            ],
            stream=AnswerBody(answer.stream),
            extensions=answer.extensions,
        )

    def close(self) -> None:
        """Close every connection."""
        self._pool.close()


class _PatientBackend(httpcore.NetworkBackend):
    """The sockets of a client, which all wait for as long as `patience` allows."""

    def __init__(self, patience: Patience) -> None:
        self._patience = patience

    def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore.NetworkStream:
        with _mapped(httpcore.ConnectTimeout, httpcore.ConnectError):
            return _PatientStream(self._patience.connected(host, port), self._patience)


class _PatientStream(httpcore.NetworkStream):
    """One socket, plain or with TLS."""

    def __init__(self, link: socket.socket, patience: Patience) -> None:
        self._link = link
        self._patience = patience

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        with _mapped(httpcore.ReadTimeout, httpcore.ReadError):
            data = self._patience.waited(self._link, partial(self._link.recv, max_bytes))
        self._patience.passed(len(data))
        return data

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        with _mapped(httpcore.WriteTimeout, httpcore.WriteError):
            self._patience.send(self._link, buffer)

    def close(self) -> None:
        self._link.close()

    def start_tls(
        self,
        ssl_context: ssl.SSLContext,
        server_hostname: str | None = None,
        timeout: float | None = None,
    ) -> httpcore.NetworkStream:
        with _mapped(httpcore.ConnectTimeout, httpcore.ConnectError):
            try:
                link = ssl_context.wrap_socket(
                    self._link, server_hostname=server_hostname, do_handshake_on_connect=False
                )
                self._link = link  # the plain one is no more, so it is this one that is closed
                self._patience.waited(link, link.do_handshake)
            except BaseException:
                self.close()
                raise
        return _PatientStream(link, self._patience)

    def get_extra_info(self, info: str) -> Any:
        if info == "ssl_object":
            return self._link if isinstance(self._link, ssl.SSLSocket) else None
        if info == "is_readable":
            return _is_readable(self._link)
        return self._link if info == "socket" else None


def _is_readable(link: socket.socket) -> bool:
    if link.fileno() < 0:
        return True
    with selectors.DefaultSelector() as selector:
        selector.register(link, selectors.EVENT_READ)
        return bool(selector.select(0))


@contextmanager
def _mapped(timeout: type[Exception], failure: type[Exception]) -> Iterator[None]:
    """Raise errors of a socket as httpcore's."""
    try:
        yield
    except TimeoutError as error:
        raise timeout(str(error)) from error
    except (OSError, ValueError) as error:  # the second: a name that cannot be one of TLS
        raise failure(str(error)) from error
