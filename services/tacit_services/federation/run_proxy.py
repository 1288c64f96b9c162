"""The way through the host to a run's own REST interface: `/v1/runs/{run}/…` is its `/v1/…`.

The aggregator answers; the host decides only who may ask.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from urllib.parse import quote

import httpx
from fastapi import Request, Response
from starlette.background import BackgroundTask
from starlette.responses import StreamingResponse

from tacit_services.federation.run_sockets import RunSockets
from tacit_services.transport.problems import problem

# Headers of one connection, which are not passed on (RFC 9110, section 7.6.1), and credentials.
_OF_A_HOP = frozenset(
    (
        "connection", "keep-alive", "proxy-authenticate", "proxy-authorization", "te", "trailer",
        "transfer-encoding", "upgrade", "host", "content-length", "authorization", "cookie",
    )
)  # fmt: skip
_TIMEOUT = httpx.Timeout(10.0, read=None)  # a stream of events is silent for as long as it likes


class RunProxy:
    """Passes requests on to the aggregators of runs, body and answer as streams."""

    def __init__(self, sockets: RunSockets) -> None:
        self._sockets = sockets

    async def passed_on(self, request: Request, run: str, path: str) -> Response:
        """Return the answer of a run's aggregator to this request for `/v1/PATH`.

        503 where the aggregator does not answer, 404 for a path that leads out of `/v1`.
        """
        if not set(path.split("/")).isdisjoint(("", ".", "..")):
            return problem(404, f"{path[:80]!r}: is no path of a run's interface")
        socket = self._sockets.path(run)
        if not socket.exists():
            return problem(503, f"run {run!r}: its aggregator starts", {"Retry-After": "1"})
        client = httpx.AsyncClient(
            transport=httpx.AsyncHTTPTransport(uds=str(socket)),
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
        if "content-length" in answer.headers:
            passed["content-length"] = answer.headers["content-length"]
        return StreamingResponse(
            _pieces(answer), answer.status_code, passed, background=BackgroundTask(client.aclose)
        )


async def _pieces(answer: httpx.Response) -> AsyncIterator[bytes]:
    try:
        async for piece in answer.aiter_raw():
            yield piece
    except httpx.TransportError:  # the aggregator has gone: the client sees a cut answer
        return
    finally:
        await answer.aclose()
