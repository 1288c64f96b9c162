"""tacit as its compose.yaml runs it: broker, store, aggregator and edges, each a process."""

from __future__ import annotations

import json
import sys
import time
from collections import Counter
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import psutil
from tacit_client import ApiError, Client, Unreachable
from tacit_services.cli import replay
from tacit_services.journal import journal_file

from tacit.protocol import wire
from tacit_lab.bench.faults import site_rows
from tacit_lab.bench.faults.fault_plan import SiteTask
from tacit_lab.bench.faults.federation import Federation, RunFolders
from tacit_lab.bench.faults.process_tree import ProcessTree, plain_environment
from tests.helpers.servers import HOST, Server, free_port, mosquitto, redis_server

RESTART_S = 2.0
PATIENCE_S = 240.0
NETWORK = '''"""The sites' own network."""

from torch import nn


def network(features: int, hidden: int, classes: int) -> nn.Module:
    """Return two hidden layers."""
    inside = [nn.Linear(features, hidden), nn.ReLU(), nn.Linear(hidden, hidden), nn.ReLU()]
    return nn.Sequential(*inside, nn.Linear(hidden, classes))
'''


def run_file(task: SiteTask, seed: int) -> str:
    """Return the run file. It sets no time."""
    columns = "\n".join(
        f"x{number} = {{ low = {-site_rows.BOUND}, high = {site_rows.BOUND} }}"
        for number in range(task.features)
    )
    return f"""
[run]
name = "faults"
updates = {task.updates}
seed = {seed}
[data]
kind = "table"
train = "site{{edge}}.csv"
test = "public.csv"
target = "y"
rows = {task.rows // task.sites}
[data.columns]
{columns}
y = {{ values = [0, 1] }}
[model]
name = "python"
entry = "site_network:network"
arguments = {{ features = {task.features}, hidden = {task.hidden}, classes = 2 }}
[algorithm]
name = "fedasync"
learning_rate = {task.learning_rate}
steps_min = {task.steps}
[privacy]
mechanism = "none"
batch = {task.batch}
[edges]
count = {task.sites}
[evaluation]
every = {task.updates}
"""


