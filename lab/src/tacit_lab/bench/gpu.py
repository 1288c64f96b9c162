"""Edge, peer and party on a GPU beside the CPU: the same numbers, and how long: `make gpu`.

    python -m tacit_lab.bench.gpu [--device cuda] [--count 20]

Two equal roles with the same seed, one on each device, answer the same message. What they release
must differ by rounding only: at most TOLERANCE of its length. Exit code 1 where it does not, 2
where there is no such device. Edges compute by a batch of a fixed shape on both, as kernels for
rows alone are for the CPU.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass

import torch
from tacit_services.testbed.simulated_run import rows_by_edge
from torch import Tensor

from tacit import config, datasets
from tacit.algorithms import registry
from tacit.algorithms.base.gradient_edge import GradientEdge
from tacit.algorithms.gossip.worker import GossipWorker
from tacit.algorithms.vafl import vafl_algorithm, vertical_settings
from tacit.datasets import Dataset
from tacit.datasets.alignment import names
from tacit.models import Model
from tacit.privacy.ledger import Ledger
from tacit.privacy.noise.randomness import Random
from tacit.privacy.private_sum.choice import private_sum
from tacit.privacy.release import Plan, Releaser
from tacit.protocol.messages import GlobalModel, Push
from tacit.protocol.vertical import Embed, Roster
from tacit_lab.bench.one_step import NETWORKS
from tacit_lab.checkout import EXPERIMENTS

TOLERANCE = 1e-4
SEED = 7
SALT = b"gpu"
ROWS = 1024
BATCH = 256
FOR_EVER = 1e9
Computation = Callable[[], Tensor]  # what a role releases to a message, the same one each time


@dataclass(frozen=True, slots=True)
class Compared:
    """One role on two devices. distance: of what they release first, over its length; ms: of an
    answer, the median.
    """

    name: str
    distance: float
    cpu_ms: float
    device_ms: float

    @property
    def equal(self) -> bool:
        """But for rounding."""
        return self.distance <= TOLERANCE


def compared(device: str, count: int = 20, networks: dict[str, Model] = NETWORKS) -> list[Compared]:
    """Compare every network at an edge, a peer and a party."""
    makers = [(f"edge, {name}", _edge_of(model)) for name, model in networks.items()]
    comparisons = []
    for name, make in [*makers, ("peer", _peer), ("party", _party)]:
        (ours, cpu_ms), (theirs, device_ms) = (
            _timed(make(place), count) for place in ("cpu", device)
        )
        distance = float((ours - theirs).norm() / ours.norm())
        comparisons.append(Compared(name, distance, cpu_ms, device_ms))
    return comparisons


def _timed(answer: Computation, count: int) -> tuple[Tensor, float]:
    first = answer().to(torch.float64)
    times = []
    for _ in range(count):
        began = time.perf_counter()
        answer()  # on the CPU in the end: nothing is still under way on the device
        times.append(time.perf_counter() - began)
    return first, 1000 * statistics.median(times)


def _releaser(rows: int, rate: float) -> Releaser:
    plan = Plan("gaussian", rate, rate * rows, 1.0, 0.1, 1.0, FOR_EVER, 1e-5, rows_max=rows)
    releaser = Releaser(plan, Ledger(":memory:", "gpu"), Random(SEED))
    releaser.releases_left = None
    return releaser


def _edge_of(model: Model) -> Callable[[str], Computation]:
    x, y = model.random_batch(ROWS, torch.Generator().manual_seed(SEED))
    data = Dataset(x, y, model.classes, "gpu")
    message = GlobalModel(0, model.init(1), 1.0)

    def make(device: str) -> Computation:
        releaser = _releaser(ROWS, BATCH / ROWS)
        rows = private_sum(data, model, releaser.plan, releaser.random, device)
        edge = GradientEdge("edge-0", model, releaser, rows)

        def answer() -> Tensor:
            (outgoing,) = edge.on_message(message)
            assert isinstance(outgoing.message, Push)
            return outgoing.message.released.vector

        return answer

    return make


def _peer(device: str) -> Computation:
    definition = config.load(EXPERIMENTS / "adp2sgd-digits.toml").define()
    model = definition.build_model()
    part = rows_by_edge(definition, None)[0]
    releaser = _releaser(part.most, 0.25)
    peer = registry.edge(definition, "edge-0", part.rows, model, releaser, device)
    assert isinstance(peer, GossipWorker)
    params = model.init(1)
    return lambda: peer.gradient(params).vector


def _party(device: str) -> Computation:
    run = config.load(EXPERIMENTS / "vafl-digits.toml")
    vertical = vertical_settings.vertical(run.define())
    splits = datasets.splits(run.source.name, None)
    ids = [record_id for data in splits for record_id in vertical_settings.record_ids(data)]
    roster = Roster(names(ids, SALT, "server"), len(splits[0]))

    def answer() -> Tensor:
        ledger = Ledger(":memory:", "gpu")
        random = Random(SEED)
        arguments = vertical, "edge-0", 0, splits, SALT, ledger, random
        party = vafl_algorithm.party(*arguments, device=device)
        (outgoing,) = party.on_message(roster)
        assert isinstance(outgoing.message, Embed)
        assert outgoing.message.released is not None
        return outgoing.message.released.vectors

    return answer


def main() -> None:
    """Compare and print."""
    parser = argparse.ArgumentParser(prog="python -m tacit_lab.bench.gpu")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--count", type=int, default=20)
    arguments = parser.parse_args()
    if arguments.device.startswith("cuda") and not torch.cuda.is_available():
        print("no CUDA here: nothing was compared", file=sys.stderr)
        sys.exit(2)
    torch.set_num_threads(1)
    comparisons = compared(arguments.device, arguments.count)
    print(f"{'':20}{'distance':>12}{'cpu ms':>10}{arguments.device + ' ms':>10}")
    for comparison in comparisons:
        mark = "" if comparison.equal else "  DIFFERS"
        print(
            f"{comparison.name:20}{comparison.distance:12.1e}{comparison.cpu_ms:10.2f}{comparison.device_ms:10.2f}{mark}"
        )
    sys.exit(0 if all(comparison.equal for comparison in comparisons) else 1)


if __name__ == "__main__":
    main()
