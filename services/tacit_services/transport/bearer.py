"""Routes that ask for a token before anything else."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

from fastapi import Request, Response
from fastapi.routing import APIRoute
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer
from starlette.concurrency import run_in_threadpool


def guarded(
    bearer: HTTPBearer, check: Callable[[HTTPAuthorizationCredentials | None], None]
) -> type[APIRoute]:
    """Return a kind of route that checks the token before anything else.

    A client without a token learns nothing of what a good request looks like, and no byte of its
    body is waited for. check: raises HTTPException; it may read files.
    """

    class Guarded(APIRoute):
        def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
            """Return FastAPI's handler, behind the token."""
            handler = super().get_route_handler()

            async def answer(request: Request) -> Response:
                await run_in_threadpool(check, await bearer(request))
                return await handler(request)

            return answer

    return Guarded
