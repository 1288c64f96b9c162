"""Edges that lie, with and without the guard: `python -m tacit_lab.studies.poison [--quick]`,
out/poison.json.

Digits, five edges, ε = 4, by MAPA, FedAsync, FedBuff, DP-PASGD and FedAvg in the simulator. One or
two edges replace what an honest edge would have sent. Then honest runs, half of them on unequal
data, of which none may be accused.
"""

from __future__ import annotations

import argparse
import itertools
import json
import statistics
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from tacit_services.testbed.simulated_run import Simulation, rows_by_edge
from torch import Tensor

from tacit import config
from tacit.algorithms.base.server import ServerRole
from tacit.config import RunFile
from tacit.datasets import Dataset
from tacit.datasets.source import EdgePart
from tacit.models import Model, evaluate
from tacit.models.vectors import learnable
from tacit.protocol.messages import GlobalModel, Hello, Retired, Update
from tacit.simulation.client_server import Simulator
from tacit_lab.studies.lies import EVERY, LIES, LiarsView, Lie

HEAD = """
[run]
updates = {updates}
[data]
dataset = "digits"
{partition}
[model]
name = "logistic"
[privacy]
epsilon = 4.0
pushes = {pushes}
batch = 96
clip = 0.2
clip_min = 0.025
[network]
compute = {{model = "uniform", seconds = 1.0, spread = 0.5}}
"""
MAPA = """[algorithm]
name = "mapa"
smoothness = 0.013
deviation = 0.1
initial_gap = 1.0
"""
LOCAL = """[algorithm]
name = "{name}"
learning_rate = {rate}
{steps}
{more}
"""
GUARD = """[guard]
sums = true
agreement = true
"""


@dataclass(frozen=True)
class Setting:
    """One algorithm of the table: versions, releases an edge may make, its section."""

    updates: int
    pushes: int
    section: str


def _local(name: str, rate: float, steps: str, more: str = "") -> str:
    return LOCAL.format(name=name, rate=rate, steps=steps, more=more)


SETTINGS = {
    "mapa": Setting(1500, 360, MAPA),
    "fedasync": Setting(750, 720, _local("fedasync", 1.5, "steps_min = 4", "mixing = 0.2")),
    "fedbuff": Setting(150, 720, _local("fedbuff", 1.5, "steps_min = 4", "buffer = 5")),
    "dp-pasgd": Setting(150, 720, _local("dp-pasgd", 1.5, "tau = 4")),
    "fedavg": Setting(150, 720, _local("fedavg", 1.5, "steps_min = 4")),
}


class HostileSimulator(Simulator):
    """The simulator, whose `liars` replace what their honest selves would have sent."""

    def __init__(self, *args: Any, liars: frozenset[str], lie: Lie | None, view: LiarsView) -> None:
        super().__init__(*args)
        self._liars = liars
        self._lie = lie
        self._view = view
        self._base: Tensor | None = None  # of the answer that comes next
        self.kept_out: dict[str, str] = {}  # whom the aggregator's own checks refuse

    def answer(self, name: str) -> None:
        """Act as the simulator does, and note the model that the task was of."""
        task = self.tasks[name]
        if isinstance(task, GlobalModel):
            self._base = task.params
        else:
            self._base = None
        super().answer(name)

    def fold(self, message: Hello | Update | Retired) -> None:  # type: ignore[override]
        """Act as the simulator does, with the lie and the refusals of every algorithm."""
        if isinstance(message, Update) and self._lie is not None:
            message = self._lied(message)
            if not learnable(message.vector):
                self.kept_out[message.edge] = "not finite"
                return
        super().fold(message)

    def _lied(self, update: Update) -> Update:
        """Return the update, or what a liar makes of it, who sees everybody's."""
        assert self._base is not None
        assert self._lie is not None
        if self._sends_models():
            base = self._base
        else:
            base = torch.zeros_like(self._base)
        self._view.note(update.edge, update.vector - base)
        if update.edge not in self._liars:
            return update
        self._view.sent += 1
        led = self._lie(self._view, update, update.vector - base)
        return replace(update, vector=base + led)

    def _sends_models(self) -> bool:
        return self.definition.algorithm.name in ("fedasync", "fedavg", "dp-pasgd")


@dataclass(frozen=True)
class Case:
    """One run: an algorithm, a lie told by the first `liars` edges, a seed, a guard."""

    algorithm: str
    lie: str = ""
    liars: int = 0
    seed: int = 1
    guard: str = ""
    partition: str = ""


