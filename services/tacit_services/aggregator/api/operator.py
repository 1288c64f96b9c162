"""Access to the REST interface: a token shows that a client is the operator, or may read."""

from __future__ import annotations

import hmac
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated

from fastapi import Depends, HTTPException
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer
from fastapi.security.utils import get_authorization_scheme_param
from starlette.datastructures import Headers
from starlette.types import Scope

from tacit.errors import ServiceError
from tacit_services.aggregator.driver import ServerDriver

BEARER = HTTPBearer(auto_error=False, description="the operator's token")
READ_BEARER = HTTPBearer(
    scheme_name="Read", auto_error=False, description="the token for reading, or the operator's"
)
HEALTH = ("/healthz", "/readyz")  # paths; whoever restarts processes asks there
_CHALLENGE = {"WWW-Authenticate": "Bearer"}
STORE_SECONDS = 5.0  # that a write waits for the store; a client waits twice as long
WAITING = 8  # writes that wait at a time: of 40 threads reads have the rest
# The requests to end the run and to begin it; any other is named after the edge that it releases.
_HALT = ""
_BEGIN = " "  # no name of an edge


class Operator:
    """The operator's requests, handed from HTTP threads to the driver thread.

    A request is open until the journal has what it changes, and only then answered: what was
    answered survives a crash.
    """

    def __init__(self, token: str | None, seconds: float = STORE_SECONDS) -> None:
        """`token`: None refuses every write. `seconds`: that a request waits for the journal."""
        self._token = token
        self._seconds = seconds
        self._open: dict[str, str] = {}  # what is to be entered, and a halt's reason
        self._changed = threading.Condition()
        self._places = threading.BoundedSemaphore(WAITING)
        self.closed = threading.Event()

    def halt(self, reason: str) -> None:
        """End the run. Of several reasons that wait the first counts.

        Raises ServiceError where the journal does not have it in time: it is entered later, unless
        the aggregator ends before. So it does, at once, where too many wait already.
        """
        self._entered(_HALT, reason)

    def release(self, edge: str) -> None:
        """End the quarantine of `edge`. Raises ServiceError as `halt` does."""
        self._entered(edge, "")

    def begin(self) -> None:
        """Begin the run with the edges that are there. Raises ServiceError as `halt` does."""
        self._entered(_BEGIN, "")

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """Hold a place among the requests that wait. Raises ServiceError, at once: none is free."""
        if not self._places.acquire(blocking=False):
            raise ServiceError(
                f"{WAITING} requests wait already, so this one was not taken; ask again"
            )
        try:
            yield
        finally:
            self._places.release()

    def _entered(self, name: str, reason: str) -> None:
        with self.waiting(), self._changed:
            self._open.setdefault(name, reason)
            self._changed.wait_for(
                lambda: name not in self._open or self.closed.is_set(), self._seconds
            )
            if name in self._open:
                raise ServiceError(
                    "not stored yet, as the store does not answer: it is entered when the store is "
                    "back, unless the aggregator ends before; ask again"
                )

    def enter(self, driver: ServerDriver) -> None:
        """Enter in the journal what was asked for. Driver thread; raises what the driver does."""
        with self._changed:
            requests = dict(self._open)
        for name, reason in requests.items():
            if _done(driver, name, reason):
                with self._changed:
                    del self._open[name]
                    self._changed.notify_all()

    def close(self) -> None:
        """End what uvicorn would wait for, as event streams, before the server stops."""
        with self._changed:
            self.closed.set()
            self._changed.notify_all()

    def check(self, credentials: HTTPAuthorizationCredentials | None) -> None:
        """Raise HTTPException unless `credentials` is the token."""
        if self._token is None:
            raise HTTPException(
                403, "this aggregator takes no writes: it was started without TACIT_TOKEN_FILE"
            )
        if not self.shown(credentials):
            raise HTTPException(
                401, "the operator's token is missing or wrong (tacit: --token-file)", _CHALLENGE
            )

    def never_waits(self, scope: Scope) -> bool:
        """Return whether a request is never delayed: the operator's, or a health check."""
        if scope["path"] in HEALTH:
            return True
        scheme, credentials = get_authorization_scheme_param(
            Headers(scope=scope).get("authorization")
        )
        return self.shown(HTTPAuthorizationCredentials(scheme=scheme, credentials=credentials))

    def shown(self, credentials: HTTPAuthorizationCredentials | None) -> bool:
        """Return whether `credentials` is the operator's token."""
        return _same(credentials, self._token)


def _done(driver: ServerDriver, name: str, reason: str) -> bool:
    """Do what is asked for by `name`; False: the journal is full for now."""
    if name == _HALT:
        return driver.halt(reason)
    if name == _BEGIN:
        return driver.begin()
    return driver.release(name)


class Readers:
    """The check of read access, which the token for reading gives, or the operator's.

    The token for reading opens nothing else.
    """

    def __init__(self, token: str, operator: Operator) -> None:
        self._token = token
        self._operator = operator

    async def check(
        self, credentials: Annotated[HTTPAuthorizationCredentials | None, Depends(READ_BEARER)]
    ) -> None:
        """Raise HTTPException unless `credentials` is one of the two tokens."""
        if not _same(credentials, self._token) and not self._operator.shown(credentials):
            raise HTTPException(
                401, "a token for reading is missing or wrong (tacit: --token-file)", _CHALLENGE
            )


def _same(credentials: HTTPAuthorizationCredentials | None, token: str | None) -> bool:
    # In a time that does not depend on where they differ.
    return (
        credentials is not None
        and token is not None
        and hmac.compare_digest(credentials.credentials.encode(), token.encode())
    )
