"""Is the DP-PASGD planner right? Its plan against every feasible (R, τ), and what it predicts
against what a run costs.

`python -m tacit_lab.studies.planner grid` trains them on Adult-1 (16 devices, one an education), 3
seeds each, in this process. It computes eqs (7a) and (7b) on softmax regression with Poisson
batches, clipped examples and Gaussian noise of the planner's own z. `python -m
tacit_lab.studies.planner cost` measures c1 and c2, plans with them, runs the plan over MQTT and
compares. Noise and batches of `grid` come from seeded streams: a repeated run gives the same bits,
and is no release.
"""

from __future__ import annotations

import json
import math
import os
import statistics
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from tacit import datasets
from tacit.algorithms.dp_pasgd import design, formulas
from tacit.algorithms.dp_pasgd.problem import DesignProblem
from tacit_lab.papers import round_cost
from tacit_lab.papers.commands.design import as_run_file

# of `cost`: rounds of a run, and how often each is repeated
ROUNDS = 30
TURNS = 7
OUT = Path("out") / "planner.json"
SEEDS = 3
BATCH = 256
DEVICES = 16
RATE = BATCH / (32_561 / DEVICES)  # q: tacit divides by the public nominal size of a part
# Rows have length √8, and a bias of 1: L <= 9/2 + λ. Each gradient is clipped to 1. The paper's c1,
# c2 and δ.
ADULT = DesignProblem(
    epsilon=10.0,
    delta=1e-4,
    devices=DEVICES,
    batch=(float(BATCH),),
    lipschitz=1.0,
    dim=206,
    smoothness=4.6,
    strong_convexity=0.1,
    lr=0.01,
    c1=100.0,
    c2=1.0,
    resource=1000.0,
)
SETTINGS = (
    replace(ADULT, resource=500.0),
    ADULT,
    replace(
        ADULT, c1=10.0, lr=0.05, strong_convexity=0.01, smoothness=4.51
    ),  # cheaper rounds: more of them
)


@dataclass(frozen=True, slots=True)
class Outcome:
    """Mean over seeds after R rounds of τ steps.

    It has the loss (4), with its regularization, and the test accuracy.
    """

    rounds: int
    tau: int
    loss: float
    accuracy: float


class Adult:
    """Adult-1 on every seed and device at once; parameters are (seeds, devices, columns + 1, 2)."""

    def __init__(self, root: Path) -> None:
        train, test = (datasets.load("adult", split, root) for split in ("train", "test"))
        groups = datasets.load_groups("adult", "train", root)
        self.at = self._ones(train.x)
        self.y = torch.nn.functional.one_hot(train.y, 2).float()
        self.test_at = self._ones(test.x)
        self.test_y = test.y
        self.device = torch.unique(groups, return_inverse=True)[1]
        self.weight = (
            1 / (DEVICES * torch.bincount(self.device).float())[self.device]
        )  # (4): 1/M · 1/N_m

    @staticmethod
    def _ones(x: Tensor) -> Tensor:
        """Return (n, 9): where the eight ones of a row are, and its bias."""
        return torch.cat(
            [x.nonzero()[:, 1].reshape(len(x), 8), torch.full((len(x), 1), x.shape[1])], 1
        )

    def train(self, p: DesignProblem, rounds: int, tau: int, z: float) -> Outcome:
        """Train `rounds` rounds of `tau` steps (7a), each ended by (7b)."""
        draw = torch.Generator().manual_seed(1000 * rounds + tau)
        theta = torch.zeros(SEEDS, DEVICES, 103, 2)
        for _ in range(rounds):
            for _ in range(tau):
                noise = torch.randn(theta.shape, generator=draw) * z * p.lipschitz
                theta = theta - p.lr * (self._clipped_sums(p, theta, draw) + noise) / BATCH  # (7a)
            theta = theta.mean(1, keepdim=True).expand(-1, DEVICES, -1, -1)  # (7b)
        return self._judge(p, theta[:, 0], rounds, tau)

    def _clipped_sums(self, p: DesignProblem, theta: Tensor, draw: torch.Generator) -> Tensor:
        seed, row = (torch.rand(SEEDS, len(self.y), generator=draw) < RATE).nonzero(as_tuple=True)
        slot = seed * DEVICES + self.device[row]
        flat = theta.reshape(SEEDS * DEVICES, 103, 2)
        at = slot[:, None] * 103 + self.at[row]
        logits = flat.reshape(-1, 2)[at].sum(1)
        error = torch.softmax(logits, 1) - self.y[row]
        lam = p.strong_convexity
        square = flat.square().sum((1, 2))[slot]
        norm2 = error.square().sum(1) * 9 + 2 * lam * (error * logits).sum(1) + lam**2 * square
        factor = (p.lipschitz / norm2.clamp_min(1e-12).sqrt()).clamp_max(
            1.0
        )  # of the whole gradient, λθ included
        each = (factor[:, None] * error)[:, None, :].expand(-1, 9, -1).reshape(-1, 2)
        total = (
            torch.zeros(SEEDS * DEVICES * 103, 2)
            .index_add_(0, at.flatten(), each)
            .reshape(flat.shape)
        )
        factor_sums = torch.zeros(SEEDS * DEVICES).index_add_(0, slot, factor)
        return (total + lam * factor_sums[:, None, None] * flat).reshape(theta.shape)

    def _judge(self, p: DesignProblem, theta: Tensor, rounds: int, tau: int) -> Outcome:
        loss = accuracy = 0.0
        for params in theta:
            logs = torch.log_softmax(params[self.at].sum(1), 1)
            loss += float(
                -(self.weight[:, None] * self.y * logs).sum()
                + p.strong_convexity / 2 * params.square().sum()
            )
            accuracy += float((params[self.test_at].sum(1).argmax(1) == self.test_y).float().mean())
        return Outcome(rounds, tau, loss / len(theta), accuracy / len(theta))


