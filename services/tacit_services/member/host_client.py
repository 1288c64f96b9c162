"""A member's client of its federation's host: what is offered, and what its owner answers."""

from __future__ import annotations

import hashlib
import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import httpx

from tacit.errors import ConfigError, ServiceError
from tacit.shown import printable
from tacit_services.disk import files
from tacit_services.offers.offer import RUN
from tacit_services.transport.patient_http import PIECE, content, patient_client
from tacit_services.transport.pinned_authority import unreachable
from tacit_services.transport.proxy import DIRECT, Proxies
from tacit_services.transport.tls import Tls
from tacit_services.versions import VERSION_HEADER, own_version

_SECONDS = 20.0  # for a whole answer; for each 128 KiB of a file
MOST_OFFER = 1 << 22  # bytes, of any answer but a file
_NAME = re.compile(RUN.removeprefix("^").removesuffix("$"))
_FINGERPRINT = re.compile(r"[0-9a-f]{64}")


class HostRefusesError(ConfigError):
    """The host's answer, in its words, that it refuses what was asked."""

    def __init__(self, message: str, status: int) -> None:
        super().__init__(message)
        self.outcast = status in (401, 403)  # it does not take us for a member


class LongAnswerError(ConfigError):
    """An answer of the host that has more bytes than are taken."""


class VersionsApartError(ServiceError):
    """The host's answer, in its words, that one of us must be updated before runs go on."""


@dataclass(frozen=True, slots=True)
class Offered:
    """One line of the host's list: a run, its offer's fingerprint, how it stands."""

    run: str
    fingerprint: str
    state: str


