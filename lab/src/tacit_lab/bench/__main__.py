"""Measure, print ratios, write out/bench.json. Below twenty minutes on two cores, with nothing
else running.

- (a) Accepted updates/s of the whole path over the raw paho → mosquitto → paho QoS 1 rate at that
  size. There are 5 edges with ready-made 87 KB updates and 16 unreceipted ones each. The path is
  broker, decode, journal in Redis, receipt, fold, new model back.
- (b) Applied updates/s of real training: 5 edges, CNN of 21,840 parameters, expected batch 48, the
  delay of pushes included. They are over the plain steps of two processes, and over the same
  private step, with no broker, no journal and no ledger on disk, in turns of seconds. They are also
  over five such processes that share the two processors, as the edges do. And what an update costs
  the edges and the aggregator in processor time.
- (c) Push → receipt and push → new model latency of real edge loops (messages on disk, one update
  in flight), p50, p99.
- (d) What privacy costs: an edge step taken apart (bench/cost.py).
- (e) What an edge's whole push costs over a plain step, for five networks (bench/step.py).
- (f) What a push costs an edge past its step, stage by stage, at three sizes (bench/push.py).
- (g) The path by size, and a model of 45 MB there and back (bench/large.py).
- (h) A thousand edges, and ten thousand (bench/crowd.py).
- (i) A run through a federation's front door, and two at once (bench/federation_rate.py).
"""

from __future__ import annotations

import json
import os
import signal
import statistics
import tempfile
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from tacit_services.aggregator.assembly import Assembly, Surroundings, assemble
from tacit_services.aggregator.broker_link import BrokerLink
from tacit_services.children.processes import Child, start_broker, start_store
from tacit_services.journal.store import open_store
from tacit_services.worker import cpu_turns

from tacit import config
from tacit.algorithms.mapa.mapa import MapaServer
from tacit.config import RunFile
from tacit.protocol import topics
from tacit_lab.bench import cost, crowd, federation_rate, large, push, step, training_cost
from tacit_lab.bench.workers import ChildProcess
from tacit_lab.checkout import ROOT

EDGES = 5
PATH_SECONDS = 240.0  # that a path may take before the bench gives it up
SMALL = 4 * 650 + 256  # bytes of an update of logistic regression on digits, about
RUN = """
[run]
updates = {updates}
snapshot_every = 500
[data]
dataset = "{dataset}"
[model]
name = "cnn"
channels = [10, 20]
kernel = {kernel}
hidden = {hidden}
[algorithm]
name = "mapa"
smoothness = 0.1
deviation = 1.0
max_staleness = 100000
[privacy]
batch = {batch}
noise_multiplier = 1.0
clip = 1.0
epsilon = 1e6
clip_min = 0.5
[evaluation]
every = {updates}
samples = 1000
"""


def main() -> None:
    """Run all parts in turn; print and store the results."""
    out = Path("out")
    out.mkdir(exist_ok=True)
    results: dict[str, Any] = {"cores": os.cpu_count(), "edges": EDGES}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        data = _data()
        raw = [_raw(folder)]
        results["path_per_s"], _ = _path(folder, data, "stream")
        raw.append(_raw(folder))
        results["path_one_in_flight_per_s"], answers = _path(folder, data, "push")
        for what in ("receipt", "model"):
            values = [1000 * seconds for answer in answers for seconds in answer[f"{what}s"]]
            results |= _percentiles(f"push_to_{what}_ms", values)
        results["broker_per_s"] = statistics.mean(raw)
        results["path_over_broker"] = results["path_per_s"] / results["broker_per_s"]
        results["path_over_broker_by_size"] = {
            "3KB": _small_path(folder),
            "90KB": round(results["path_over_broker"], 4),
        }
        results |= _training(folder, data)
    results |= large.measured()
    results["path_over_broker_by_size"]["45MB"] = large.path_over_broker(results["large_cycle"])
    results |= crowd.measured()
    results |= cost.costs()
    results |= step.measured()
    results["push_ms_by_size"] = push.measured()
    results |= federation_rate.measured()
    results = {
        key: round(value, 4) if isinstance(value, float) else value
        for key, value in results.items()
    }
    (out / "bench.json").write_text(json.dumps(results, indent=2) + "\n", encoding="utf-8")
    _print(results)


