"""The client of an aggregator's REST interface: one method for each endpoint.

Errors are `ApiError` (the aggregator answered no) and `Unreachable` (it did not answer).
"""

from __future__ import annotations

import hashlib
import json
import re
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any, Self, TypeVar
from urllib.parse import quote

import httpx
from pydantic import TypeAdapter, ValidationError

from tacit_client.bounded import ENDLESS, FILE, BoundedTransport, proxy_before
from tacit_client.models import (
    Begun,
    Edge,
    Halted,
    ModelInfo,
    Point,
    Predictions,
    Privacy,
    RunDefinition,
    RunEvent,
    Status,
)

T = TypeVar("T")
_LOOPBACK = ("127.0.0.1", "localhost", "::1")
_PAGE = 1000  # edges that an aggregator says at once, at most
_SECONDS = re.compile("[0-9]{1,9}")  # of Retry-After
_EVENT_TIMEOUT = 60.0  # seconds without even a keep-alive comment (the server sends one every 15)


class ApiError(Exception):
    """The server answered with an error (problem+json), or is no tacit aggregator."""

    def __init__(self, status: int, title: str, detail: str) -> None:
        super().__init__(f"{status} {title}: {detail}")
        self.status = status
        self.title = title
        self.detail = detail


class Unreachable(Exception):  # noqa: N818 (it reads as what it says)
    """There was no answer from `url`."""

    def __init__(self, url: str, reason: str = "no answer") -> None:
        super().__init__(f"{url}: {reason}")
        self.url = url
        self.reason = reason


