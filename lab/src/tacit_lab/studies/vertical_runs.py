"""VAFL in one process under a virtual clock: accuracy against μ, and time to a target where parties
differ in speed.

    python -m tacit_lab.studies.vertical_runs privacy experiments/vafl-mnist-cached.toml
    python -m tacit_lab.studies.vertical_runs delays experiments/vafl-mnist.toml --target 0.9
    python -m tacit_lab.studies.vertical_runs centralised experiments/vafl-mnist.toml
"""

from __future__ import annotations

import argparse
import heapq
import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch

from tacit import config, datasets
from tacit.algorithms import registry
from tacit.algorithms.vafl import vafl_algorithm
from tacit.algorithms.vafl.centralised import centralised
from tacit.algorithms.vafl.label_server import LabelServer
from tacit.algorithms.vafl.party import Party
from tacit.algorithms.vafl.vertical_settings import vertical
from tacit.config import RunFile
from tacit.models import evaluate
from tacit.privacy.accounting import gdp
from tacit.privacy.ledger import Ledger
from tacit.privacy.noise.randomness import Random
from tacit.protocol.messages import EVERYONE, Deadline
from tacit_lab.papers.figures.verdicts import half_width
from tests.helpers.vafl_rig import received

MUS = (1.0, 2.0, 5.0, 10.0)  # z = 1/μ; a run file has none below 0.1


@dataclass
class VerticalRoles:
    """The roles of one run.

    A party's every message takes a random time whose mean is `means[m]` seconds.
    """

    server: LabelServer
    parties: list[Party]
    means: list[float]
    poisson: bool = False  # as in the paper's appendix G, in units of 1/2M s; else exponential
    clock: float = 0.0
    events: list[tuple[float, float, int, Any]] = field(default_factory=list)

    def run(self, seed: int) -> Iterator[float]:
        """Deliver every message at its time; yields the clock after each."""
        drawn = np.random.default_rng(seed)
        by = {party.edge: party for party in self.parties}
        for party in self.parties:
            self._say(party, party.start(), drawn)
        while not self.server.halted:
            if not self.events:
                timer = self.server.timer()
                assert timer is not None
                self.server.on_message(Deadline(timer.number))
                continue
            self.clock, _, _, message = heapq.heappop(self.events)
            for out in self.server.on_message(message):
                for edge in by if out.to == EVERYONE else [out.to]:
                    self._say(by[edge], by[edge].on_message(out.message), drawn)  # type: ignore[arg-type]
            yield self.clock

    def _say(self, party: Party, outgoing: list[Any], drawn: np.random.Generator) -> None:
        mean = self.means[party.number]
        unit = 0.5 / len(self.parties)
        for out in outgoing:
            if self.poisson:
                late = float(drawn.poisson(mean / unit)) * unit
            else:
                late = float(drawn.exponential(mean))
            heapq.heappush(
                self.events,
                (self.clock + late, drawn.random(), len(self.events), received(out.message)),
            )


def world(run: RunFile, root: Path | None, means: list[float] | None = None) -> VerticalRoles:
    """Return the roles of `run`, with the ledgers in memory."""
    splits = datasets.splits(run.source.name, root)
    salt = b"bench"
    count = run.edges.count
    server = registry.server(
        run.define(), run.build_model(), vafl_algorithm.labelled_records(splits, salt)
    )
    assert isinstance(server, LabelServer)
    ledgers = [Ledger(":memory:", run.source.name) for _ in range(count)]
    parties = [
        vafl_algorithm.party(
            vertical(run.define()), f"edge-{number}", number, splits, salt, ledger, Random()
        )
        for number, ledger in enumerate(ledgers)
    ]
    return VerticalRoles(server, parties, means or [1.0] * count)


def changed(path: Path, **sections: dict[str, Any]) -> RunFile:
    """Return the run file with some values replaced."""
    content = config.load(path).model_dump()
    for name, values in sections.items():
        content[name] |= values
    return RunFile.model_validate(content)


def accuracy(server: LabelServer) -> float:
    """Return the accuracy at the last evaluation."""
    assert server.evaluation.latest is not None
    _, params, data = server.evaluation.latest
    return evaluate(server.head, params, data)[0]


def privacy(path: Path, root: Path | None) -> list[dict[str, float]]:
    """Measure accuracy against μ of one party, and of a person at all, each for one noise."""
    rows = []
    for mu in (*MUS, None):
        noise = (
            {"mechanism": "none"} if mu is None else {"noise_multiplier": 1 / mu, "epsilon": 1e9}
        )
        roles = world(changed(path, privacy=noise), root)
        for _ in roles.run(1):
            pass
        spent = [gdp.mu(party.releaser.ledger.history()) for party in roles.parties]
        point = {"mu_party": spent[0], "mu": gdp.compose(spent), "accuracy": accuracy(roles.server)}
        rows.append({"mu_release": mu or 0.0, **point})
        print(json.dumps(rows[-1]), flush=True)
    return rows