def run_file(case: Case) -> RunFile:
    """Return the run of a case."""
    setting = SETTINGS[case.algorithm]
    if case.partition in (HALVES, LONE):
        partition = ""
    else:
        partition = case.partition
    head = HEAD.format(updates=setting.updates, pushes=setting.pushes, partition=partition)
    if case.lie.endswith("fast"):
        fast = "[edges]\nslowdown = [1, 4, 4, 4, 4]\n"
    else:
        fast = ""
    return config.parse(head + setting.section + fast + case.guard, "case", seed=case.seed)


def towards_zero(model: Model, shape: tuple[int, ...], seed: int) -> Tensor:
    """Return the direction (d,), of length 1, that raises the score of class 0 for everything."""
    params = model.init(seed).requires_grad_()
    x = torch.full((1, *shape), 0.3)
    loss = torch.nn.functional.cross_entropy(model.logits(params, x), torch.tensor([0]))
    (gradient,) = torch.autograd.grad(loss, params)
    return -gradient / float(torch.linalg.vector_norm(gradient))


def outcome(case: Case) -> dict[str, Any]:
    """Return what came of a case: accuracy in per cent, versions, who was accused and when."""
    torch.set_num_threads(1)
    definition = run_file(case).define()
    parts = rows_by_edge(definition, None)  # the bundled digits
    if case.partition == HALVES:
        parts = _halves(parts, case.seed)
    if case.partition == LONE:
        parts = _lone(parts, case.seed)
    liars = frozenset(f"edge-{number}" for number in range(case.liars))
    if case.lie == "wrong labels":
        parts = [_mislabelled(p) if n < case.liars else p for n, p in enumerate(parts)]
    simulation = Simulation(definition, None, parts)
    role = simulation.role
    direction = towards_zero(simulation.model, definition.source.shape[0], case.seed)
    if case.algorithm == "mapa":  # which goes against what it is sent
        direction = -direction
    view = LiarsView(role, direction, torch.Generator().manual_seed(case.seed))
    lie = EVERY[case.lie] if case.lie else None
    workers = list(simulation.simulator.edges.values())
    simulator = HostileSimulator(definition, role, workers, liars=liars, lie=lie, view=view)
    when: dict[str, int] = {}
    against: set[str] = set()  # who was taken to work against the others at any time

    def observe(server: ServerRole) -> None:
        against.update(server.discounted)
        for edge in server.accused:
            when.setdefault(edge, sum(record.updates for record in server.edges.values()))

    simulator.run(observe)
    test = simulation.definition.source.test(None)
    assert test is not None
    accuracy = evaluate(simulation.model, role.params, test)[0]
    sevens = test.x[test.y == 7]
    right = simulation.model.logits(role.params, sevens).argmax(1) == 7
    return {
        "accuracy": round(100 * accuracy, 2),
        "recall": round(100 * float(right.float().mean()), 1),
        "version": role.version,
        "opposed": sorted(role.discounted),
        "ever opposed": sorted(against),
        "accused": {edge: [when.get(edge, 0), why] for edge, why in role.accused.items()},
        "halted": role.halt_reason,
    }


def _halves(parts: list[EdgePart], seed: int) -> list[EdgePart]:
    """Give two edges the lower classes, the others the rest: two camps of honest data."""
    rows = [_published(part) for part in parts]
    x = torch.cat([data.x for data in rows])
    y = torch.cat([data.y for data in rows])
    size = min(len(data.y) for data in rows)
    order = torch.argsort(y, stable=True)
    generator = torch.Generator().manual_seed(seed)
    low = order[: 2 * size]
    high = order[2 * size :]
    mixed = [side[torch.randperm(len(side), generator=generator)] for side in (low, high)]
    dealt = torch.split(torch.cat(mixed)[: 5 * size], size)
    return [
        replace(part, rows=replace(data, x=x[index], y=y[index]))
        for part, data, index in zip(parts, rows, dealt, strict=True)
    ]


def _lone(parts: list[EdgePart], seed: int) -> list[EdgePart]:
    """Give class 7 to the last edge alone; all edges have as many rows as before."""
    rows = [_published(part) for part in parts]
    x = torch.cat([data.x for data in rows])
    y = torch.cat([data.y for data in rows])
    sizes = [len(data.y) for data in rows]
    generator = torch.Generator().manual_seed(seed)
    order = torch.randperm(len(y), generator=generator)
    order = torch.cat([order[y[order] != 7], order[y[order] == 7]])
    dealt = torch.split(order, sizes)
    return [
        replace(part, rows=replace(data, x=x[index], y=y[index]))
        for part, data, index in zip(parts, rows, dealt, strict=True)
    ]


