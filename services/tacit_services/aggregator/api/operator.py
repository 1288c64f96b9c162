"""Access to the REST interface: a token shows that a client is the operator, or may read."""

from __future__ import annotations

import hmac
import threading
from typing import Annotated

from fastapi import Depends, HTTPException
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer
from fastapi.security.utils import get_authorization_scheme_param
from starlette.datastructures import Headers
from starlette.types import Scope

BEARER = HTTPBearer(auto_error=False, description="the operator's token")
READ_BEARER = HTTPBearer(
    scheme_name="Read", auto_error=False, description="the token for reading, or the operator's"
)
HEALTH = ("/healthz", "/readyz")  # paths; whoever restarts processes asks there
_CHALLENGE = {"WWW-Authenticate": "Bearer"}


class Operator:
    """The operator's requests, handed from HTTP threads to the driver thread."""

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
        if not self.shown(given):
            raise HTTPException(
                401, "the operator's token is missing or wrong (tacit: --token-file)", _CHALLENGE
            )

    def never_waits(self, scope: Scope) -> bool:
        """Whether a request gets in however many came before it: the operator's, a health check."""
        if scope["path"] in HEALTH:
            return True
        scheme, credentials = get_authorization_scheme_param(
            Headers(scope=scope).get("authorization")
        )
        return self.shown(HTTPAuthorizationCredentials(scheme=scheme, credentials=credentials))

    def shown(self, given: HTTPAuthorizationCredentials | None) -> bool:
        """Whether `given` is the operator's token."""
        return _same(given, self._token)


class Readers:
    """The check of read access, which the token for reading gives, or the operator's.

    The token for reading opens nothing else.
    """

    def __init__(self, token: str, operator: Operator) -> None:
        self._token, self._operator = token, operator

    async def check(
        self, given: Annotated[HTTPAuthorizationCredentials | None, Depends(READ_BEARER)]
    ) -> None:
        """Raises HTTPException unless `given` is one of the two tokens."""
        if not _same(given, self._token) and not self._operator.shown(given):
            raise HTTPException(
                401, "a token for reading is missing or wrong (tacit: --token-file)", _CHALLENGE
            )


def _same(given: HTTPAuthorizationCredentials | None, token: str | None) -> bool:
    # In a time that does not depend on where they differ.
    return (
        given is not None
        and token is not None
        and hmac.compare_digest(given.credentials.encode(), token.encode())
    )
