"""How every service serves HTTP: a limited number of connections, none of which may stay silent.

uvicorn by itself waits for ever for a connection's first request. Each such connection holds a file
descriptor, and a process without any left could not even write its results.
"""

from __future__ import annotations

import asyncio
from typing import Any

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

# More are closed at once. It is half of the file descriptors that macOS, the least, allows (256).
CONNECTIONS = 128
SILENT_SECONDS = 10.0  # until a connection without a whole request head is closed


class BoundedConnection(H11Protocol):
    """An HTTP connection: closed at once if there are too many, and soon if it is silent."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Take the connection, or close it where there are more than CONNECTIONS already."""
        super().connection_made(transport)
        if len(self.connections) > CONNECTIONS:
            transport.abort()
        else:
            self.loop.call_later(SILENT_SECONDS, self._close_if_silent)

    def _close_if_silent(self) -> None:
        if self.cycle is None and not self.transport.is_closing():
            self.transport.abort()


def uvicorn_config(app: Any, **more: Any) -> uvicorn.Config:
    """uvicorn's configuration to serve `app`; `more` are further arguments of uvicorn.Config."""
    return uvicorn.Config(
        app, log_level="warning", access_log=False, http=BoundedConnection, **more
    )