def _print(results: dict[str, Any]) -> None:
    print(
        f"(a) path / broker        {results['path_over_broker']:.2f}"
        f"   ({results['path_per_s']:.0f} of {results['broker_per_s']:.0f} updates/s)"
    )
    for name in ("plain", "compute"):
        ratio = results[f"training_over_{name}"]
        of = results[f"{name}_per_s"]
        print(
            f"(b) training / {name:8}  {ratio:.2f}"
            f"   ({results['training_per_s']:.0f} of {of:.0f} steps/s)"
        )
    print(
        f"    an update costs      {results['edge_cpu_ms']:.1f} ms of an edge's processor, "
        f"{results['aggregator_cpu_ms']:.1f} ms of the aggregator's"
    )
    print(
        f"    … in {results['edges']} processes      "
        f"{results['training_over_compute_in_turns']:.2f}"
        f"   (of {results['compute_in_turns_per_s']:.0f}, which as many processes compute in turns)"
    )
    for what in ("receipt", "model"):
        p50 = results[f"push_to_{what}_ms_p50"]
        p99 = results[f"push_to_{what}_ms_p99"]
        print(f"(c) push → {what:8} ms   p50 {p50:.2f}, p99 {p99:.2f}")
    cost.show(results)
    step.show(results["step_over_plain"])
    step.show_memory(results["step_memory"])
    push.show(results["push_ms_by_size"])
    sizes = results["path_over_broker_by_size"].items()
    print("(g) path / broker        " + ", ".join(f"{size}: {ratio}" for size, ratio in sizes))
    large.show(results)
    crowd.show(results)
    federation_rate.show(results)
    print("written to out/bench.json")


def _data() -> str | None:
    path = Path(os.environ.get("TACIT_DATA") or ROOT.parent / "shared" / "data")
    if path.is_dir():
        return str(path.resolve())
    return None


def _run_file(folder: Path, data: str | None, updates: int, name: str) -> Path:
    """Return MNIST's 28×28 CNN with 21,840 parameters.

    Without the data, the digits' own, with a smaller update.
    """
    choice = {"dataset": "mnist", "kernel": 5, "hidden": [50], "batch": 48}
    if data is None:
        choice = {"dataset": "digits", "kernel": 3, "hidden": [300], "batch": 48}
    path = folder / f"{name}.toml"
    path.write_text(RUN.format(updates=updates, **choice), encoding="utf-8")
    return path


def _services(folder: Path, name: str) -> tuple[list[Child], str, str]:
    state = folder / name
    state.mkdir()
    children: list[Child] = []
    broker = start_broker(state, children)
    store = start_store(state, children)
    return children, broker.address, store.address


def _small_path(folder: Path) -> float:
    """Measure the path over the broker with updates of 2.6 KB."""
    text = large.RUN.replace('"mlp"\nhidden = [3300, 3300]', '"logistic"')
    file = folder / "small.toml"
    text = text.format(updates=EDGES * 1200, multiplier=1.0)
    file.write_text(text.replace("count = 1", f"count = {EDGES}"))
    rate, _ = _path(folder, None, "stream", name="small", file=file)
    return round(rate / _raw(folder, size=SMALL), 4)


def _raw(folder: Path, count: int = 1500, size: int = 21840 * 4 + 256) -> float:
    """Measure messages/s of `size` bytes through the broker alone: EDGES publishers, one reader."""
    children, broker, _ = _services(folder, f"raw-{time.monotonic_ns()}")
    receiver = ChildProcess(
        "receive", module="tacit_lab.bench.raw_worker", broker=broker, count=count * EDGES
    )
    receiver.ready()
    receiver.go()
    senders = [
        ChildProcess(
            "publish",
            module="tacit_lab.bench.raw_worker",
            broker=broker,
            number=k,
            count=count,
            size=size,
        )
        for k in range(EDGES)
    ]
    for sender in senders:
        sender.ready()
    for sender in senders:
        sender.go()
    rate: float = receiver.result()["rate"]
    for sender in senders:
        sender.result()
    for child in reversed(children):
        child.stop()
    return rate