class Client:
    """A connection to one aggregator. Use it as a context manager, from one thread.

    Example::

        from pathlib import Path
        from tacit_client import Client

        with Client("http://127.0.0.1:8000") as client:
            status = client.status()
            print(status.state, status.applied, status.test_accuracy, status.privacy.epsilon)
            weights = client.weights()  # checked against the announced SHA-256
            Path("model.safetensors").write_bytes(weights)
            for status in client.events():  # until the run is over
                print(status.applied)

    An address that cannot be one is refused before anything is sent:

    >>> Client("127.0.0.1:8000")
    Traceback (most recent call last):
    ValueError: url='127.0.0.1:8000': expected http://HOST:PORT
    """

    def __init__(self, url: str, token: str | None = None, timeout: float = 10.0) -> None:
        """Prepare a client for the aggregator at `url` (http://HOST:PORT) and make no request yet.

        `token` is the operator's, for `halt`, `predict` and `release`. It may be the token for
        reading, if the aggregator needs one (ApiError 401 without it). `timeout` is in seconds, in
        which bytes must come (a whole answer has 30 s more). The client waits as long if the
        aggregator reports that this address has asked too often (ApiError 429 then). Raises
        ValueError for a string that is no URL.
        """
        try:
            base = httpx.URL(url)
        except httpx.InvalidURL as error:
            raise ValueError(f"url={url!r}: {error}") from error
        if base.scheme not in ("http", "https") or not base.host:
            raise ValueError(f"url={url!r}: expected http://HOST:PORT")
        # The system's look-up would fail with this for a label of 64 letters or more.
        try:
            base.raw_host.decode("ascii").encode("idna")
        except UnicodeError as error:
            raise ValueError(f"url={url!r}: {error}") from error
        self._url = url
        self._root = "/v1"
        self._timeout = timeout
        if token:
            headers = {"Authorization": f"Bearer {token}"}
        else:
            headers = {}
        # A proxy from the environment cannot reach this machine's own loopback.
        direct = base.host in _LOOPBACK
        proxy = None if direct else proxy_before(base)
        trusted = httpx.create_ssl_context(trust_env=not direct)
        self._http: httpx.Client = _Paced(
            timeout,
            base_url=base,
            timeout=timeout,
            headers=headers,
            transport=BoundedTransport(trusted, proxy),
            trust_env=False,
        )

    @classmethod
    def over(cls, http: httpx.Client, url: str, root: str, timeout: float = 10.0) -> Self:
        """Return a client of the aggregator whose interface is at the path `root` of a server.

        http: connected to that server. It is closed with the client. url: as errors name it.
        """
        client = cls.__new__(cls)
        client._url = url
        client._root = root
        client._timeout = timeout
        client._http = http
        return client

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection. Idempotent."""
        self._http.close()

    def ready(self) -> bool:
        """Return whether the aggregator has its broker and store, and has recovered."""
        with self._reached():
            response = self._http.get("/readyz")
        if response.status_code == 503:
            return False
        self._checked(response)
        return True

    def status(self) -> Status:
        """Return the state of the run now."""
        return self._get(f"{self._root}/status", Status)

    def definition(self) -> RunDefinition:
        """Return what all who take part in the run must agree on."""
        return self._get(f"{self._root}/definition", RunDefinition)

    def edges(self) -> list[Edge]:
        """Return every edge that ever said Hello, by name; asked for a page at a time."""
        edges: list[Edge] = []
        while page := self._get(
            f"{self._root}/edges", list[Edge], after=edges[-1].id if edges else ""
        ):
            edges += page
            if len(page) < _PAGE:
                break
        return edges

    def edge(self, name: str) -> Edge:
        """Return one edge. Raises ApiError 404 if it never said Hello."""
        return self._get(f"{self._root}/edges/{_segment(name)}", Edge)

    def series(self, after: int | None = None) -> list[Point]:
        """Return the evaluations, oldest first: all, or those of versions later than `after`."""
        only = {} if after is None else {"after": after}
        return self._get(f"{self._root}/series", list[Point], **only)

    def log(self, after: int = 0) -> list[RunEvent]:
        """Return the run's events behind number `after`, oldest first; the newest 1,000."""
        return self._get(f"{self._root}/log", list[RunEvent], after=after)

    def privacy(self) -> Privacy:
        """Return the run's privacy guarantee."""
        return self._get(f"{self._root}/privacy", Privacy)

    def model(self) -> ModelInfo:
        """Return the description of the weights file as it is now."""
        return self._get(f"{self._root}/model", ModelInfo)

    def weights(self, etag: str | None = None) -> bytes | None:
        """Return the safetensors file, checked by its SHA-256; None while that is still `etag`."""
        if etag:
            headers = {"If-None-Match": f'"{etag.strip(chr(34))}"'}
        else:
            headers = {}
        with self._reached():
            response = self._http.get(
                f"{self._root}/model/weights", headers=headers, extensions=FILE
            )
        if response.status_code == 304:
            return None
        data = self._checked(response).content
        if response.headers.get("etag", "").strip('"') != hashlib.sha256(data).hexdigest():
            raise ApiError(
                response.status_code, "Damaged", "the weights do not have the announced SHA-256"
            )
        return data

    def halt(self, reason: str | None = None) -> Halted:
        """End the run; needs the token. It may be called again.

        The halt is in the run's journal when this returns, so no crash undoes it. Raises ApiError
        503 where the store does not answer: the halt is entered later, unless the aggregator ends
        before.
        """
        with self._reached():
            response = self._http.post(
                f"{self._root}/halt", json={} if reason is None else {"reason": reason}
            )
        return _parsed(self._checked(response), Halted)

    def begin(self) -> Begun:
        """Begin the run with the edges that are there. Needs the token. It may be called again.

        Raises ApiError 404 if the run is over, 409 if no edge is there, 503 as `halt` does.
        """
        with self._reached():
            response = self._http.post(f"{self._root}/begin")
        return _parsed(self._checked(response), Begun)

    def predict(self, ids: list[str], wait_s: float = 30.0) -> Predictions:
        """Return the classes of records. Needs the token, and may cost the parties' budgets.

        Raises ApiError 404 if an id is unknown, and 409 if the run is not over, or not vertical.
        Raises 410 if a party's budget is spent, and 503 if a party did not answer within `wait_s`
        seconds.
        """
        timeout = httpx.Timeout(self._timeout, read=wait_s + self._timeout)
        with self._reached():
            response = self._http.post(
                f"{self._root}/predict", json={"ids": ids, "wait_s": wait_s}, timeout=timeout
            )
        return _parsed(self._checked(response), Predictions)

    def release(self, edge: str) -> None:
        """End an edge's quarantine. Needs the token.

        Raises ApiError 404 if it is not in quarantine, or the run is over, and 503 as `halt` does.
        """
        with self._reached():
            self._checked(self._http.post(f"{self._root}/edges/{_segment(edge)}/release"))

    def events(self) -> Iterator[Status]:
        """Yield the status now and at every change, until the server ends.

        Raises Unreachable when the connection breaks.
        """
        timeout = httpx.Timeout(self._timeout, read=_EVENT_TIMEOUT)
        with (
            self._reached(),
            self._http.stream(
                "GET", f"{self._root}/events", timeout=timeout, extensions=ENDLESS
            ) as response,
        ):
            if not response.is_success:
                response.read()
            response.encoding = "utf-8"  # whatever it says: not each codec is one of text
            for event, data in _server_sent(self._checked(response).iter_lines()):
                if event == "status":
                    yield _model(Status, data, response.status_code)

    def _get(self, path: str | httpx.URL, kind: type[T], **query: Any) -> T:
        with self._reached():
            response = self._http.get(path, params=query or None)
        return _parsed(self._checked(response), kind)

    def _reached(self) -> AbstractContextManager[None]:
        return reached(self._url)

    def _checked(self, response: httpx.Response) -> httpx.Response:
        return checked(response, "a tacit aggregator")


