"""The client of a federation's host: submit runs, look at them, stop them, fetch their results.

One run's own interface, while it trains, is `of_run(name)`: the `Client` of its aggregator.
"""

from __future__ import annotations

import hashlib
import re
import ssl
from collections.abc import Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Self
from urllib.parse import quote, urlsplit

import httpx
from pydantic import BaseModel, ConfigDict

from tacit_client.bounded import FILE, BoundedTransport
from tacit_client.client import ApiError, Client, checked, reached

_BLOCK = 1 << 20
# A host checks a run before it answers, in at most 600 seconds: it reads the run's public files.
_CHECK_SECONDS = 660.0
_PART = r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,99}"
_NAME = re.compile(rf"({_PART}/){{0,4}}{_PART}")  # of a file that a host may have written here


class RefusedMember(BaseModel):
    """A member that takes no part in a run, and what the host was told of why."""

    model_config = ConfigDict(extra="allow", frozen=True)

    member: str
    reason: str


class FederationRun(BaseModel):
    """How a run of a federation stands. why: of its state, in words."""

    model_config = ConfigDict(extra="allow", frozen=True)

    name: str
    state: str
    applied: int
    updates: int
    members: list[str]
    refused: list[RefusedMember]
    why: str = ""
    researcher: str = ""

    @property
    def over(self) -> bool:
        """Whether nothing more will happen to it."""
        return self.state in ("ended", "stopped", "failed")

    def to_json(self) -> dict[str, Any]:
        """Return the document as it came, unknown fields included."""
        return self.model_dump(mode="json", exclude_unset=True)


