"""Measure how long a run stands still when its aggregator is killed.

`python -m tacit_lab.bench.recovery_time` writes out/recovery.json.

A process that owns the run has written UPDATES updates of the paper's CNN into the journal in
Redis, none of them in a snapshot. The CNN has 21,840 parameters, 87 KB each update. The process is
killed with SIGKILL. An aggregator is started at once, as a process manager would. An edge repeats
one message, as edges do, until its receipt comes. The result is the seconds from the kill to that
receipt. In them the process starts (its imports alone are `import_s`), reads everything back, folds
it, and applies the new update. `stolen`: the share of the processors that a hypervisor gave to
others meanwhile (0 where it does not report it).
"""

from __future__ import annotations

import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import psutil
import torch
from tacit_services.children.preload import ForkedService, prepare
from tacit_services.children.processes import Child, start_broker, start_store
from tacit_services.journal.store import Anchor, NewEntry, Verdict, open_store
from tacit_services.transport.mqtt import Connection, Inbound

from tacit import config
from tacit.config import RunFile
from tacit.privacy.ledger import Charged
from tacit.protocol import topics, wire
from tacit.protocol._pb import wire_pb2 as pb
from tacit_lab.bench.__main__ import _data, _run_file
from tacit_lab.checkout import ROOT

UPDATES = 10_000
ROUNDS = 5
RUN_ID = "recovery"


class EdgeMessages:
    """The messages of one edge, made beforehand; `seq` is the number of the latest."""

    def __init__(self, run: RunFile) -> None:
        model = run.build_model()
        self.schema = model.schema_hash()
        self.seq = 0
        self.tensor = torch.randint(-1000, 1000, (model.size,), dtype=torch.int32)
        plan = run.plan(0)
        self.row = (plan.sampling_rate, plan.noise_multiplier, plan.mechanism)

    def hello(self) -> NewEntry:
        """Return message 1."""
        hello = pb.Hello(
            epsilon=8.0,
            delta=1e-5,
            mechanism="gaussian",
            noise_variance=0.1,
            clip_min=0.1,
            clip_max=10,
        )
        return self._entry(pb.Meta(hello=hello), None, 0)

    def update(self) -> NewEntry:
        """Return the next update, of integers as the default mechanism sends them."""
        rate, multiplier, mechanism = self.row
        spent = pb.Spend(
            sampling_rate=rate, noise_multiplier=multiplier, count=self.seq, mechanism=mechanism
        )
        charged = pb.Charged(count=self.seq, head=self.seq.to_bytes(32, "little"))
        update = pb.Update(
            base_version=self.seq - 1, clip=1.0, spent=[spent], charged=charged, scale=1e-6
        )
        return self._entry(pb.Meta(update=update), self.tensor, self.seq)

    def _entry(self, meta: pb.Meta, tensor: torch.Tensor | None, count: int) -> NewEntry:
        self.seq += 1
        meta.run = RUN_ID
        meta.edge = "edge-0"
        meta.seq = self.seq
        meta.schema_hash = self.schema
        if count:
            anchor = Anchor("edge-0", count, Charged(count, count.to_bytes(32, "little")).head)
        else:
            anchor = None
        return NewEntry("edge-0", self.seq, wire.encode(meta, tensor), anchor)


class Repeater:
    """A sender of one message until it is accepted.

    It does so every second, and when an aggregator announces itself, as edges do.
    """

    def __init__(self, broker: str) -> None:
        self._receipts: dict[int, int] = {}
        self._changed = threading.Condition()
        heard = [topics.down_all(RUN_ID, "edge-0"), topics.model(RUN_ID)]
        self.connection = Connection(broker, "bench-edge", heard, self._heard)
        self.connection.start(30.0)

    def _heard(self, inbound: Inbound) -> None:
        inbound.done()
        if inbound.topic == topics.model(RUN_ID):  # the new aggregator is there
            with self._changed:
                self._changed.notify_all()
            return
        encoded = (
            wire.Assembler(1 << 24).add(inbound.payload)
            if "/model/" in inbound.topic
            else inbound.payload
        )
        if encoded is None:
            return
        meta = wire.decode(encoded).meta
        seq, receipt = (
            (meta.answered, meta.answer) if meta.HasField("answer") else (meta.seq, meta.receipt)
        )
        with self._changed:
            self._receipts[seq] = receipt.status
            self._changed.notify_all()

    def accepted(self, entry: NewEntry, process: ForkedService) -> None:
        """Return when it is; `process` must not end before."""
        (payload,) = wire.split(bytes(entry.payload), 256 * 1024)
        good = (pb.Receipt.ACCEPTED, pb.Receipt.DUPLICATE)
        with self._changed:
            while self._receipts.get(entry.seq) not in good:
                assert process.poll() is None
                self.connection.publish(topics.up(RUN_ID, "edge-0", entry.seq, 0), payload)
                self._changed.wait(1.0)


