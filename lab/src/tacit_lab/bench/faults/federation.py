"""What the bench does with any system: start it, count, hurt a part of it, start that again."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tacit_lab.bench.faults.fault_plan import SiteTask
from tests.helpers.network import Network


@dataclass(frozen=True, slots=True)
class RunFolders:
    """Where a federation runs. server: what is the server's disk."""

    folder: Path
    server: Path
    task: SiteTask
    seed: int


class Federation(ABC):
    """A server and sites as real processes, each site behind a link of its own."""

    def __init__(self, place: RunFolders, server_address: str) -> None:
        self.place = place
        self.links = [
            Network(server_address, rate=place.task.link_rate) for _ in range(place.task.sites)
        ]
        for link in self.links:
            link.start()

    @abstractmethod
    def begin(self) -> None:
        """Start server and sites, and begin the run; returns when the first work is given out."""

    @abstractmethod
    def updates(self) -> int:
        """Return how many updates of the present run the server has."""

    @abstractmethod
    def results(self) -> bool:
        """Return whether the run's results are out."""

    @abstractmethod
    def failure(self) -> str:
        """Return why the system itself calls the run failed; "" while it does not."""

    @abstractmethod
    def kill_server(self) -> None:
        """End all that is on the server's machine by kill -9."""

    @abstractmethod
    def start_server(self) -> None:
        """Start it again, as its documents state."""

    @abstractmethod
    def kill_site(self, site: int) -> None:
        """End all that is on the site's machine by kill -9."""

    @abstractmethod
    def start_site(self, site: int) -> None:
        """Start it again, as its documents state."""

    @abstractmethod
    def slow_down(self, site: int, factor: float) -> None:
        """Let the site's processes run one `factor`-th of the time."""

    @abstractmethod
    def tend(self) -> None:
        """Start again what has died by itself, as its restart policy does."""

    @abstractmethod
    def by_hand(self) -> str:
        """Do what the documents tell a person to do about a run that does not go on; name it."""

    @abstractmethod
    def lost(self) -> int:
        """Return how many updates the server had received that are in no model, or were refused."""

    def evidence(self) -> dict[str, Any]:
        """Return what else is known of the finished run."""
        return {}

    def stop(self) -> None:
        """End everything."""
        for site in range(self.place.task.sites):
            self.kill_site(site)
        self.kill_server()
        for link in self.links:
            link.stop()


Founder = Callable[[RunFolders], Federation]
