"""A member's client of its federation's host: what is offered, and what its owner answers."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import httpx

from tacit.errors import ConfigError, ServiceError
from tacit_services.disk import files
from tacit_services.transport.pinned_authority import unreachable
from tacit_services.transport.proxy import DIRECT, Proxies
from tacit_services.transport.tls import Tls

_SECONDS = 20.0
MOST_OFFER = 1 << 22  # bytes


@dataclass(frozen=True, slots=True)
class Offered:
    """One line of the host's list: a run, its offer's fingerprint, how it stands."""

    run: str
    fingerprint: str
    state: str


class HostClient:
    """A connection to the host, as this member. Use it from one thread."""

    def __init__(self, url: str, tls: Tls, proxies: Proxies = DIRECT) -> None:
        """proxies: which the host may be behind.

        Raises ConfigError for files of `tls` that cannot be used.
        """
        self._url = url
        self._proxies = proxies
        self._http = httpx.Client(
            base_url=url,
            verify=tls.context(),
            timeout=_SECONDS,
            trust_env=False,
            proxy=proxies.url_before(url),
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection. Idempotent."""
        self._http.close()

    def offers(self) -> list[Offered]:
        """Return the runs that are offered to this member. Raises ServiceError, ConfigError."""
        content = self._json("GET", "/v1/offers")
        try:
            return [
                Offered(str(item["run"]), str(item["fingerprint"]), str(item["state"]))
                for item in content
            ]
        except (TypeError, KeyError) as error:
            raise ServiceError(f"{self._url}: not a federation's answer") from error

    def offer(self, run: str) -> bytes:
        """Return the offer of a run, as the host keeps it: not checked. Raises as `offers`."""
        answer = self._asked("GET", f"/v1/offers/{run}")
        if len(answer.content) > MOST_OFFER:
            raise ServiceError(f"{self._url}: the offer of {run} has more than {MOST_OFFER} bytes")
        return answer.content

    def fetch(self, run: str, digest: str, path: Path, most: int) -> None:
        """Fetch a file of an offer to `path`, whole and with this SHA-256. Raises as `offers`.

        Raises ConfigError for other content: to ask again would not help.
        """
        if path.is_file() and hashlib.sha256(path.read_bytes()).hexdigest() == digest:
            return
        with (
            self._reached(),
            self._http.stream("GET", f"/v1/offers/{run}/files/{digest}") as answer,
        ):
            if not answer.is_success:
                answer.read()
                self._refused(answer)
            content = bytearray()
            for piece in answer.iter_bytes():
                content += piece
                if len(content) > most:
                    raise ServiceError(f"{self._url}: {path.name} has more than {most} bytes")
        if hashlib.sha256(content).hexdigest() != digest:
            raise ConfigError(f"{path.name}: is not the file of the offer")
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        files.write(path, bytes(content), files.SECRET)

    def answer(self, run: str, fingerprint: str, answer: str, reason: str = "") -> None:
        """Tell the host what the owner answers. Raises as `offers`."""
        body = {"fingerprint": fingerprint, "answer": answer, "reason": reason}
        self._asked("PUT", f"/v1/offers/{run}/answer", body)

    def _json(self, method: str, path: str) -> Any:
        try:
            return json.loads(self._asked(method, path).content)
        except (ValueError, RecursionError) as error:
            raise ServiceError(f"{self._url}: not a federation's answer") from error

    def _asked(self, method: str, path: str, body: dict[str, str] | None = None) -> httpx.Response:
        with self._reached():
            answer = self._http.request(method, path, json=body)
        if not answer.is_success:
            self._refused(answer)
        return answer

    def _refused(self, answer: httpx.Response) -> None:
        """Raise what an error answer means: ServiceError where asking again may help."""
        try:
            why = str(answer.json()["detail"])[:300]
        except (ValueError, KeyError, TypeError, RecursionError):
            why = f"{answer.status_code}, not a federation's answer"
        if answer.status_code >= 500 or answer.status_code == 429:
            raise ServiceError(f"{self._url}: {why}")
        raise ConfigError(f"{self._url}: {why}")

    @contextmanager
    def _reached(self) -> Iterator[None]:
        try:
            yield
        except httpx.TransportError as error:
            raise unreachable(self._url, error, self._proxies) from error