def _start(file: Path, folder: Path, broker: str, store: str) -> ForkedService:
    if data := _data():
        settings = {"TACIT_DATA": data}
    else:
        settings = {}
    settings |= {
        "TACIT_RUN_FILE": str(file),
        "TACIT_RUN_ID": RUN_ID,
        "TACIT_BROKER": broker,
        "TACIT_STORE": store,
        "TACIT_OUT": str(folder / "out"),
        "TACIT_HTTP": "127.0.0.1:0",
        "TACIT_MAX_JOURNAL": "1000000",
    }
    return ForkedService(["aggregator"], os.environ | settings, folder / "aggregator.log")


def fill(file: str, store_address: str) -> None:
    """Write the journal, print a line, and wait to be killed."""
    run = config.load(Path(file))
    edge = EdgeMessages(run)
    store = open_store(store_address, RUN_ID, max_entries=1_000_000)
    store.open(run.fingerprint())
    store.append([edge.hello()])
    for _ in range(UPDATES // 100):
        answers = store.append([edge.update() for _ in range(100)])
        assert all(answer.verdict == Verdict.ACCEPTED for answer in answers)
    print("full", flush=True)
    threading.Event().wait()


def _import_seconds() -> float:
    began = time.perf_counter()
    subprocess.run(
        [sys.executable, "-c", "import tacit_services.aggregator.main"], check=True, cwd=ROOT
    )
    return time.perf_counter() - began


def once(folder: Path, file: Path) -> tuple[float, float]:
    """Return seconds from one kill to the first new update, and the share stolen of them."""
    children: list[Child] = []
    broker = start_broker(folder, children)
    store = start_store(folder, children)
    command = [sys.executable, "-m", "tacit_lab.bench.recovery_time", str(file), store.address]
    owner = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
    assert owner.stdout is not None
    assert owner.stdout.readline() == "full\n"
    edge = EdgeMessages(config.load(file))
    repeater = Repeater(broker.address)
    edge.seq = UPDATES + 1
    update = edge.update()
    owner.kill()
    began = time.perf_counter()
    before = _stolen()
    process = _start(file, folder, broker.address, store.address)
    repeater.accepted(update, process)
    seconds = time.perf_counter() - began
    stolen = _stolen() - before
    process.kill()
    process.wait()
    owner.communicate()
    repeater.connection.stop()
    for child in reversed(children):
        child.stop()
    assert f"({UPDATES + 1} journal entries replayed)" in (folder / "aggregator.log").read_text()
    return seconds, stolen / (seconds * (os.cpu_count() or 1))


def _stolen() -> float:
    """Return processor seconds, of all processors, since the machine began."""
    return float(getattr(psutil.cpu_times(), "steal", 0.0))


def measure(folder: Path, data: str | None) -> dict[str, Any]:
    """Kill an aggregator ROUNDS times, and return the seconds of each recovery."""
    # as `tacit run` has it ready; a process that imports for itself takes `import_s` more
    prepare()
    file = _run_file(folder, data, 10**6, "recovery")
    kills = list[tuple[float, float]]()
    file.write_text(file.read_text().replace("snapshot_every = 500", "snapshot_every = 1000000"))
    for number in range(ROUNDS):
        place = folder / str(number)
        place.mkdir()
        kills.append(once(place, file))
        print("{:.2f} s, {:.0%} stolen".format(*kills[-1]), flush=True)
        shutil.rmtree(place)
    seconds, stolen = zip(*kills, strict=True)
    return {
        "replayed": UPDATES + 1,
        "seconds": seconds,
        "stolen": stolen,
        "p50_s": statistics.median(seconds),
        "import_s": _import_seconds(),
        "load": os.getloadavg()[0],
    }


def main() -> None:
    """Measure, print and write."""
    out = ROOT / "out"
    out.mkdir(exist_ok=True)
    data = _data()
    with tempfile.TemporaryDirectory() as folder:
        result = measure(Path(folder), data)
    (out / "recovery.json").write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")
    print(json.dumps(result))


if __name__ == "__main__":
    fill(*sys.argv[1:]) if sys.argv[1:] else main()
