"""What the run's operator may do over REST, and how a token proves that it is the operator."""

from __future__ import annotations

import hmac
import threading

from fastapi import HTTPException
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer

BEARER = HTTPBearer(auto_error=False, description="the operator's token")


class Operator:
    """What the operator wants, handed from HTTP threads to the driver thread."""

    def __init__(self, token: str | None) -> None:
        """`token`: None refuses every write."""
        self._token = token
        self._wanted: str | None = None
        self._lock = threading.Lock()
        self.closed = threading.Event()

    def wanted(self) -> str | None:
        """The reason of a requested halt, or None. Read by the driver thread."""
        return self._wanted

    def request_halt(self, reason: str) -> str:
        """Ask for the run's end; the first reason stays, and is returned."""
        with self._lock:
            self._wanted = self._wanted or reason or "operator"
            return self._wanted

    def close(self) -> None:
        """The server is about to stop: end the event streams, which uvicorn would wait for."""
        self.closed.set()

    def check(self, given: HTTPAuthorizationCredentials | None) -> None:
        """Raises HTTPException unless `given` is the token."""
        if self._token is None:
            raise HTTPException(
                403, "this aggregator takes no writes: it was started without TACIT_TOKEN_FILE"
            )
        if given is None or not hmac.compare_digest(
            given.credentials.encode(), self._token.encode()
        ):
            raise HTTPException(
                401,
                "the operator's token is missing or wrong (tacit: --token-file)",
                {"WWW-Authenticate": "Bearer"},
            )
