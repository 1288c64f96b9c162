"""What stays bounded: `python -m tacit_lab.bench.endurance` writes out/endurance.json. About five
minutes on two cores.

(a) UPDATES small updates (digits, logistic: 2.8 KB) from 5 edges go through broker, aggregator
process and Redis. The figure is the resident memory of the three, and its slope over the second
half, by least squares.

(b) Three edges take 20 ms an update. Beside them, in the same run, one edge is stopped (SIGSTOP),
and one sends without waiting for receipts. It sends 200 and 1,000 a second and as fast as the
broker takes. The last also runs with a sender that leaves the processors to the others (nice 19),
as if it had its own. The figure is what the three achieve over what they achieve alone, before and
after. [guard] rate is on, so the flood is told to wait, dropped, and in the end not delivered.
"""

from __future__ import annotations

import json
import os
import signal
import statistics
import subprocess
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import httpx
import numpy as np
from tacit_services.children.preload import ForkedService
from tacit_services.children.processes import Child, free_port, start_broker, start_store

from tacit_lab.bench.child import resident
from tacit_lab.bench.workers import ChildProcess
from tacit_lab.checkout import ROOT

UPDATES = 50_000
EDGES = 5
PHASE = 15.0
RUN = """
[run]
updates = {updates}
snapshot_every = 500
[data]
dataset = "digits"
[model]
name = "logistic"
[algorithm]
name = "mapa"
smoothness = 1.0
deviation = 1.0
max_staleness = 1000000
[privacy]
batch = 32
noise_multiplier = 1.0
clip = 1.0
epsilon = 1e6
clip_min = 0.5
[edges]
count = {edges}
[evaluation]
every = {updates}
{guard}
"""


class Stack:
    """Broker, store and an aggregator process on one run file."""

    def __init__(self, folder: Path, run_text: str) -> None:
        folder.mkdir()
        self.folder = folder
        self.file = folder / "run.toml"
        self.file.write_text(run_text, encoding="utf-8")
        self.children: list[Child] = []
        self.broker = start_broker(folder, self.children).address
        store = start_store(folder, self.children).address
        self.url = f"http://127.0.0.1:{free_port()}"
        settings = {
            "TACIT_RUN_FILE": str(self.file),
            "TACIT_RUN_ID": "bench",
            "TACIT_BROKER": self.broker,
            "TACIT_STORE": store,
            "TACIT_OUT": str(folder / "out"),
            "TACIT_HTTP": self.url.removeprefix("http://"),
            "TACIT_LINGER": "true",
        }
        self.aggregator = ForkedService(
            ["aggregator"], os.environ | settings, folder / "aggregator.log"
        )
        self.http = httpx.Client(base_url=self.url, trust_env=False, timeout=10.0)
        self.workers: list[ChildProcess] = []

    def __enter__(self) -> Stack:
        return self

    def wait_ready(self) -> None:
        """Wait until the aggregator can take messages."""
        _wait(lambda: self.get("/readyz") is not None)

    def begin(self, kind: str, numbers: range, **options: Any) -> list[ChildProcess]:
        """Start workers, once the aggregator is ready, and let them go."""
        self.wait_ready()
        common: dict[str, Any] = {"broker": self.broker, "run_file": str(self.file), "data": None}
        started = [ChildProcess(kind, number=number, **common, **options) for number in numbers]
        self.workers += started
        for worker in started:
            worker.ready()
        for worker in started:
            worker.go()
        return started

    def get(self, path: str) -> Any:
        """Return the document at `path`; None while nobody answers."""
        try:
            response = self.http.get(path)
        except httpx.HTTPError:
            return None
        if response.status_code == 200:
            return response.json()
        return None

    def updates(self, names: list[str]) -> int:
        """Return updates of these edges in the model."""
        return sum(row["updates"] for row in self.get("/v1/edges") or [] if row["id"] in names)

    def pids(self) -> dict[str, int]:
        """Return the three processes whose memory matters."""
        servers = {
            child.name: child.process.pid for child in self.children if child.process is not None
        }
        return {"aggregator": self.aggregator.pid, **servers}

    def __exit__(self, *_: object) -> None:
        self.http.close()
        processes: list[subprocess.Popen[Any] | ForkedService] = [
            self.aggregator,
            *(worker._process for worker in self.workers),
        ]
        for process in processes:
            process.kill()
            process.wait()
        for child in reversed(self.children):
            child.stop()


