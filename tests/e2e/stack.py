"""compose.yaml under its own project name and port, and what the tests ask of it."""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from threading import Event
from typing import Any

import pytest
from tacit_client import ApiError, Client, Edge, Status, Unreachable

from tests.helpers.servers import need

ROOT = Path(__file__).parent.parent.parent
# By their tags: a machine without a registry has made its own under these names.
IMAGES = {
    "TACIT_PYTHON_IMAGE": "python:3.11-slim-bookworm",
    "TACIT_MOSQUITTO_IMAGE": "eclipse-mosquitto:2.0",
    "TACIT_REDIS_IMAGE": "redis:7.2",
}
# Compiled for this machine alone, which runs them; in nightly for all.
BUILD = {} if os.environ.get("NIGHTLY") == "1" else {"TACIT_KERNELS": ""}


class Stack:
    """One project.

    In every status that is read, neither the model's version nor what an edge has spent goes back.
    """

    def __init__(
        self,
        project: str,
        port: int,
        files: list[str],
        data: Path | None,
        more: dict[str, str] | None = None,
    ) -> None:
        """Take the files of a stack; `more` is of the environment that compose reads."""
        self.project = project
        self.url = f"http://127.0.0.1:{port}"
        self.version = 0
        self._spent: dict[str, int] = {}
        self.edges: dict[str, Edge] = {}  # as they were at the last look
        self._root = ROOT
        # Nothing of the developer's own: a TACIT_DATA that is not there would be made by Docker, by
        # root.
        mine = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("TACIT_", "COMPOSE_"))
        }
        self._environment = (
            mine
            | IMAGES
            | BUILD
            | {"COMPOSE_PROJECT_NAME": project, "TACIT_HTTP_PORT": str(port), **(more or {})}
        )
        self.of(ROOT, files)
        if data is not None:
            self._environment["TACIT_DATA"] = str(data.resolve())

    def of(self, root: Path, files: list[str]) -> None:
        """Use these compose files of the tree at `root` from here on.

        What runs, and all volumes, stay.
        """
        self._root = root
        self._environment["COMPOSE_FILE"] = os.pathsep.join(files)

    def expect_another_run(self) -> None:
        """Let the next status be of another run, which has counted nothing yet."""
        self.version = 0
        self._spent = {}

    def compose(self, *arguments: str, seconds: float = 120.0) -> str:
        """Run `docker compose ARGUMENTS`; returns its output.

        AssertionError with both streams when it fails.
        """
        return self._run("docker", "compose", *arguments, seconds=seconds)

    def make(self, *arguments: str) -> None:
        """Run `make ARGUMENTS` on this project."""
        self._run("make", *arguments, seconds=120.0)

    def _run(self, *command: str, seconds: float) -> str:
        completed = subprocess.run(
            command,
            cwd=self._root,
            env=self._environment,
            timeout=seconds,
            capture_output=True,
            text=True,
            check=False,
        )
        assert completed.returncode == 0, (
            f"{' '.join(command)}\n{completed.stdout}\n{completed.stderr}"
        )
        return completed.stdout

    def scale(self, edges: int) -> None:
        """Have that many edges; nothing else is touched."""
        self.compose("up", "--detach", "--no-recreate", "--no-build", "--scale", f"edge={edges}")

    def containers(self, service: str) -> list[str]:
        """Return the ids of the service's containers."""
        return self.compose("ps", "--quiet", "--all", service).split()

    def inspect(self, service: str) -> list[dict[str, Any]]:
        """Return `docker inspect` of the service's containers."""
        containers: list[dict[str, Any]] = json.loads(docker("inspect", *self.containers(service)))
        return containers

    def status(self) -> Status | None:
        """Return the run's status; None while the aggregator is not ready."""
        try:
            with Client(self.url) as client:
                if not client.ready():
                    return None
                status, edges = client.status(), client.edges()
        except (Unreachable, ApiError):
            return None
        assert status.model_version >= self.version, (
            f"went back from {self.version} to {status.model_version}"
        )
        self.edges = {edge.id: edge for edge in edges}
        spent = self.pushes()
        assert all(spent.get(edge, 0) >= count for edge, count in self._spent.items()), (
            f"{spent} after {self._spent}"
        )
        self.version, self._spent = status.model_version, spent
        return status

    def pushes(self) -> dict[str, int]:
        """Return the releases of every edge, as its ledger counted them at the last look."""
        return {name: edge.pushes for name, edge in self.edges.items()}

    def wait(self, condition: Callable[[Status], bool], seconds: float, what: str) -> Status:
        """Return the first status that meets `condition`.

        Raise AssertionError with `what` and the last one after `seconds`.
        """
        deadline, last = time.monotonic() + seconds, None
        while time.monotonic() < deadline:
            status = self.status()
            if status is not None:
                last = status
                if condition(status):
                    return status
            Event().wait(0.5)
        last_status = last.to_json() if last else "never ready"
        raise AssertionError(
            f"not within {seconds:g} s: {what}; {last_status}\n{self.compose('logs', '--tail', '20')}"
        )

    def wait_for_updates(self, count: int, seconds: float) -> None:
        """Wait until `count` more updates are applied."""
        target = self.version + count
        self.wait(lambda status: status.model_version >= target, seconds, f"{count} more updates")

    def leftovers(self) -> list[str]:
        """Return containers, volumes and networks that carry the project's label."""
        label = f"label=com.docker.compose.project={self.project}"
        kinds = (["ps", "--all"], ["volume", "ls"], ["network", "ls"])
        return [
            name for kind in kinds for name in docker(*kind, "--quiet", "--filter", label).split()
        ]


def docker(*arguments: str) -> str:
    """Return the output of `docker ARGUMENTS`."""
    completed = subprocess.run(
        ["docker", *arguments], timeout=60, capture_output=True, text=True, check=False
    )
    assert completed.returncode == 0, (
        f"docker {' '.join(arguments)}: {completed.returncode}\n{completed.stdout}\n{completed.stderr}"
    )
    return completed.stdout


def kill_main_process(container: str) -> None:
    """Kill the service itself with SIGKILL, not by the engine: the restart policy sees a crash."""
    docker("exec", container, "sh", "-c", "kill -9 $(cat /proc/1/task/1/children)")


def needs_engine() -> None:
    """Skip the test without Docker and Compose, or fail it under CI."""
    need("docker")
    for arguments in (["info"], ["compose", "version"]):
        if subprocess.run(["docker", *arguments], capture_output=True, check=False).returncode:
            message = f"docker {arguments[0]} fails: no engine, or no Compose"
            pytest.fail(message) if os.environ.get("CI") else pytest.skip(message)
