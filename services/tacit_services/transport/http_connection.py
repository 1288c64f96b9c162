"""uvicorn's HTTP connection, which knows for how long it has waited for its client."""

from __future__ import annotations

import asyncio
import ssl
import time
from collections.abc import Callable
from typing import Any

import h11
from starlette.types import Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

from tacit_services.transport.problems import PROBLEM, problem

PROGRESS = 1 << 17  # bytes; more than any request has that is no upload


class BoundedConnection(H11Protocol):
    """An HTTP connection of which `waited` is known, and `lost` is told the end.

    A request's scope has the certificate that its client has shown and TLS has verified, as ASGI's
    TLS extension has it: PEM, alone in `scope["extensions"]["tls"]["client_cert_chain"]`.

    It waits for its client where that owes it the rest of a request, or does not read an answer.
    The time in which the application computes one does not count.
    """

    def __init__(self, *arguments: Any, lost: Callable[[], None], origin: str | None) -> None:
        """`arguments`: as uvicorn's. It waits from here on, for the TLS handshake first.

        origin: the client's address, where it is not the other end's.
        """
        super().__init__(*arguments)
        self._lost = lost
        self._origin = origin
        self._request_began = time.monotonic()  # when the request began for which it waits
        self._came = 0  # bytes of a body since the request's time was last begun anew
        self._unread: float | None = None  # since when the client has read too little
        self._closing: float | None = None  # since when it is to be closed

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin, after the handshake."""
        super().connection_made(transport)
        if self._origin is not None and self.client is not None:
            self.client = (self._origin, self.client[1])
        tls = transport.get_extra_info("ssl_object")
        shown = None if tls is None else tls.getpeercert(binary_form=True)
        if shown is not None:
            self.app = _with_certificate(self.app, ssl.DER_cert_to_PEM_cert(shown))

    def waited(self, now: float) -> float:
        """Return seconds for which it has waited for its client by now; 0: it does not."""
        if self.transport is None:
            return now - self._request_began
        if self.transport.is_closing():  # an answer that nobody reads keeps it open for ever
            self._closing = self._closing or now
            return now - self._closing
        if self._unread is not None:
            return now - self._unread
        owed = self.conn.their_state in (h11.IDLE, h11.SEND_BODY)
        if owed:
            return now - self._request_began
        return 0.0

    def data_received(self, data: bytes) -> None:
        """Take what has come. The first byte behind an answer begins a request."""
        if self.conn.their_state is h11.IDLE and not self.conn.trailing_data[0]:
            self._request_began = time.monotonic()
            self._came = 0
        self._came += len(data)
        if self._came > PROGRESS:  # of a large upload each piece has the time of a request
            self._request_began = time.monotonic()
            self._came = 0
        super().data_received(data)

    def on_response_complete(self) -> None:
        """Start the timer: the rest of the request is late from now on."""
        self._request_began = time.monotonic()
        super().on_response_complete()

    def pause_writing(self) -> None:
        """Start the timer, as the client reads more slowly than the application writes."""
        self._unread = time.monotonic()
        super().pause_writing()

    def resume_writing(self) -> None:
        """Stop the timer, as the client has read."""
        self._unread = None
        super().resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        """Report the end of the connection."""
        super().connection_lost(exc)
        self._lost()

    def send_400_response(self, msg: str) -> None:
        """Answer what is no HTTP, as every error is answered."""
        answer = problem(400, f"not a request: {msg}")
        content = bytes(answer.body)
        fields = [
            (b"content-type", PROBLEM.encode()),
            (b"content-length", str(len(content)).encode()),
            (b"connection", b"close"),
        ]
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            head = h11.Response(status_code=400, headers=fields, reason=b"Bad Request")
            for event in (head, h11.Data(data=content), h11.EndOfMessage()):
                self.transport.write(self.conn.send(event) or b"")
        self.transport.close()


def _with_certificate(app: Any, pem: str) -> Any:
    """Return `app` for a connection whose client has shown this certificate."""
    extensions = {"tls": {"client_cert_chain": [pem], "client_cert_error": None}}

    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        await app(
            {**scope, "extensions": {**scope.get("extensions", {}), **extensions}}, receive, send
        )

    return answer