class TacitFederation(Federation):
    """Aggregator, broker and store are the server's machine; an edge is a site's."""

    def __init__(self, place: RunFolders) -> None:
        self._end = ExitStack()
        self._broker = self._end.enter_context(mosquitto(place.server))
        self._store = self._end.enter_context(redis_server(place.server))
        super().__init__(place, f"{self._broker.host}:{self._broker.port}")
        site_rows.write(place.folder, place.task, place.seed)
        (place.folder / "site_network.py").write_text(NETWORK, encoding="utf-8")
        self._file = place.folder / "run.toml"
        self._file.write_text(run_file(place.task, place.seed), encoding="utf-8")
        self._http = f"{HOST}:{free_port()}"
        self._client = Client(f"http://{self._http}")
        self._aggregator = self._service("aggregator", self._aggregator_settings())
        self._edges = [
            self._service("edge", self._edge_settings(site), f"edge-{site}")
            for site in range(place.task.sites)
        ]
        self._updates = 0
        self._due: dict[str, float] = {}  # when what has died is started again
        self._server_is_up = True
        self._sites_up = set(range(place.task.sites))

    def _service(self, command: str, settings: dict[str, str], name: str = "") -> ProcessTree:
        shared = {"TACIT_RUN_FILE": str(self._file), "TACIT_RUN_ID": "faults", "TACIT_THREADS": "1"}
        shared |= {"XDG_DATA_HOME": str(self.place.folder / "home")}
        return ProcessTree(
            [sys.executable, "-m", "tacit_services.cli.main", command],
            self.place.folder,
            plain_environment(**(shared | settings)),
            self.place.folder / f"{name or command}.log",
        )

    def _aggregator_settings(self) -> dict[str, str]:
        server = self.place.server
        return {
            "TACIT_BROKER": f"{self._broker.host}:{self._broker.port}",
            "TACIT_STORE": self._store.url,
            "TACIT_OUT": str(server / "out"),
            "TACIT_HTTP": self._http,
            "TACIT_RECEIPTS": str(server / "receipts.key"),
            "TACIT_JOURNAL_FILE": str(self._journal),
        }

    def _edge_settings(self, site: int) -> dict[str, str]:
        return {
            "TACIT_BROKER": self.links[site].address,
            "TACIT_IDENTITIES": str(self.place.folder / f"identities-{site}"),
            "TACIT_IDENTITY": str(site),
        }

    @property
    def _journal(self) -> Path:
        return self.place.server / "run.journal"

    @property
    def _summary(self) -> Path:
        return self.place.server / "out" / "summary.json"

    @property
    def _model(self) -> Path:
        return self.place.server / "out" / "model.safetensors"

    def begin(self) -> None:
        """Start all, and wait until the run has begun."""
        self._aggregator.start()
        for edge in self._edges:
            edge.start()
        deadline = time.monotonic() + PATIENCE_S
        while not self._begun():
            if time.monotonic() > deadline:
                raise RuntimeError(f"tacit: the run has not begun: {self._aggregator.text[-2000:]}")
            time.sleep(0.05)

    def _begun(self) -> bool:
        with suppress(Unreachable, ApiError):
            return self._client.status().state != "waiting"
        return False

    def updates(self) -> int:
        """Return the updates applied; while the aggregator is away, those of before."""
        if self._server_is_up:
            with suppress(Unreachable, ApiError):
                self._updates = self._client.status().applied
        return self._updates

    def results(self) -> bool:
        """Return whether summary and model are written."""
        state = str(self._read_summary().get("state"))
        return state == "finished" and self._model.exists()

    def failure(self) -> str:
        """Return the last line of an aggregator or edge that a restart does not help."""
        return ""

    def kill_server(self) -> None:
        """Kill aggregator, store and broker."""
        self._server_is_up = False
        self._aggregator.kill()
        self._store.kill()
        self._broker.kill()

    def start_server(self) -> None:
        """Start them as restart policies do."""
        self._store.start()
        self._broker.start()
        self._aggregator.start()
        self._server_is_up = True

    def kill_site(self, site: int) -> None:
        """Kill the edge."""
        self._sites_up.discard(site)
        self._edges[site].kill()

    def start_site(self, site: int) -> None:
        """Start the edge."""
        self._edges[site].start()
        self._sites_up.add(site)

    def slow_down(self, site: int, factor: float) -> None:
        """Slow the edge down."""
        self._edges[site].slow_down(factor)

    def tend(self) -> None:
        """Start again who has ended with an error, as compose.yaml states."""
        if self._server_is_up:
            for name, server in (("store", self._store), ("broker", self._broker)):
                if _is_dead(server) and self._is_due(name):
                    self._restart(name, server)
            self._tend_service("aggregator", self._aggregator)
        for site in self._sites_up:
            self._tend_service(f"edge-{site}", self._edges[site])

    def _tend_service(self, name: str, service: ProcessTree) -> None:
        if service.code and self._is_due(name):
            service.start()

    def _is_due(self, name: str) -> bool:
        due = self._due.setdefault(name, time.monotonic() + RESTART_S)
        if time.monotonic() < due:
            return False
        del self._due[name]
        return True

    def _restart(self, name: str, server: Server) -> None:
        server.kill()
        try:
            server.start()
        except RuntimeError:
            self._due[name] = time.monotonic() + RESTART_S

    def by_hand(self) -> str:
        """Nothing is documented that a person has to do."""
        return ""

    def lost(self) -> int:
        """Return the accepted updates that are not in the model, and those refused as stale.

        What was accepted when the run had all its updates is none of them.
        """
        summary = self._read_summary()
        applied = int(summary.get("applied", self._updates))
        wanted = min(len(self._journalled()), self.place.task.updates)
        return max(0, wanted - applied) + int(summary.get("stale", 0))

    def evidence(self) -> dict[str, Any]:
        """Fold the journal again, serially; say whether it is the model, and each update once."""
        summary = self._read_summary()
        replayed = replay.fold(self._journal, code=self.place.folder)
        journalled = self._journalled()
        return {
            "replay_equal": replayed.model_sha256 == summary["model_sha256"],
            "each_once": all(count == 1 for count in journalled.values()),
            "journalled": len(journalled),
            "applied": summary["applied"],
            "stale": summary["stale"],
            "duplicates": summary["duplicates"],
            "accuracy": summary["test_accuracy"],
        }

    def _read_summary(self) -> dict[str, Any]:
        if not self._summary.exists():
            return {}
        content: dict[str, Any] = json.loads(self._summary.read_text(encoding="utf-8"))
        return content

    def _journalled(self) -> Counter[tuple[str, int]]:
        """Return how often each update stands in the journal file."""
        counts = Counter[tuple[str, int]]()
        with journal_file.open_journal(self._journal) as file:
            for record in journal_file.JournalReader(file, "journal", self.place.folder):
                meta = wire.decode(record.payload).meta
                if meta.WhichOneof("kind") == "update":
                    counts[meta.edge, meta.seq] += 1
        return counts

    def stop(self) -> None:
        """End everything."""
        super().stop()
        self._client.close()
        self._end.close()


def _is_dead(server: Server) -> bool:
    try:
        return bool(psutil.Process(server.pid).status() == psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return True
