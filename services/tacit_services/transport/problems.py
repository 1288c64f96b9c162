"""HTTP answers of the REST interfaces: errors as problem+json, and bytes with ETag and ranges.

Errors follow RFC 9457. Conditional and partial answers follow RFC 9110.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable
from http import HTTPStatus
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from pydantic import BaseModel, ConfigDict
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Receive, Scope, Send

from tacit.shown import printable
from tacit_services.transport.connection_slots import ConnectionSlots
from tacit_services.transport.json_numbers import finite


class Problem(BaseModel):
    """An error as RFC 9457 has it."""

    model_config = ConfigDict(extra="allow")

    type: str = "about:blank"
    title: str
    status: int
    detail: str


PROBLEM = "application/problem+json"
SAFETENSORS = "application/vnd.safetensors"
MAX_BODY = 1 << 16  # bytes; the largest request is a prediction with its ids
_NAME = 200  # characters of the name of a field, which a client may choose
BLOCK = 1 << 16  # bytes of a download that are handed to the connection at once
_SINGLE_RANGE = re.compile(r"bytes=([0-9]{0,18})-([0-9]{0,18})")


def document(content: Any, status: int = 200) -> JSONResponse:
    """Return a JSON answer that caches must ask for again. Infinities and NaN become null."""
    return JSONResponse(finite(content), status, {"Cache-Control": "no-cache"})


def problem(
    status: int, detail: str, headers: dict[str, str] | None = None, **more: Any
) -> JSONResponse:
    """Return an error answer; `more` are further keys of its document."""
    content = (
        Problem(title=HTTPStatus(status).phrase, status=status, detail=detail).model_dump() | more
    )
    return JSONResponse(content, status, headers, media_type=PROBLEM)


def documented(*statuses: int, kind: type[Problem] = Problem) -> dict[int | str, dict[str, Any]]:
    """Return the OpenAPI description of the errors with these status codes."""
    content = {PROBLEM: {"schema": kind.model_json_schema()}}
    return {
        status: {"description": HTTPStatus(status).phrase, "content": content}
        for status in statuses
    }


def _none_is_large(method: str, path: str) -> None:
    """Say of every request that its body is small."""


def install(app: FastAPI, large: Callable[[str, str], int | None] = _none_is_large) -> None:
    """Make every error that `app` answers a problem document, and refuse large request bodies.

    large: returns the most bytes of a body, by method and path, where it may exceed MAX_BODY.
    """
    app.add_middleware(_SmallBodies, large=large)

    @app.exception_handler(HTTPException)
    def refused(_: Request, error: HTTPException) -> Response:
        return _refused(error)

    @app.exception_handler(RequestValidationError)
    def invalid(_: Request, error: RequestValidationError) -> Response:
        items = (
            f"{printable('.'.join(map(str, item['loc'])), _NAME)}: {item['msg']}"
            for item in error.errors()
        )
        return problem(422, "; ".join(items))

    @app.exception_handler(Exception)
    def broken(_: Request, error: Exception) -> Response:
        # Starlette raises it again after answering: the traceback is in the log, not in the answer.
        return problem(500, f"a bug in tacit: {type(error).__name__}")


def _refused(error: HTTPException) -> Response:
    return problem(error.status_code, str(error.detail), dict(error.headers or {}))


def address_of(scope: Scope) -> str:
    """Return the address that a request comes from, as the server sees it."""
    client = scope.get("client")
    if client:
        return str(client[0])
    return ""


class _SmallBodies:
    """Middleware that refuses a request by its headers alone, before any of its body is read.

    A body must announce its length, at most MAX_BODY; the HTTP server then holds the client to it.
    """

    def __init__(self, app: ASGIApp, large: Callable[[str, str], int | None]) -> None:
        """large: as of `install`."""
        self._app = app
        self._large = large

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            headers = Headers(scope=scope)
            length = headers.get("content-length", "0")
            refusal = None
            if "transfer-encoding" in headers:
                refusal = problem(411, "send a Content-Length")
            elif not length.isdigit() or int(length) > (most := self._most(scope)):
                refusal = problem(413, f"a body of {length[:40]} bytes: {most} allowed")
            if refusal is not None:
                return await refusal(scope, receive, send)
        return await self._app(scope, receive, send)

    def _most(self, scope: Scope) -> int:
        return self._large(scope["method"], scope["path"]) or MAX_BODY


def unless_known(request: Request, answer: Response) -> Response:
    """Return `answer` with an ETag of its bytes; 304 without them to a client that has them."""
    etag = f'"{hashlib.sha256(bytes(answer.body)).hexdigest()[:32]}"'
    if _matches(request.headers.get("if-none-match", ""), etag):
        return Response(status_code=304, headers={"ETag": etag, "Cache-Control": "no-cache"})
    answer.headers["ETag"] = etag
    return answer


class Blocks(Response):
    """An answer in blocks: each is sent when the client has read most of those before.

    One that takes none of `places` is 503.
    """

    def __init__(
        self, data: memoryview, status: int, headers: dict[str, str], places: ConnectionSlots
    ) -> None:
        super().__init__(None, status, headers | {"Content-Length": str(len(data))}, SAFETENSORS)
        self._data = data
        self._places = places

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send it."""
        try:
            with self._places.taken(address_of(scope)):
                await send(self._start())
                for first in range(0, len(self._data), BLOCK):
                    block = self._data[first : first + BLOCK]
                    await send({"type": "http.response.body", "body": block, "more_body": True})
                await send({"type": "http.response.body", "body": b"", "more_body": False})
        except HTTPException as error:
            await _refused(error)(scope, receive, send)

    def _start(self) -> dict[str, Any]:
        return {
            "type": "http.response.start",
            "status": self.status_code,
            "headers": self.raw_headers,
        }


