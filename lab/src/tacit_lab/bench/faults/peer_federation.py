"""What Flower's and NVFlare's federations have in common: a tree of processes for each machine."""

from __future__ import annotations

import json
import subprocess
import time
from abc import abstractmethod
from collections.abc import Callable
from typing import Any

from tacit_lab.bench.faults.federation import Federation, RunFolders
from tacit_lab.bench.faults.process_tree import ProcessTree

HOST = "127.0.0.1"
RESTART_S = 2.0
START_S = 300.0
LOOK_S = 10.0
SERVER = "server"


class PeerFederation(Federation):
    """A server and sites that are one tree of processes each, and a person's commands."""

    def __init__(self, place: RunFolders, server_address: str) -> None:
        super().__init__(place, server_address)
        self.trees: dict[str, ProcessTree] = {}
        self.run_id = ""
        self.status = ""
        self._up: set[str] = set()
        self._due: dict[str, float] = {}
        self._looked = 0.0

    @abstractmethod
    def submit(self) -> None:
        """Begin the run anew, as a person does."""

    @abstractmethod
    def asked_status(self) -> str:
        """Return the run's state, as its command prints it. Raises RuntimeError, OSError."""

    @abstractmethod
    def ended(self) -> bool:
        """Return whether `status` reports that the run is over."""

    def server(self) -> ProcessTree:
        """Return the server's processes."""
        return self.trees[SERVER]

    def until(self, reached: Callable[[], bool], what: str) -> None:
        """Wait for it. Raises RuntimeError, with the server's last lines, if it takes too long."""
        deadline = time.monotonic() + START_S
        while not reached():
            if time.monotonic() > deadline:
                raise RuntimeError(f"{what}: not in time: {self.server().text[-2000:]}")
            time.sleep(0.05)

    def start(self, name: str) -> None:
        """Start a machine's processes."""
        self.trees[name].start()
        self._up.add(name)

    def kill_server(self) -> None:
        """Kill all of the server's processes."""
        self._kill(SERVER)

    def start_server(self) -> None:
        """Start the server on its files."""
        self.start(SERVER)

    def kill_site(self, site: int) -> None:
        """Kill all of the site's processes."""
        self._kill(str(site))

    def start_site(self, site: int) -> None:
        """Start the site on its files."""
        self.start(str(site))

    def _kill(self, name: str) -> None:
        self._up.discard(name)
        if name in self.trees:
            self.trees[name].kill()

    def slow_down(self, site: int, factor: float) -> None:
        """Slow all of the site's processes down."""
        self.trees[str(site)].slow_down(factor)

    def tend(self) -> None:
        """Start again what has died, two seconds later."""
        for name in sorted(self._up):
            if not self.is_dead(name):
                self._due.pop(name, None)
            elif time.monotonic() >= self._due.setdefault(name, time.monotonic() + RESTART_S):
                del self._due[name]
                self.trees[name].kill()
                self.trees[name].start()

    def is_dead(self, name: str) -> bool:
        """Return whether a machine's program has ended."""
        return self.trees[name].code is not None

    def failure(self) -> str:
        """Return the run's state, where it is over without results."""
        if time.monotonic() - self._looked < LOOK_S or SERVER not in self._up:
            return ""
        try:
            self.status = self.asked_status()
        except (RuntimeError, subprocess.TimeoutExpired):
            return ""
        finally:
            self._looked = time.monotonic()
        if self.ended() and not self.results():
            return self.status
        return ""


def answer_of(command: list[str], environment: dict[str, str]) -> dict[str, Any]:
    """Run a person's command; returns the JSON object that it prints. Raises RuntimeError."""
    process = subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=START_S, check=False
    )
    try:
        text = process.stdout[process.stdout.index("{") :]
        answer: dict[str, Any] = json.JSONDecoder().raw_decode(text)[0]
    except ValueError:
        raise RuntimeError(f"{command[1]}: {process.stdout}{process.stderr}") from None
    return answer