def grid(p: DesignProblem, planner: design.Planner, adult: Adult) -> dict[str, Any]:
    """Return the plan, its outcome, and where that lies among all feasible pairs' outcomes."""
    plan = design.plan(p, planner, RATE if planner == "poisson" else None)
    rounds, tau = (array.astype(int).tolist() for array in _some(p, plan))
    noise: design.Zcdp | design.Poisson = design.Zcdp(p, formulas.scale(p.epsilon, p.delta))
    if planner == "poisson":
        noise = design.Poisson(p, RATE, max(R * t for R, t in zip(rounds, tau, strict=True)))
        noise.exact(plan.K)
    outcomes = []
    for R, t in zip(rounds, tau, strict=True):
        z = math.sqrt(float(noise.squares(np.array([float(R * t)]))[0]))
        outcomes.append(adult.train(p, R, t, z))
    ours = next(
        outcome for outcome in outcomes if (outcome.rounds, outcome.tau) == (plan.rounds, plan.tau)
    )
    best = min(outcomes, key=lambda outcome: outcome.loss)
    per_tau = {
        t: min(outcome.loss for outcome in outcomes if outcome.tau == t) for t in sorted(set(tau))
    }
    return {
        "planner": planner,
        "epsilon": p.epsilon,
        "resource": p.resource,
        "c1": p.c1,
        "lr": p.lr,
        "pairs": len(outcomes),
        "plan": asdict(ours),
        "best": asdict(best),
        "pairs_better": sum(outcome.loss < ours.loss for outcome in outcomes) / len(outcomes),
        "gap": (ours.loss - best.loss) / best.loss,
        "gap_of_progress": (ours.loss - best.loss) / (math.log(2) - best.loss),
        "loss_of_tau": per_tau,
    }


def _some(p: DesignProblem, plan: design.DesignedRun) -> tuple[Any, Any]:
    """Return about a hundred of the pairs.

    They are at most twelve τ, and at most eleven R at each, with the last of both and the plan.
    """
    rounds, tau = design.pairs(p)
    last = np.array([rounds[tau == t].max() for t in tau])
    mask = (tau.max() - tau) % math.ceil(tau.max() / 12) == 0
    mask &= (last - rounds) % np.ceil(last / 11) == 0
    mask |= (rounds == plan.rounds) & (tau == plan.tau)
    return rounds[mask], tau[mask]


def cost(root: Path) -> None:
    """Measure c1 and c2 with two devices, plan with them, run the plan, and compare: in seconds, in
    bytes.

    A shared machine drifts by tens of percent within minutes. So all three runs are repeated in
    turns, and the time of a round is the median over the turns. This judges the cost model, not the
    minute in which each run happened to fall.
    """
    p = replace(ADULT, devices=2)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "adult.toml"
        file.write_text(
            as_run_file(p, design.plan(p), "adult", "logistic", "natural"), encoding="utf-8"
        )
        first = [round_cost.one_run(file, tau, ROUNDS, 2, root) for tau in (1, 20)]
        seconds, _ = round_cost.solve(first, None)
        plan = design.plan(
            replace(
                p, c1=seconds.c1, c2=seconds.c2, resource=ROUNDS * (seconds.c1 + 8 * seconds.c2)
            )
        )
        print(f"plan: {plan.rounds} rounds of {plan.tau}")
        taus = (1, 20, plan.tau)
        turns = [
            [round_cost.one_run(file, tau, plan.rounds, 2, root) for tau in taus]
            for _ in range(TURNS)
        ]
    for turn in turns:
        _compare(turn, plan)
    print(f"median of {TURNS} turns:")
    _compare([_median(runs) for runs in zip(*turns, strict=True)], plan)


def _median(runs: Sequence[round_cost.RoundCost]) -> round_cost.RoundCost:
    seconds, sizes = (
        statistics.median(getattr(run, name) for run in runs) for name in ("seconds", "bytes")
    )
    return replace(runs[0], seconds=seconds, bytes=sizes)


def _compare(turn: list[round_cost.RoundCost], plan: design.DesignedRun) -> None:
    """Print what `turn`'s first two runs predict of the plan, and what its third spent."""
    for unit, each in zip(
        round_cost.solve(turn[:2], None), (turn[2].seconds, turn[2].bytes), strict=True
    ):
        predicted = unit.c1 * plan.rounds + unit.c2 * plan.K
        spent = each * plan.rounds
        print(
            f"{unit.unit}: predicted {predicted:.6g}, spent {spent:.6g} "
            f"({spent / predicted - 1:+.1%})",
            flush=True,
        )


def main() -> None:
    """Run `cost` or `grid`: write out/planner.json, and print a line for every setting."""
    torch.set_num_threads(1)
    root = Path(os.environ["TACIT_DATA"])
    if sys.argv[1:] == ["cost"]:
        cost(root)
        return
    adult = Adult(root)
    rows = []
    for p in (replace(base, epsilon=epsilon) for base in SETTINGS for epsilon in (1.0, 10.0)):
        for planner in ("corrected", "poisson"):
            row = grid(p, planner, adult)
            rows.append(row)
            print(
                json.dumps({key: value for key, value in row.items() if key != "loss_of_tau"}),
                flush=True,
            )
    OUT.parent.mkdir(exist_ok=True)
    OUT.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