class HostClient:
    """A connection to the host, as this member. Use it from one thread."""

    def __init__(
        self,
        url: str,
        tls: Tls,
        proxies: Proxies = DIRECT,
        *,
        public_web: bool = False,
        stop: threading.Event | None = None,
    ) -> None:
        """proxies: which the host may be behind.

        public_web: whether the host's HTTPS certificate is of an authority that the system trusts.
        stop: once it is set nothing is waited for, as if the host did not answer. Raises
        ConfigError for files of `tls` that cannot be used.
        """
        self._url = url
        self._proxies = proxies
        self._tls = tls
        self._trusted = tls.context()
        if public_web:
            self._trusted.load_default_certs()
        self._stop = stop
        self._http = self._client()

    def _client(self) -> httpx.Client:
        return patient_client(
            self._url,
            self._trusted,
            _SECONDS,
            proxy=self._proxies.before(self._url),
            headers={VERSION_HEADER: own_version()},
            stop=self._stop,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection. Idempotent."""
        self._http.close()

    def show_newest(self) -> None:
        """Show the certificate that lies in its file now, by a new connection.

        The host would refuse the old one on the old connection, once it has ended. Raises
        ConfigError.
        """
        self._tls.show_newest(self._trusted)
        self._http.close()
        self._http = self._client()

    def offers(self) -> list[Offered]:
        """Return the runs that are offered to this member.

        Each has a run's name, which is part of paths on this machine, and a fingerprint. Raises
        ConfigError where the host says that this is no member of its, VersionsApartError where one
        of us must be updated, and ServiceError for every other answer and for none. After the last
        two asking again may help.
        """
        try:
            content = self._json("GET", "/v1/offers")
        except HostRefusesError as error:
            if error.outcast:
                raise
            raise ServiceError(str(error)) from error
        try:
            return [_offered(item) for item in content]
        except (TypeError, KeyError, ValueError) as error:
            raise ServiceError(f"{self._url}: not a federation's answer") from error

    def version(self) -> str:
        """Return which tacit the host has; "" where it does not say. Raises as `offers`."""
        content = self._json("GET", "/v1/host")
        if not isinstance(content, dict):
            raise ServiceError(f"{self._url}: not a federation's answer")
        return printable(str(content.get("version", "")), 40)

    def offer(self, run: str) -> bytes:
        """Return the offer of a run, as the host keeps it: not checked.

        Raises ConfigError where the host refuses, in its words, ServiceError for any other answer
        that is none of a federation's, and where there is none.
        """
        return self._asked("GET", f"/v1/offers/{run}")

    def fetch(self, run: str, digest: str, path: Path, most: int) -> None:
        """Fetch a file of an offer to `path`, whole and with this SHA-256. Raises as `offer`.

        Raises ConfigError for other content, or more than `most` bytes: to ask again would not
        help.
        """
        if path.is_file() and hashlib.sha256(path.read_bytes()).hexdigest() == digest:
            return
        content = self._asked("GET", f"/v1/offers/{run}/files/{digest}", most=most, file=True)
        if hashlib.sha256(content).hexdigest() != digest:
            raise ConfigError(f"{path.name}: is not the file of the offer")
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        files.write(path, content, files.SECRET)

    def model(self, run: str, most: int) -> bytes:
        """Return the model of a run that has ended, of at most `most` bytes. Raises as `fetch`."""
        return self._asked("GET", f"/v1/offers/{run}/model", most=most)

    def answer(self, run: str, fingerprint: str, answer: str, reason: str = "") -> None:
        """Tell the host what the owner answers. Raises as `offer`."""
        body = {"fingerprint": fingerprint, "answer": answer, "reason": reason}
        self._asked("PUT", f"/v1/offers/{run}/answer", body)

    def state(self, run: str, statement: bytes) -> None:
        """Hand over what this member states on a run. Raises as `offer`."""
        self._asked("PUT", f"/v1/offers/{run}/statement", {"statement": statement.decode()})

    def leave(self) -> None:
        """Tell the host that this machine is a member no more. Raises as `offer`."""
        self._asked("POST", "/v1/leave", {})

    def _json(self, method: str, path: str) -> Any:
        try:
            return json.loads(self._asked(method, path))
        except (ValueError, RecursionError, LongAnswerError) as error:
            raise ServiceError(f"{self._url}: not a federation's answer") from error

    def _asked(
        self,
        method: str,
        path: str,
        body: dict[str, str] | None = None,
        *,
        most: int = MOST_OFFER,
        file: bool = False,
    ) -> bytes:
        """Return the body of an answer, which has at most `most` bytes. Raises as `offer`.

        file: it may take longer, as long as it comes.
        """
        more = PIECE if file else None
        with self._reached(), self._http.stream(method, path, json=body, extensions=more) as answer:
            bound = most if answer.is_success else MOST_OFFER
            body_bytes = content(answer, bound)
        if body_bytes is None:
            raise LongAnswerError(f"{self._url}: an answer has more than {bound:,} bytes")
        if not answer.is_success:
            self._refused(answer.status_code, body_bytes)
        return body_bytes

    def _refused(self, status: int, content: bytes) -> None:
        """Raise what an error answer means: ServiceError where asking again may help."""
        try:
            why = printable(str(json.loads(content)["detail"]), 300)
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise ServiceError(
                f"{self._url}: {status}, not a federation's answer; is it the host's address?"
            ) from error
        if status >= 500 or status == 429:
            raise ServiceError(f"{self._url}: {why}")
        if status == httpx.codes.PRECONDITION_FAILED:
            raise VersionsApartError(f"{self._url}: {why}")
        raise HostRefusesError(f"{self._url}: {why}", status)

    @contextmanager
    def _reached(self) -> Iterator[None]:
        try:
            yield
        except httpx.TransportError as error:
            raise unreachable(self._url, error, self._proxies) from error


def _offered(item: dict[str, object]) -> Offered:
    """Return a line of the host's list. Raises KeyError, TypeError, ValueError for another."""
    run, fingerprint, state = (str(item[key]) for key in ("run", "fingerprint", "state"))
    if not _NAME.fullmatch(run) or not _FINGERPRINT.fullmatch(fingerprint):
        raise ValueError("no run, or no fingerprint")
    return Offered(run, fingerprint, state)