def partial(request: Request, data: bytes, sha256: str, places: ConnectionSlots) -> Response:
    """Answer with `data` under its strong ETag, or with what of it the client asked for.

    The status is 304 if the client has these bytes already, 206 for one range of bytes, and 416 for
    a range outside of them. It is 503 if all `places` of downloads are taken, and 200 with all of
    them in every other case.
    """
    etag = f'"{sha256}"'
    headers = {"ETag": etag, "Cache-Control": "no-cache", "Accept-Ranges": "bytes"}
    if _matches(request.headers.get("if-none-match", ""), etag):
        return Response(status_code=304, headers=headers)
    requested = request.headers.get("range")
    if requested is None or request.headers.get("if-range", etag) != etag:
        return Blocks(memoryview(data), 200, headers, places)
    span = _span(requested, len(data))
    if span is None:  # several ranges, or another unit: a server may ignore the header
        return Blocks(memoryview(data), 200, headers, places)
    if not span:
        return problem(
            416,
            f"{requested[:100]} of {len(data)} bytes",
            {"Content-Range": f"bytes */{len(data)}"},
        )
    headers["Content-Range"] = f"bytes {span.start}-{span.stop - 1}/{len(data)}"
    return Blocks(memoryview(data)[span.start : span.stop], 206, headers, places)


def _matches(header: str, etag: str) -> bool:
    # Weak comparison, as RFC 9110 asks of If-None-Match.
    tags = [tag.strip().removeprefix("W/") for tag in header.split(",")]
    return etag in tags or tags == ["*"]


def _span(header: str, size: int) -> range | None:
    """Return the one byte range that `header` asks for, of `size` bytes.

    An empty range cannot be satisfied. None: the header is to be ignored.
    """
    match = _SINGLE_RANGE.fullmatch(header.strip())
    if match is None or match.groups() == ("", ""):
        return None
    first, last = match.groups()
    if not first:  # the last `last` bytes
        return range(max(0, size - int(last)), size)
    if last and int(last) < int(first):
        return None
    return range(int(first), min(size, int(last) + 1 if last else size))