def _published(part: EdgePart) -> Dataset:
    assert isinstance(part.rows, Dataset)
    return part.rows


def _mislabelled(part: EdgePart) -> EdgePart:
    rows = _published(part)
    return replace(part, rows=replace(rows, y=(rows.y + 1) % 10))


# -- the table -------------------------------------------------------------------------------------

ALGORITHMS = ("mapa", "fedasync", "fedbuff", "dp-pasgd")
SEEDS = (101, 102, 103)  # none at which a margin of `agreement` was chosen
LONE = "lone"  # not a key of [data]: the last edge alone has class 7
DIRICHLET = 'partition = "dirichlet"\nalpha = 0.1'
HALVES = "halves"  # not a key of [data]: classes dealt to two camps
UNEQUAL = ('partition = "dirichlet"\nalpha = 0.5', 'partition = "shards"')


def honest(quick: bool) -> Iterator[Case]:
    """Yield runs of honest edges, half of them on unequal data; MAPA's without the guard, too."""
    for seed in range(SEEDS[0], SEEDS[0] + (2 if quick else 20)):
        if seed % 2:
            partition = ""
        else:
            partition = UNEQUAL[seed // 2 % 2]
        for guard in ("", GUARD):
            yield Case("mapa", seed=seed, guard=guard, partition=partition)
    for name in ("mapa",) if quick else ALGORITHMS:
        for seed in SEEDS[:1] if quick else SEEDS:
            for partition in (HALVES, *(("", UNEQUAL[0]) if name != "mapa" else ())):
                yield Case(name, seed=seed, guard=GUARD, partition=partition)


def hostile(quick: bool) -> Iterator[Case]:
    """Yield runs with one liar of five, and with two; without the guard of the first seed only."""
    for name in ("mapa",) if quick else ALGORITHMS:
        for seed in SEEDS[:1] if quick else SEEDS:
            for lie, liars in itertools.product(LIES, (1, 2)):
                yield Case(name, lie, liars, seed, GUARD)
                if seed == SEEDS[0] and not quick:
                    yield Case(name, lie, liars, seed)


def table(results: list[tuple[Case, dict[str, Any]]]) -> str:
    """Return Markdown: per algorithm and lie, the worst accuracy with and without guard."""
    worst: dict[tuple[str, str, int, bool], float] = {}
    for case, result in results:
        key = (case.algorithm, case.lie, case.liars, bool(case.guard))
        if not case.partition:
            worst[key] = min(worst.get(key, 100.0), result["accuracy"])
    names = sorted({algorithm for algorithm, *_ in worst}, key=list(SETTINGS).index)
    lines = ["| lie | liars | " + " | ".join(names) + " |", "|---|---|" + "---|" * len(names)]
    for lie in ("", *LIES):
        for liars in (1, 2) if lie else (0,):
            cells = [
                f"{worst.get((name, lie, liars, True), 0):.1f} "
                f"({worst.get((name, lie, liars, False), 0):.1f})"
                for name in names
            ]
            lines.append(f"| {lie or 'none'} | {liars} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def main() -> None:
    """Run all cases, two at a time, and write them down as they come."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="MAPA, one seed")
    parser.add_argument("--out", type=Path, default=Path("out/poison.json"))
    arguments = parser.parse_args()
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    results: list[tuple[Case, dict[str, Any]]] = []
    with ProcessPoolExecutor(2) as pool:
        every = [*honest(arguments.quick), *hostile(arguments.quick)]
        for case, result in zip(every, pool.map(outcome, every), strict=True):
            results.append((case, result))
            documents = [
                {"case": case.__dict__ | {"guard": bool(case.guard)}} | c for case, c in results
            ]
            arguments.out.write_text(json.dumps(documents, indent=1), encoding="utf-8")
    print(table(results))
    plain = [(case, result) for case, result in results if not case.lie]
    accused = [result for case, result in plain if result["accused"]]
    for guard in (False, True):
        got = [
            c["accuracy"]
            for case, c in plain
            if bool(case.guard) == guard and case.algorithm == "mapa"
        ]
        if len(got) > 1:
            spread = statistics.stdev(got)
        else:
            spread = 0.0
        print(
            f"honest, guard {guard}: {statistics.mean(got):.2f} ± {spread:.2f} of {len(got)} runs"
        )
    print(f"honest runs that accused anybody: {len(accused)}")


if __name__ == "__main__":
    main()