def delays(
    path: Path, root: Path | None, target: float, seeds: int, *, poisson: bool
) -> dict[str, Any]:
    """Return the virtual seconds until the test accuracy is `target`, of each mode.

    The modes are asynchronous, t-synchronous and synchronous.

    Party m's delays have the mean m/M, the slowest's one second: exponential, or Poisson(2m)/2M as
    in appendix G. Of each mode every seed's seconds, and synchronous over it: mean and 95 %
    interval. All are evaluated after the same number of uploads, as their `evaluation.every` sets
    of the asynchronous one.
    """
    run = config.load(path)
    count = run.edges.count
    every = run.evaluation.every
    means = [(m + 1) / count for m in range(count)]
    modes: dict[str, dict[str, Any]] = {
        "sync": {"synchronous": True},
        f"t={count // 2}": {"t": count // 2},
        "async": {"t": 1},
    }
    results: dict[str, Any] = {}
    for name, section in modes.items():
        seconds = []
        if "synchronous" in section:
            uploads = count
        else:
            uploads = section["t"]
        evaluation = {"every": max(1, every // uploads)}
        for seed in range(1, seeds + 1):
            roles = world(
                changed(path, algorithm=section, run={"seed": seed}, evaluation=evaluation),
                root,
                means,
            )
            roles.poisson = poisson
            seconds.append(_until(roles, target, seed))
        results[name] = {"seconds": [round(value, 1) for value in seconds]}
        ratio = np.array(results["sync"]["seconds"]) / np.array(seconds)
        results[name]["sync_over_it"] = [
            round(float(x), 2) for x in (ratio.mean(), half_width(ratio))
        ]
        print(name, json.dumps(results[name]), flush=True)
    return results


def _until(roles: VerticalRoles, target: float, seed: int) -> float:
    """Return the clock when an evaluation first shows `target`; inf: never."""
    last = 0
    for clock in roles.run(seed):
        if roles.server.evaluation.latest and roles.server.evaluation.latest[0] > last:
            last = roles.server.evaluation.latest[0]
            if accuracy(roles.server) >= target:
                return clock
    return float("inf")


def central(path: Path, root: Path | None) -> dict[str, float]:
    """Return the accuracy of the model trained with all features in one place.

    It is measured on all rows that are not trained on. The model has as many steps as each party
    takes in the run, and a tenth more, since a party's count is not known beforehand.
    """
    run = config.load(path)
    roles = world(run, root)
    server = roles.server
    running = roles.run(1)
    while any(party.place is None for party in roles.parties):
        next(running)
    rows = torch.arange(len(server.labelled.labels))
    records = server.labelled.records
    views = [party._features(rows) for party in roles.parties]
    models = [party.embedding for party in roles.parties]
    results = {}
    penalty = roles.parties[0].regularization
    for share in (1.0, 1.1):
        steps = round(share * run.run.updates * server.protocol.t / run.edges.count)
        params, thetas = centralised(
            server.protocol,
            steps,
            models,
            server.head,
            [view[:records] for view in views],
            server.labelled.labels[:records],
            penalty,
        )
        embedded = [
            e.embed(theta, view[records:])
            for e, theta, view in zip(models, thetas, views, strict=True)
        ]
        right = (
            server.head.logits(params, torch.stack(embedded, 1)).argmax(1)
            == server.labelled.labels[records:]
        )
        results[f"{steps} steps"] = float(right.float().mean())
    print(json.dumps(results), flush=True)
    return results


def main() -> None:
    """See the module's first lines."""
    parser = argparse.ArgumentParser(prog="python -m tacit_lab.studies.vertical_runs")
    parser.add_argument("what", choices=("privacy", "delays", "centralised"))
    parser.add_argument("file", type=Path)
    parser.add_argument("--data", type=Path, default=None)
    parser.add_argument("--target", type=float, default=0.9)
    parser.add_argument("--seeds", type=int, default=5, help="of delays")
    parser.add_argument(
        "--poisson", action="store_true", help="delays as in the paper's appendix G"
    )
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    if arguments.what == "privacy":
        privacy(arguments.file, arguments.data)
    elif arguments.what == "centralised":
        central(arguments.file, arguments.data)
    else:
        delays(
            arguments.file,
            arguments.data,
            arguments.target,
            arguments.seeds,
            poisson=arguments.poisson,
        )


if __name__ == "__main__":
    main()
