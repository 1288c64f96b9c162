"""What a model of 45 MB costs: push, receipt and the new model back, over a model's bytes there and
back by paho alone, in one run: `python -m tacit_lab.bench.large [NOISE_MULTIPLIER]` (1).

The edge is a real edge loop with its outbox on disk and a ready-made update; broker, aggregator
process and store are those of `tacit run`. An update takes half a model's bytes if all of its
integers fit into 16 bits, as with a noise multiplier of 1. It takes 0.6 of a model's with 4 or
more.
"""

from __future__ import annotations

import json
import statistics
import sys
import tempfile
from pathlib import Path
from typing import Any

from tacit import config
from tacit_lab.bench.child import resident
from tacit_lab.bench.endurance import Stack
from tacit_lab.bench.workers import ChildProcess

CHUNK = 1 << 18
CYCLES = 6
ROUNDS = 2
RUN = """
[run]
updates = {updates}
snapshot_every = 200
[data]
dataset = "digits"
[model]
name = "mlp"
hidden = [3300, 3300]
[algorithm]
name = "mapa"
smoothness = 1e6
deviation = 1.0
max_staleness = 1000000
[privacy]
batch = 32
noise_multiplier = {multiplier}
clip = 1.0
epsilon = 1e6
clip_min = 0.5
[edges]
count = 1
[evaluation]
every = 1000000
"""


def measured(multiplier: float = 1.0) -> dict[str, Any]:
    """Return `large_cycle_over_raw`, and `large_cycle` = {ms, raw_ms, update_mb, copies}.

    Medians over all cycles but the first of each round; rounds take turns. update_mb: of an update,
    as it is sent. copies: {process: by how much its largest resident memory was above what it had
    before the first push, in models}.
    """
    raw = list[float]()
    ours = list[float]()
    copies = {"aggregator": 0.0, "edge": 0.0}
    for _ in range(ROUNDS):
        with tempfile.TemporaryDirectory() as name:
            text = RUN.format(updates=CYCLES, multiplier=multiplier)
            with Stack(Path(name) / "stack", text) as stack:
                size = 4 * config.load(stack.file).build_model().size
                stack.wait_ready()
                raw += _raw(stack.broker, size)
                before = resident(stack.aggregator.pid, "VmRSS")
                (worker,) = stack.begin("push", range(1), folder=name)
                result = worker.result()
                ours += result["models"][1:]
                grown = resident(stack.aggregator.pid, "VmHWM") - before
                for who, more in (("aggregator", grown), ("edge", result["grown"])):
                    copies[who] = max(copies[who], round(more / size, 2))
    ms, raw_ms = (1000 * statistics.median(times) for times in (ours, raw))
    large = {
        "ms": round(ms, 1),
        "raw_ms": round(raw_ms, 1),
        "update_mb": round(result["update"] / 1e6, 1),
        "copies": copies,
    }
    return {"large_cycle_over_raw": round(ms / raw_ms, 3), "large_cycle": large}


def path_over_broker(times: dict[str, float]) -> float:
    """Return updates/s of the path, one at a time, over what paho alone carries one way."""
    return round(times["raw_ms"] / 2 / times["ms"], 4)


def _raw(broker: str, size: int) -> list[float]:
    both = [
        ChildProcess(
            "cycle",
            module="tacit_lab.bench.raw_worker",
            broker=broker,
            size=size,
            chunk=CHUNK,
            count=CYCLES,
            echoes=echoes,
        )
        for echoes in (True, False)
    ]
    for worker in both:
        worker.ready()
    for worker in both:
        worker.go()
    both[0].result()
    seconds: list[float] = both[1].result()["seconds"]
    return seconds[1:]


def show(ratios: dict[str, Any]) -> None:
    """Print it."""
    cycle = ratios["large_cycle"]
    print(
        f"    45 MB cycle / raw    {ratios['large_cycle_over_raw']:.2f}   ({cycle['ms']} ms of "
        f"{cycle['raw_ms']} ms; an update is {cycle['update_mb']} MB; models in memory: "
        f"{cycle['copies']})"
    )


if __name__ == "__main__":
    results = measured(*map(float, sys.argv[1:2]))
    print(json.dumps(results, indent=2))
    show(results)