def _wait(condition: Any, seconds: float = 240.0) -> None:
    deadline = time.monotonic() + seconds
    pause = threading.Event()
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"not so within {seconds:g} s")
        pause.wait(0.05)


def _rss(pid: int) -> float:
    """Return the resident memory, MB."""
    return resident(pid, "VmRSS") / 1_024_000


def memory(folder: Path) -> dict[str, Any]:
    """Measure the memory of broker, aggregator and edges over many updates."""
    points = []
    pause = threading.Event()
    with Stack(folder / "memory", RUN.format(updates=UPDATES, edges=EDGES, guard="")) as stack:
        stack.begin("stream", range(EDGES), count=UPDATES // EDGES, fresh=True)
        began = time.perf_counter()
        pids = stack.pids()
        while (status := stack.get("/v1/status")) and status["applied"] < UPDATES - 500:
            points.append((status["applied"], {name: _rss(pid) for name, pid in pids.items()}))
            pause.wait(0.5)
        seconds = time.perf_counter() - began
    late = [(applied, rss) for applied, rss in points if applied > UPDATES / 2]
    summary: dict[str, Any] = {"updates": UPDATES, "seconds": seconds, "points": len(points)}
    for name in pids:
        slope, _ = np.polyfit([applied for applied, _ in late], [rss[name] for _, rss in late], 1)
        summary[name] = {"slope_mb_per_10000": 10_000 * float(slope), "last_mb": late[-1][1][name]}
    return summary


def _rate(stack: Stack, names: list[str], seconds: float) -> float:
    """Measure the updates a second of these edges, from now on for so long."""
    began = time.perf_counter()
    before = stack.updates(names)
    threading.Event().wait(seconds)
    rate = (stack.updates(names) - before) / (time.perf_counter() - began)
    print(f"{rate:.1f} updates/s", flush=True)
    return rate


def neighbours(folder: Path) -> dict[str, Any]:
    """Measure the rate of other edges beside one that floods."""
    guard = "[guard]\nrate = 60.0\nburst = 60"
    pause = threading.Event()
    floods = {
        "flood of 200": (200, 0),
        "flood of 1000": (1000, 0),
        "all it can": (0, 0),
        "all it can, nice": (0, 19),
    }
    with Stack(folder / "flood", RUN.format(updates=10**7, edges=8, guard=guard)) as stack:
        names = [f"edge-{number}" for number in range(3)]
        *_, fourth = stack.begin("paced", range(4), pause=0.02)
        _wait(lambda: stack.updates(names) > 50)
        alone = [_rate(stack, names, PHASE)]
        rates = {}
        sent = {}
        fourth._process.send_signal(signal.SIGSTOP)
        rates["stalled"] = _rate(stack, names, PHASE)
        fourth._process.kill()
        for number, (name, (rate, nice)) in enumerate(
            floods.items(), 4
        ):  # each another edge: one ledger, one history
            alone.append(_rate(stack, names, PHASE))
            (flood,) = stack.begin(
                "flood", range(number, number + 1), rate=rate, nice=nice, seconds=PHASE + 2.0
            )
            pause.wait(1.0)
            rates[name] = _rate(stack, names, PHASE)
            sent[name] = flood.result()["sent"] / (PHASE + 2.0)
        alone.append(_rate(stack, names, PHASE))
    ratios = {name: rate / statistics.mean(alone) for name, rate in rates.items()}
    return {"alone_per_s": alone, "ratio": ratios, "sent_per_s": sent}


def main() -> None:
    """Measure, print and write."""
    out = ROOT / "out"
    out.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as name:
        results = {
            "cores": os.cpu_count(),
            "load": os.getloadavg()[0],
            "neighbours": neighbours(Path(name)),
        }
        results["memory"] = memory(Path(name))
    (out / "endurance.json").write_text(json.dumps(results, indent=2) + "\n", encoding="utf-8")
    print(json.dumps(results))


if __name__ == "__main__":
    main()
