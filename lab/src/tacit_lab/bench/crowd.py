"""A thousand edges, and ten thousand, at one aggregator process: `python -m tacit_lab.bench.crowd`.

Edges are on raw sockets in one process (bench/crowd_edges.py), and push ready-made updates of 2.6
KB (logistic regression), 250 a second of all of them together. Broker, aggregator and store are
those of `tacit run`.
"""

from __future__ import annotations

import json
import statistics
import tempfile
import threading
import time
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import psutil

from tacit_lab.bench.endurance import Stack
from tacit_lab.bench.workers import ChildProcess

RATE = 250.0
WARM = 2.0
SECONDS = 10.0
PATIENCE = 180.0  # seconds for all to join
POLL = 1.0  # seconds between two questions for the status, as `tacit run` asks
RUN = """
[run]
updates = 1000000000
snapshot_every = 200
[data]
kind = "arrays"
train = "rows.npz"
shape = [1, 8, 8]
low = 0
high = 16
classes = 10
rows = {rows}
[model]
name = "logistic"
[algorithm]
name = "mapa"
smoothness = 1.0
deviation = 1.0
max_staleness = 1000000000
[privacy]
batch = 10
noise_multiplier = 1.0
clip = 1.0
epsilon = 1e6
clip_min = 0.5
[edges]
count = {edges}
"""


def measured() -> dict[str, Any]:
    """Return `edges_1000` = {p50_ms, p99_ms, status_ms, rss_mb}, `edges_10000` = {resent, join_s,
    cpu_over_10_edges}.

    p50, p99: from a push to its receipt. status: the median of /v1/status, asked once a second
    meanwhile. cpu_over_10_edges: the aggregator's CPU time an update with 10,000 edges over that
    with 10, which is taken before and after.
    """
    thousand = _crowd(1000)
    few = [_crowd(10)["cpu_ms"]]
    many = _crowd(10_000)
    few.append(_crowd(10)["cpu_ms"])
    waits = statistics.quantiles(thousand["waits"], n=100)
    return {
        "edges_1000": {
            "p50_ms": round(1000 * waits[49], 2),
            "p99_ms": round(1000 * waits[98], 2),
            "status_ms": round(thousand["status_ms"], 2),
            "rss_mb": round(thousand["rss_mb"], 1),
        },
        "edges_10000": {
            "resent": many["resent"],
            "join_s": round(many["join_s"], 2),
            "cpu_over_10_edges": round(many["cpu_ms"] / statistics.mean(few), 3),
        },
    }


def _crowd(count: int) -> dict[str, Any]:
    """Return what `count` edges measure, and the aggregator meanwhile."""
    text = RUN.format(edges=count, rows=100 * count)
    with tempfile.TemporaryDirectory() as name, Stack(Path(name) / "stack", text) as stack:
        stack.wait_ready()
        options: dict[str, Any] = {"broker": stack.broker, "run_file": str(stack.file)}
        options |= {"count": count, "patience": PATIENCE, "warm_s": WARM}
        options |= {"seconds": SECONDS, "rate": RATE}
        edges = ChildProcess("edges", module="tacit_lab.bench.crowd_edges", **options)
        stack.workers.append(edges)
        edges.ready()
        watched = _watched(stack, edges)
        of_edges = edges.result()
    return of_edges | watched


def _watched(stack: Stack, edges: ChildProcess) -> dict[str, float]:
    """Return the aggregator's CPU time an update, memory, and time of a status under load."""
    process = psutil.Process(stack.aggregator.pid)
    pause = threading.Event()
    plain = HTTPConnection(stack.url.removeprefix("http://"))  # it costs less than a client of ours
    edges.go()
    pause.wait(WARM)
    latencies: list[float] = []
    before = stack.get("/v1/status")["applied"]
    cpu = sum(process.cpu_times()[:2])
    end = time.monotonic() + SECONDS
    while time.monotonic() < end:
        pause.wait(POLL)
        began = time.perf_counter()
        plain.request("GET", "/v1/status")
        status = json.load(plain.getresponse())
        latencies.append(time.perf_counter() - began)
    spent = sum(process.cpu_times()[:2]) - cpu
    return {
        "cpu_ms": 1000 * spent / (status["applied"] - before),
        "rss_mb": process.memory_info().rss / 2**20,
        "status_ms": 1000 * statistics.median(latencies),
    }


def show(ratios: dict[str, Any]) -> None:
    """Print it."""
    thousand = ratios["edges_1000"]
    ten_thousand = ratios["edges_10000"]
    print(
        f"(h) 1,000 edges, {RATE:g}/s    p50 {thousand['p50_ms']} ms, p99 {thousand['p99_ms']} ms, "
        f"status {thousand['status_ms']} ms, {thousand['rss_mb']} MB"
    )
    print(
        f"    10,000 edges         joined in {ten_thousand['join_s']} s, {ten_thousand['resent']} "
        f"sent again, {ten_thousand['cpu_over_10_edges']} × the CPU of 10"
    )


if __name__ == "__main__":
    results = measured()
    print(json.dumps(results, indent=2))
    show(results)
