"""What a push costs an edge past its step, stage by stage, at three sizes: `python -m
tacit_lab.bench.push`.

`encode`: the envelope. `commit`: the message, with the next task's charge. `parts`: the MQTT
payloads. And `two_commits`: charge and message apart, as many durable writes as before they were
one. The two ways take turns, so that other work of the machine falls on both. Values are medians.
"""

from __future__ import annotations

import math
import statistics
import tempfile
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import torch
from tacit_services.transport.transfer import Transfer
from tacit_services.worker.outbox import Outbox

from tacit.privacy.ledger import Ledger
from tacit.privacy.ledger.chain import Charge
from tacit.privacy.noise.randomness import Random
from tacit.privacy.private_sum.clipping import Clipped
from tacit.privacy.release import Plan, Released, Releaser
from tacit.protocol import wire, wire_up
from tacit.protocol.messages import Push

SIZES = {"3KB": (750, 60), "90KB": (22_500, 60), "45MB": (11_250_000, 3)}  # numbers, rounds
CHUNK = 256 * 1024
CHARGE = Charge(0.1, 1.5, "gaussian", secret=True)


def measured(sizes: dict[str, tuple[int, int]] = SIZES) -> dict[str, dict[str, float]]:
    """Return {size: {stage: ms}}, `commit_over_two` among them."""
    return {size: _stages(numbers, rounds) for size, (numbers, rounds) in sizes.items()}


def _stages(numbers: int, rounds: int) -> dict[str, float]:
    push = Push("edge-0", 0, _released(numbers))
    durations: dict[str, list[float]] = {}
    with tempfile.TemporaryDirectory() as name:
        folders = {way: Path(name) / way for way in ("commit", "two_commits")}
        for folder in folders.values():
            folder.mkdir()
        with (
            closing(Ledger(folders["commit"] / "ledger.db", "bench")) as first_ledger,
            closing(Ledger(folders["two_commits"] / "ledger.db", "bench")) as second_ledger,
        ):
            boxes = {
                "commit": Outbox(first_ledger, "bench", folder=folders["commit"]),
                "two_commits": Outbox(second_ledger, "bench", folder=folders["two_commits"]),
            }
            for seq in range(1, rounds + 2):
                for stage, ms in _round(push, seq, boxes).items():
                    durations.setdefault(stage, []).append(ms)
    medians = {stage: statistics.median(times[1:]) for stage, times in durations.items()}
    return medians | {"commit_over_two": medians["commit"] / medians["two_commits"]}


def _round(push: Push, seq: int, boxes: dict[str, Outbox]) -> dict[str, float]:
    """Return milliseconds of the stages of one push, and of its commit in the other way."""
    envelopes: list[wire.InPlace] = []
    encode = _ms(lambda: envelopes.append(wire_up.up_in_place("bench", seq, push, b"schema")))
    envelope = envelopes.pop()

    def commit() -> None:
        _charge(boxes["commit"]._ledger)
        boxes["commit"].put(seq, envelope, ahead=CHARGE)

    def two_commits() -> None:
        _charge(boxes["two_commits"]._ledger)
        boxes["two_commits"].put(seq, envelope)

    stages = {"encode": encode, "commit": _ms(commit), "two_commits": _ms(two_commits)}
    stages["parts"] = _ms(lambda: _parts(boxes["commit"]))
    for box in boxes.values():
        box.done(seq)
    return stages


def _charge(ledger: Ledger) -> None:
    """Begin one release: what was charged ahead pays for it, or else a commit of its own."""
    ledger.charge(CHARGE.sampling_rate, CHARGE.noise_multiplier, CHARGE.mechanism, secret=True)


def _parts(box: Outbox) -> None:
    pending = box.oldest()
    assert pending is not None
    transfer = Transfer(pending[1], CHUNK)
    for number in range(transfer.parts):
        list(transfer.more([number]))


def _ms(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return 1000 * (time.perf_counter() - began)


def _released(numbers: int) -> Released:
    plan = Plan("none", 1.0, 1.0, 0.0, 1.0, 1.0, epsilon=1.0, delta=1e-5)
    releaser = Releaser(plan, Ledger(":memory:", "bench"), Random(1))
    return releaser.release(1.0, lambda: Clipped(torch.ones(numbers), math.inf))


def show(results: dict[str, dict[str, float]]) -> None:
    """Print them."""
    for size, stages in results.items():
        words = ", ".join(f"{stage} {ms:.2f}" for stage, ms in stages.items())
        print(f"(f) a push of {size:>5}, ms  {words}")


if __name__ == "__main__":
    show(measured())
