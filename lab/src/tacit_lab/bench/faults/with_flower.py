"""Flower's deployment: a SuperLink with its database, SuperNodes, and a run by `flwr run`."""

from __future__ import annotations

import re
import shutil
import socket
import subprocess
from pathlib import Path
from typing import Any

from tacit_services.children.processes import free_port

from tacit_lab.bench.faults import fault_plan, site_rows
from tacit_lab.bench.faults.federation import RunFolders
from tacit_lab.bench.faults.peer_federation import HOST, SERVER, PeerFederation, answer_of
from tacit_lab.bench.faults.process_tree import ProcessTree, plain_environment
from tacit_lab.checkout import ROOT

BIN = ROOT / "out" / "peers" / "faults-flower" / "bin"
HERE = Path(__file__).parent
_RECEIVED = "Push replies from node_id"
_ROUND = re.compile(r"Received (\d+) results and (\d+) failures")
_APP = """
[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"
[project]
name = "faults-app"
version = "1.0.0"
description = "the bench's task"
license = "Apache-2.0"
dependencies = []
[tool.hatch.build.targets.wheel]
packages = ["."]
[tool.flwr.app]
publisher = "bench"
[tool.flwr.app.components]
serverapp = "faults_app.flower_app:server_app"
clientapp = "faults_app.flower_app:client_app"
[tool.flwr.app.config]
sites = {sites}
features = {features}
hidden = {hidden}
rounds = {rounds}
steps = {steps}
batch = {batch}
learning-rate = {learning_rate}
timeout = {timeout}
"""
_CONNECTION = """
[superlink]
default = "bench"
[superlink.bench]
address = "{address}"
insecure = true
"""


class FlowerFederation(PeerFederation):
    """The SuperLink is the server's machine; a SuperNode is a site's."""

    def __init__(self, place: RunFolders) -> None:
        self._address = f"{HOST}:{free_port()}"
        super().__init__(place, self._address)
        site_rows.write(place.folder, place.task, place.seed)
        self._app = place.folder / "app"
        self._write_app()
        self._person = place.folder / "person"
        self._person.mkdir()
        connection = _CONNECTION.format(address=self._address)
        (self._person / "config.toml").write_text(connection, encoding="utf-8")
        self._model = place.server / "model.npz"
        self.trees[SERVER] = self._tree("superlink", self._superlink(), place.server / "home")
        for site in range(place.task.sites):
            home = place.folder / f"home-{site}"
            self.trees[str(site)] = self._tree(f"node-{site}", self._supernode(site), home)
        self._before = 0  # replies to runs that were given up

    def _write_app(self) -> None:
        package = self._app / "faults_app"
        package.mkdir(parents=True)
        (package / "__init__.py").touch()
        for name in ("flower_app.py", "numpy_training.py"):
            shutil.copy(HERE / name, package / name)
        values = {name: getattr(self.place.task, name) for name in self.place.task.__slots__}
        timeout = fault_plan.load().used("flower", "timeout of Strategy.start")
        text = _APP.format(**values, timeout=float(timeout))
        (self._app / "pyproject.toml").write_text(text, encoding="utf-8")

    def _tree(self, name: str, command: list[str], home: Path) -> ProcessTree:
        home.mkdir()
        log = self.place.folder / f"{name}.log"
        return ProcessTree(command, self.place.folder, self._environment(home), log)

    def _environment(self, home: Path) -> dict[str, str]:
        variables = plain_environment(
            FLWR_HOME=str(home),
            FLWR_TELEMETRY_ENABLED="0",
            FLWR_DISABLE_UPDATE_CHECK="1",
            FAULTS_RESULTS=str(self.place.server / "model.npz"),
        )
        return variables | {"PATH": f"{BIN}:{variables['PATH']}"}

    def _superlink(self) -> list[str]:
        host, _, port = self._address.partition(":")
        database = str(self.place.server / "state.db")
        listening = ["--insecure", "--host", host, "--port", port, "--database", database]
        offline = "--disable-runtime-dependency-installation"
        return [str(BIN / "flower-superlink"), *listening, offline]

    def _supernode(self, site: int) -> list[str]:
        address = ["--superlink", self.links[site].address]
        runtime = ["--host", HOST, "--port", str(free_port())]
        rows = f'rows="{self.place.folder}/site{site}.npz"'
        command = [str(BIN / "flower-supernode"), "--insecure"]
        return [*command, *address, *runtime, "--node-config", rows]

    def begin(self) -> None:
        """Start all, submit the run, and wait until a site asks for it."""
        self.start(SERVER)
        self.until(lambda: _listens(self._address), "flower: the SuperLink")
        sites = [str(site) for site in range(self.place.task.sites)]
        for site in sites:
            self.start(site)
        self.until(
            lambda: all("SuperNode ID" in self.trees[site].text for site in sites),
            "flower: the SuperNodes",
        )
        self.submit()
        self.until(lambda: "[Fleet.GetRun]" in self.server().text, "flower: the first round")

    def submit(self) -> None:
        """`flwr run`, after `flwr stop` where the run has not ended."""
        if self.run_id and not self.ended():
            self._flwr("stop", self.run_id, "bench")
        self._before = self._received()
        self.run_id = str(self._flwr("run", str(self._app), "bench")["run-id"])
        self.status = ""

    def _flwr(self, *arguments: str) -> dict[str, Any]:
        command = [str(BIN / "flwr"), *arguments, "--format", "json"]
        return answer_of(command, self._environment(self._person))

    def _received(self) -> int:
        return self.server().text.count(_RECEIVED)

    def updates(self) -> int:
        """Return the replies of this run that the SuperLink has received."""
        return self._received() - self._before

    def results(self) -> bool:
        """Return whether the app has written its model."""
        return self._model.exists()

    def asked_status(self) -> str:
        """Return the state that `flwr ls` prints."""
        runs = self._flwr("ls", "bench", "--run-id", self.run_id).get("runs")
        if not runs:
            raise RuntimeError("flwr ls: no such run")
        return f"{runs[0]['status']} ({runs[0]['status-details']})"

    def ended(self) -> bool:
        """Return whether it says finished, failed or stopped."""
        return self.status.startswith("finished")

    def by_hand(self) -> str:
        """Submit the run again."""
        self.submit()
        return "flwr run"

    def lost(self) -> int:
        """Return the replies that rounds went on without, by the ServerApp's log."""
        return sum(int(failures) for _, failures in self._rounds())

    def _rounds(self) -> list[tuple[str, str]]:
        command = [str(BIN / "flwr"), "log", self.run_id, "bench", "--show"]
        try:
            process = subprocess.run(
                command,
                env=self._environment(self._person),
                capture_output=True,
                text=True,
                timeout=60,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return []
        return _ROUND.findall(process.stdout + process.stderr)

    def evidence(self) -> dict[str, Any]:
        """Return the rounds, and those with fewer than all sites."""
        rounds = self._rounds()
        partly = [results for results, _ in rounds if int(results) < self.place.task.sites]
        return {"rounds": len(rounds), "rounds_without_all": len(partly)}


def _listens(address: str) -> bool:
    host, _, port = address.partition(":")
    with socket.socket() as probe:
        return probe.connect_ex((host, int(port))) == 0
