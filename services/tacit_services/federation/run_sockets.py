"""The Unix sockets at which the aggregators of a federation's runs serve REST, and their clients.

A socket's name may have 107 bytes, so the sockets lie in a short folder for temporary files, which
only this user can enter. They are made anew at each start of the host.
"""

from __future__ import annotations

import json
import logging
import os
import shutil
import tempfile
from pathlib import Path

import httpx

from tacit_services.transport.address import UNIX
from tacit_services.transport.patient_http import UnsteeredTransport

log = logging.getLogger("tacit.federation")
_SECONDS = 10.0  # that an aggregator on this machine may take to answer
_SHORT = ("/tmp", "/var/tmp", "/dev/shm")  # noqa: S108  (made by mkdtemp, for us alone)
_LONGEST = 60  # bytes of the folder's name


class RunSockets:
    """The sockets of all runs; `token_of` a run is what its aggregator takes writes with."""

    def __init__(self, runs: Path) -> None:
        """runs: the folder of all runs, where each run's token lies in RUN/state/token."""
        self._runs = runs
        self._folder = Path(tempfile.mkdtemp(prefix="tacit-", dir=_short_folder()))
        self._clients: dict[str, httpx.Client] = {}

    def address(self, run: str) -> str:
        """Return the address of a run's REST interface, as TACIT_HTTP has it."""
        return f"{UNIX}{self.path(run)}"

    def path(self, run: str) -> Path:
        """Return the path of a run's socket."""
        return self._folder / run

    def token_file(self, run: str) -> Path:
        """Return the file with the token that a run's aggregator takes writes with."""
        return self._runs / run / "state" / "token"

    def headers(self, run: str) -> dict[str, str]:
        """Return the headers with which a run's aggregator takes writes; none before its start."""
        try:
            token = self.token_file(run).read_text(encoding="ascii").strip()
        except OSError:
            return {}
        return {"Authorization": f"Bearer {token}"}

    def status(self, run: str) -> dict[str, object] | None:
        """Return `/v1/status` of a run; None: its aggregator does not answer now."""
        answer = self._asked(run, "GET", "/v1/status")
        if answer is None or not answer.is_success:
            return None
        try:
            content = json.loads(answer.content)
        except ValueError:  # it died in the middle of its answer
            return None
        return content if isinstance(content, dict) else None

    def begin(self, run: str) -> None:
        """Let a run begin with the edges that are there; where none is, it waits."""
        self._asked(run, "POST", "/v1/begin")

    def halt(self, run: str, reason: str) -> bool:
        """End a run; False: its aggregator does not answer now."""
        answer = self._asked(run, "POST", "/v1/halt", {"reason": reason})
        return answer is not None and answer.is_success

    def close(self) -> None:
        """Close the clients, and remove the sockets."""
        for client in self._clients.values():
            client.close()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _asked(
        self, run: str, method: str, path: str, body: dict[str, str] | None = None
    ) -> httpx.Response | None:
        client = self._clients.get(run)
        if client is None:
            transport = UnsteeredTransport(uds=str(self.path(run)))
            client = httpx.Client(
                transport=transport, base_url="http://localhost", timeout=_SECONDS, trust_env=False
            )
            self._clients[run] = client
        try:
            return client.request(method, path, json=body, headers=self.headers(run))
        except httpx.TransportError as error:
            log.debug("run %s: %r", run, error)
            return None


def _short_folder() -> str | None:
    if len(os.fsencode(tempfile.gettempdir())) <= _LONGEST:
        return None
    return next((path for path in _SHORT if os.access(path, os.W_OK | os.X_OK)), None)