def _aggregator(run: RunFile, broker: str, url: str) -> tuple[Assembly, BrokerLink]:
    """Return an aggregator in this process, subscribed, and its connection."""
    link = BrokerLink(broker, "bench-aggregator", 30.0)
    store = open_store(url, "bench")
    surroundings = Surroundings("bench", store, link, max_message=1 << 28, chunk=256 * 1024)
    definition = run.define()
    # Ready-made updates, many without a receipt at a time, are of any version.
    definition = replace(definition, traits=replace(definition.traits, in_turn=False))
    model = definition.build_model()
    assembly = assemble(definition, MapaServer(definition, model), model, surroundings)
    assembly.driver.recover()
    link.open([topics.up_all("bench")], assembly.pipeline.hear)
    return assembly, link


def _path(
    folder: Path,
    data: str | None,
    kind: str,
    each: int = 1200,
    *,
    name: str = "path",
    file: Path | None = None,
) -> tuple[float, list[dict[str, Any]]]:
    """Return applied updates/s with the aggregator's driver in this process, on Redis.

    Beside it are the edges' measurements. file: the run file, if not the CNN's. Raises TimeoutError
    after PATH_SECONDS.
    """
    torch.set_num_threads(1)
    file = file or _run_file(folder, data, EDGES * each, f"{name}-{kind}")
    run = config.load(file)
    children, broker, url = _services(folder, f"{name}-services-{kind}")
    (live, _, driver), link = _aggregator(run, broker, url)
    common: dict[str, Any] = {
        "broker": broker,
        "run_file": str(file),
        "data": data,
        "folder": str(folder),
        "count": each,
    }
    workers = [ChildProcess(kind, number=k, **common) for k in range(EDGES)]
    for worker in workers:
        worker.ready()
    for worker in workers:
        worker.go()
    marks: list[tuple[float, int]] = []
    stop = threading.Event()
    limit = threading.Timer(PATH_SECONDS, stop.set)
    limit.start()
    driver.train(stop, lambda: marks.append((time.perf_counter(), live.role.version)))
    limit.cancel()
    if not live.role.halted:
        raise TimeoutError(f"{live.role.version} updates in {PATH_SECONDS:g} s")
    driver.farewell(threading.Event())
    answers = [worker.result() for worker in workers]
    link.close()
    live.journal.store.close()
    for child in reversed(children):
        child.stop()
    (first, low), (last, high) = next(mark for mark in marks if mark[1] > EDGES), marks[-1]
    return (high - low) / (last - first), answers


def _percentiles(name: str, values: list[float]) -> dict[str, float]:
    cuts = statistics.quantiles(values, n=100)
    return {f"{name}_p50": cuts[49], f"{name}_p99": cuts[98]}


def _training(folder: Path, data: str | None) -> dict[str, Any]:
    file = _run_file(folder, data, 1_000_000, "training")
    cores = os.cpu_count() or 1
    with cpu_turns.pipe(folder / "turns", cores):
        beside = {
            "plain": _steps("plain", folder, file, data, cores, None),
            "compute": _steps("compute", folder, file, data, cores, None),
            "compute_in_turns": _steps("compute", folder, file, data, EDGES, folder / "turns"),
        }
        try:
            return training_cost.measure(file, folder / "training", data, EDGES, beside)
        finally:
            for steps in beside.values():
                training_cost.tell(steps.pids, signal.SIGKILL)


def _steps(
    kind: str, folder: Path, file: Path, data: str | None, count: int, pipe: Path | None
) -> training_cost.BareSteps:
    """Start bare steps of a worker in `count` processes, in turns from `pipe` if there is one."""
    counters = [folder / f"counter-{kind}-{count}-{number}" for number in range(count)]
    workers: list[ChildProcess] = []
    for number, counter in enumerate(counters):
        counter.write_bytes(bytes(8))
        options: dict[str, Any] = {
            "run_file": str(file),
            "data": data,
            "number": number,
            "counter": str(counter),
        }
        workers.append(ChildProcess(kind, **options, turns=str(pipe) if pipe else None))
    for worker in workers:
        worker.ready()
    steps = training_cost.BareSteps([worker.pid for worker in workers], counters)
    training_cost.tell(steps.pids, signal.SIGSTOP)
    return steps


if __name__ == "__main__":
    main()