class FederationClient:
    """A connection to a federation's host, with a person's token. Use it from one thread.

    Example::

        trusted = ssl.create_default_context(cafile="ca.crt")
        with FederationClient("https://host:8443", token, trusted) as federation:
            for run in federation.runs():
                print(run.name, run.state, run.applied)
    """

    def __init__(
        self,
        url: str,
        token: str,
        trusted: ssl.SSLContext,
        proxy: str | None = None,
        timeout: float = 30.0,
    ) -> None:
        """Prepare a client for the host at `url`; no request is made yet.

        trusted: whom to believe. proxy: the address of a proxy, with user and password where it
        wants them. timeout: seconds in which something must come (a whole answer has 30 s more, and
        each piece of a file). Raises ValueError for what is no https URL.
        """
        parts = urlsplit(url)
        if not url.startswith("https://") or not parts.hostname or parts.port == 0:
            # httpx would take port 0 for 443
            raise ValueError(f"url={url!r}: expected https://HOST:PORT")
        self._url = url
        self._timeout = timeout
        self._headers = {"Authorization": f"Bearer {token}"}
        self._trusted = trusted
        self._proxy = proxy
        self._http = self._connect()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection. Idempotent."""
        self._http.close()

    def _connect(self) -> httpx.Client:
        return httpx.Client(
            base_url=self._url,
            timeout=self._timeout,
            headers=self._headers,
            transport=BoundedTransport(self._trusted, self._proxy),
            trust_env=False,
        )

    def runs(self) -> list[FederationRun]:
        """Return the runs that the token may see, the oldest first."""
        return [
            FederationRun.model_validate(item) for item in self._asked("GET", "/v1/runs").json()
        ]

    def run(self, name: str) -> FederationRun | None:
        """Return the run of this name; None: the token sees none."""
        return next((run for run in self.runs() if run.name == name), None)

    def of_run(self, run: str) -> Client:
        """Return a client of a run's aggregator, through the host; use it as a context manager.

        Its methods raise ApiError 404 while the run does not train.
        """
        return Client.over(self._connect(), self._url, _path(run))

    def upload(self, path: Path) -> str:
        """Upload a file that an offer refers to, unless it is there; returns its SHA-256."""
        with path.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
            if not self._has(digest):
                file.seek(0)
                headers = {"Content-Length": str(path.stat().st_size)}
                pieces = iter(lambda: file.read(_BLOCK), b"")
                self._asked(
                    "PUT", f"/v1/files/{digest}", content=pieces, headers=headers, extensions=FILE
                )
        return digest

    def submit(self, content: Mapping[str, Any]) -> FederationRun:
        """Submit an offer whose files have been uploaded; returns how the run stands.

        It waits for the host's check of the run, which may take minutes.
        """
        patient = httpx.Timeout(self._timeout, read=max(self._timeout, _CHECK_SECONDS))
        return _run(self._asked("POST", "/v1/runs", json=dict(content), timeout=patient).json())

    def stop(self, run: str, reason: str | None = None) -> FederationRun:
        """End a run; with its results where it trains already."""
        body = {} if reason is None else {"reason": reason}
        return FederationRun.model_validate(
            self._asked("POST", f"{_path(run)}/stop", json=body).json()
        )

    def begin(self, run: str) -> FederationRun:
        """Let a run begin with the members that have consented."""
        return _run(self._asked("POST", f"{_path(run)}/begin").json())

    def results(self, run: str, folder: Path) -> list[Path]:
        """Fetch a run's results into `folder`, which is made; returns the files.

        Files of its offer, as a frozen network, come with them, in the folder `offer` of it: who
        uses the model needs them.
        """
        listed = self._asked("GET", f"{_path(run)}/results").json()
        folder.mkdir(parents=True, exist_ok=True)
        files = [
            self._fetched(f"{_path(run)}/results/{item['file']}", str(item["file"]), folder)
            for item in listed
        ]
        return files + self.offered_files(run, folder / "offer") if files else []

    def offer(self, run: str) -> dict[str, Any]:
        """Return a run's offer, as its researcher signed it and its members see it."""
        content: dict[str, Any] = self.get(f"{_path(run)}/offer")
        return content

    def offered_files(self, run: str, folder: Path) -> list[Path]:
        """Fetch the files that members fetch with a run's offer into `folder`, by their names."""
        files = self.offer(run)["files"]
        return [
            self._fetched(f"{_path(run)}/files/{digest}", str(name), folder)
            for name, digest in files.items()
        ]

    def get(self, path: str) -> Any:
        """Return the JSON document at `path`."""
        return self._asked("GET", path).json()

    def post(self, path: str, body: Mapping[str, Any]) -> Any:
        """Post `body` to `path`; returns the JSON document of the answer, None without one."""
        answer = self._asked("POST", path, json=dict(body))
        return answer.json() if answer.content else None

    def delete(self, path: str) -> None:
        """Delete what is at `path`."""
        self._asked("DELETE", path)

    def _fetched(self, url: str, name: str, folder: Path) -> Path:
        if not _NAME.fullmatch(name):
            raise ApiError(200, "Unexpected answer", f"file {name!r}: no plain name")
        place = folder / name
        place.parent.mkdir(parents=True, exist_ok=True)
        part = place.with_name(f".{place.name}.part")
        with self._reached(), self._http.stream("GET", url, extensions=FILE) as answer:
            if not answer.is_success:
                answer.read()
            self._checked(answer)
            with part.open("wb") as kept:
                for piece in answer.iter_bytes():
                    kept.write(piece)
        return part.replace(place)

    def _has(self, digest: str) -> bool:
        with self._reached():
            answer = self._http.head(f"/v1/files/{digest}")
        if answer.status_code == 404:
            return False
        self._checked(answer)
        return True

    def _asked(self, method: str, path: str, **more: Any) -> httpx.Response:
        with self._reached():
            answer = self._http.request(method, path, **more)
        return self._checked(answer)

    def _reached(self) -> AbstractContextManager[None]:
        return reached(self._url)

    def _checked(self, answer: httpx.Response) -> httpx.Response:
        return checked(answer, "a federation")


def _path(run: str) -> str:
    return f"/v1/runs/{quote(run, safe='')}"


def _run(content: Any) -> FederationRun:
    return FederationRun.model_validate(content)