@contextmanager
def reached(url: str) -> Iterator[None]:
    """Raise Unreachable where `url` does not answer in the block."""
    try:
        yield
    except httpx.RequestError as error:
        raise Unreachable(url, str(error) or type(error).__name__) from error


def checked(response: httpx.Response, server: str) -> httpx.Response:
    """Return a response that is well.

    Raises ApiError with its problem document, or that it is not an answer of `server`.
    """
    if response.is_success:
        return response
    try:
        problem = response.json()
        raise ApiError(response.status_code, str(problem["title"]), str(problem["detail"]))
    except (ValueError, KeyError, TypeError, RecursionError):
        raise ApiError(
            response.status_code, response.reason_phrase, f"not {server}'s answer"
        ) from None


class _Paced(httpx.Client):
    """An HTTP client that asks again after 429, when it is told to, for `patience` seconds."""

    def __init__(self, patience: float, **more: Any) -> None:
        """more: httpx.Client's."""
        super().__init__(**more)
        self._patience = patience

    def send(self, request: httpx.Request, **more: Any) -> httpx.Response:
        """Send as httpx.Client does."""
        deadline = time.monotonic() + self._patience
        while True:
            response = super().send(request, **more)
            wait = response.headers.get("Retry-After", "")
            if response.status_code != 429 or not _SECONDS.fullmatch(wait):
                return response
            if time.monotonic() + int(wait) > deadline:
                return response
            response.close()
            time.sleep(int(wait))


def _parsed(response: httpx.Response, kind: type[T]) -> T:
    return _model(kind, response.content, response.status_code)


def _model(kind: type[T], text: str | bytes, status: int) -> T:
    try:
        return TypeAdapter(kind).validate_python(json.loads(text))
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        field = ".".join(str(part) for part in first["loc"])
        raise ApiError(status, "Unexpected answer", f"{field}: {first['msg']}") from error
    except (ValueError, RecursionError) as error:  # the second: of 200,000 brackets
        raise ApiError(status, "Unexpected answer", "not JSON") from error


def _server_sent(lines: Iterator[str]) -> Iterator[tuple[str, str]]:
    """Yield (event, data) of a text/event-stream; comments, ids and retry times are skipped."""
    event = "message"
    data = list[str]()
    for line in lines:
        name, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if line == "":
            if data:
                yield event, "\n".join(data)
            event = "message"
            data = []
        elif name == "event":
            event = value
        elif name == "data":
            data.append(value)


def _segment(name: str) -> str:
    """Return a name as one part of a path, dots as well: ".." would lead to another one."""
    return quote(name, safe="").replace(".", "%2E")
