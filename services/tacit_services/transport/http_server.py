"""HTTP as every service serves it: so many connections at a time, and none that says nothing.

uvicorn waits for ever for a first request, and what such connections hold are the process's file descriptors: with none
left it could not write its results either.
"""

from __future__ import annotations

import asyncio
from typing import Any

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

CONNECTIONS = (
    128  # more are closed at once; half of what a process may open where that is least (macOS: 256)
)
SILENT_SECONDS = 10.0  # until one that has sent no whole request head is closed


class BoundedConnection(H11Protocol):
    """One connection."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as its base does
        """Take it, or close it where there are too many."""
        super().connection_made(transport)
        if len(self.connections) > CONNECTIONS:
            transport.abort()
        else:
            self.loop.call_later(SILENT_SECONDS, self._close_if_silent)

    def _close_if_silent(self) -> None:
        if self.cycle is None and not self.transport.is_closing():
            self.transport.abort()


def uvicorn_config(app: Any, **more: Any) -> uvicorn.Config:
    """What uvicorn is to serve `app` with; `more` as it takes them."""
    return uvicorn.Config(
        app, log_level="warning", access_log=False, http=BoundedConnection, **more
    )
