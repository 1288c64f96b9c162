"""The way through the host to a run's own REST interface: `/v1/runs/{run}/…` is its `/v1/…`.

The aggregator answers; the host decides only who may ask. An answer without an end, as a stream of
events, ends soon after its reader may ask no more.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from urllib.parse import quote

import httpx
from fastapi import Request, Response
from starlette.background import BackgroundTask
from starlette.concurrency import run_in_threadpool
from starlette.responses import StreamingResponse

from tacit_services.federation.run_sockets import RunSockets
from tacit_services.transport.patient_http import UnsteeredAsyncTransport
from tacit_services.transport.problems import problem

# Headers of one connection, which are not passed on (RFC 9110, section 7.6.1), and credentials.
_OF_A_HOP = frozenset(
    (
        "connection", "keep-alive", "proxy-authenticate", "proxy-authorization", "te", "trailer",
        "transfer-encoding", "upgrade", "host", "content-length", "authorization", "cookie",
    )
)  # fmt: skip
ASKED_EVERY = 3.0  # seconds, of whoever reads an answer without an end
_TIMEOUT = httpx.Timeout(10.0, read=None)  # a stream of events is silent for as long as it likes


class RunProxy:
    """Passes requests on to the aggregators of runs, body and answer as streams."""

    def __init__(self, sockets: RunSockets, every: float = ASKED_EVERY) -> None:
        """every: seconds between two questions whether a reader still may ask."""
        self._sockets = sockets
        self._every = every

    async def passed_on(
        self, request: Request, run: str, path: str, may: Callable[[], bool]
    ) -> Response:
        """Return the answer of a run's aggregator to this request for `/v1/PATH`.

        may: whether who asks still may; it reads files. It is asked again and again while an answer
        goes on whose length nobody knows. 503 where the aggregator does not answer, 404 for a path
        that leads out of `/v1`.
        """
        if not set(path.split("/")).isdisjoint(("", ".", "..")):
            return problem(404, f"{path[:80]!r}: is no path of a run's interface")
        socket = self._sockets.path(run)
        if not socket.exists():
            return problem(503, f"run {run!r}: its aggregator starts", {"Retry-After": "1"})
        client = httpx.AsyncClient(
            transport=UnsteeredAsyncTransport(uds=str(socket)),
            base_url="http://localhost",
            timeout=_TIMEOUT,
            trust_env=False,
        )
        headers = {name: value for name, value in request.headers.items() if name not in _OF_A_HOP}
        asked = client.build_request(
            request.method,
            f"/v1/{quote(path)}",
            params=request.query_params,
            headers=headers | self._sockets.headers(run),
            content=await request.body(),
        )
        try:
            answer = await client.send(asked, stream=True)
        except httpx.TransportError as error:
            await client.aclose()
            return problem(
                503, f"run {run!r}: {error or type(error).__name__}", {"Retry-After": "1"}
            )
        passed = {name: value for name, value in answer.headers.items() if name not in _OF_A_HOP}
        pieces = _pieces(answer)
        if "content-length" in answer.headers:
            passed["content-length"] = answer.headers["content-length"]
        else:
            pieces = _while_allowed(pieces, may, self._every)
        return StreamingResponse(
            pieces, answer.status_code, passed, background=BackgroundTask(client.aclose)
        )


async def _while_allowed(
    pieces: AsyncGenerator[bytes], may: Callable[[], bool], every: float
) -> AsyncGenerator[bytes]:
    """Yield pieces until their reader may not have them; it is asked every so many seconds."""
    clock = asyncio.get_running_loop().time
    due = clock() + every
    coming = asyncio.ensure_future(anext(pieces, None))
    try:
        while True:
            # A piece that is late is waited for on: to give it up would end the answer.
            await asyncio.wait([coming], timeout=max(0.0, due - clock()))
            if clock() >= due:
                if not await run_in_threadpool(may):
                    return
                due = clock() + every
            if coming.done():
                if (piece := coming.result()) is None:
                    return
                yield piece
                coming = asyncio.ensure_future(anext(pieces, None))
    finally:
        if not coming.cancel():  # else it closes the answer itself
            await pieces.aclose()


async def _pieces(answer: httpx.Response) -> AsyncGenerator[bytes]:
    try:
        async for piece in answer.aiter_raw():
            yield piece
    except httpx.TransportError:  # the aggregator has gone: the client sees a cut answer
        return
    finally:
        await answer.aclose()
