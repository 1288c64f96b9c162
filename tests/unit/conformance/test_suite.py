"""The suite of `tacit conform algorithm`: it passes a right algorithm, and catches broken ones."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pytest
from tacit_services.conformance import made_up
from tacit_services.conformance.check_result import NonconformanceError
from tacit_services.conformance.played_run import Rehearsal
from tacit_services.conformance.suite import CHECKS, attacks, conform, conformance_subject

from tacit import config
from tacit.algorithms import LocalStepsTask
from tacit.audit.mutants import LessNoise
from tacit.errors import ConfigError
from tacit.privacy.release import Releaser

RUN = """
[run]
updates = 12
[data]
dataset = "digits"
[model]
name = "logistic"
[edges]
count = 2
[privacy]
epsilon = 8.0
batch = 32
[algorithm]
entry = "{module}:Own"
learning_rate = 0.5
"""
# A server with momentum. Each broken one replaces a part of it.
RIGHT = """
import datetime, itertools, math, random
import torch
from tacit.algorithms import AlgorithmServer, AlgorithmSettings, LocalStepsTask, ServerAlgorithm

class OwnSettings(AlgorithmSettings):
    learning_rate: float = 0.1

COUNT = itertools.count()

class OwnServer(AlgorithmServer):
    saved = ("momentum", "count")

    def begin(self):
        self.momentum = torch.zeros_like(self.params)
        self.count = 0

    def step(self, update, tau):
        self.count += 1
        self.momentum = 0.9 * self.momentum + update.vector
        self.move(self.params - self.settings.learning_rate * self.momentum)

class Own(ServerAlgorithm):
    settings = OwnSettings
    role = OwnServer
"""
# An edge whose local steps follow a rule.
RULED = """
import datetime, gc
import torch
from tacit.algorithms import (
    AlgorithmServer, AlgorithmSettings, LocalRule, OwnStepsTask, ServerAlgorithm,
)

class Rule(LocalRule):
    def __init__(self, rate):
        self.rate = rate
        self.velocity = 0.0

    def step(self, params, gradient, start, number):
        self.velocity = 0.5 * self.velocity + gradient
        return params - self.rate * self.velocity

class OwnSettings(AlgorithmSettings):
    learning_rate: float = 0.1

    def computes(self):
        return OwnStepsTask(entry="{module}:Rule", steps=2, keys={{"rate": self.learning_rate}})

class OwnServer(AlgorithmServer):
    def step(self, update, tau):
        self.move(self.params + update.vector)

class Own(ServerAlgorithm):
    settings = OwnSettings
    role = OwnServer
"""
# What a rule must not do, in the place of its step's last line.
BROKEN_RULES = {
    "peeks": """
        if not hasattr(self, "rows"):
            self.rows = [each for each in gc.get_objects() if type(each).__name__ == "EdgeRows"]
        return params - self.rate * self.velocity + 1e-6 * sum(each.y.sum() for each in self.rows)
""",
    "dated": """
        return params - self.rate * self.velocity / datetime.date.today().year
""",
}
TAKEN = "self.momentum = 0.9 * self.momentum + update.vector"
BROKEN = {
    "not-saved": ('("momentum", "count")', '("count",)', {"snapshots", "kills"}),
    "draws": (
        TAKEN,
        TAKEN + " * random.random()",
        {"schedule", "replay", "replay in another process", "snapshots", "kills", "simulator"},
    ),
    "shared": (
        "self.count += 1",
        "self.count = next(COUNT)",
        {"schedule", "replay", "snapshots", "kills", "simulator"},
    ),
    "hashes": (
        TAKEN,
        TAKEN + " * (hash(update.edge) % 1000003 / 1000003)",
        {"replay in another process"},
    ),
    "dated": (TAKEN, TAKEN + " * datetime.date.today().year", {"replay in another process"}),
    "writes": (TAKEN, "self.momentum.mul_(0.9).add_(update.vector)", {"tensors"}),
    "no-number": (
        "class Own(",
        "    def learning_rate(self):\n        return float('nan')\n\nclass Own(",
        {"schedule"},
    ),
}


def rehearsal(folder: Path, module: str, code: str) -> Rehearsal:
    (folder / f"{module}.py").write_text(code)
    return Rehearsal(config.parse(RUN.format(module=module), "test", folder=folder), 1)


def failed(rehearsal: Rehearsal, checks: Iterable[str] = ()) -> set[str]:
    return {result.name for result in conform(rehearsal, checks) if result.why is not None}


def test_a_right_algorithm_passes(tmp_path: Path) -> None:
    assert failed(rehearsal(tmp_path, "right", RIGHT)) == set()


def test_the_algorithm_of_questions_passes_on_rows_that_are_made_up(tmp_path: Path) -> None:
    run = made_up.questions(tmp_path)
    played = Rehearsal(run, 1, made_up.rows_of(run, tmp_path))
    assert failed(played) == set()
    assert played.server.version == len(played.pushes) == 3


def test_own_rows_are_no_rehearsal(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="is somebody's own"):
        Rehearsal(made_up.questions(tmp_path), 1)


@pytest.mark.parametrize("saved", [True, False])
def test_a_nan_is_the_same_nan_after_a_snapshot(saved: bool, tmp_path: Path) -> None:
    names = '("momentum", "count", "trace")' if saved else '("momentum", "count")'
    code = (
        RIGHT.replace('("momentum", "count")', names)
        .replace(
            "self.count = 0", "self.count = math.nan; self.trace = torch.tensor([math.nan, 0])"
        )
        .replace("self.count += 1", "self.count += 1; self.trace = self.trace + 1")
    )
    played = rehearsal(tmp_path, f"nan_{saved}", code)
    assert failed(played, ["snapshots", "tensors"]) == (set() if saved else {"snapshots"})


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_one_is_caught(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    old, new, failing = BROKEN[name]
    assert RIGHT.count(old) == 1
    monkeypatch.setenv("PYTHONHASHSEED", "0")
    broken = rehearsal(tmp_path, f"broken_{name.replace('-', '_')}", RIGHT.replace(old, new))
    assert failed(broken, failing) == failing


def test_a_push_that_was_not_paid_is_caught(tmp_path: Path) -> None:
    played = rehearsal(tmp_path, "paid", RIGHT)
    assert failed(played, ["door", "epsilon"]) == set()
    role, push, before, _ = played.pushes[3]
    played.pushes[3] = role, push, before, before
    with pytest.raises(NonconformanceError, match="paid 0 releases"):
        CHECKS["door"](played)


def test_a_right_rule_of_local_steps_passes(tmp_path: Path) -> None:
    played = rehearsal(tmp_path, "ruled", RULED.format(module="ruled"))
    assert failed(played, ["door", "epsilon", "rule"]) == set()


@pytest.mark.parametrize("name", BROKEN_RULES)
def test_a_rule_that_looks_at_more_than_it_is_given_is_caught(name: str, tmp_path: Path) -> None:
    moved = "\n        return params - self.rate * self.velocity\n"
    code = RULED.format(module=f"ruled_{name}")
    assert code.count(moved) == 1
    played = rehearsal(tmp_path, f"ruled_{name}", code.replace(moved, BROKEN_RULES[name]))
    (result,) = conform(played, ["rule"])
    assert "step 0 of the rule differs" in (result.why or "")


@pytest.mark.parametrize(("releaser", "good"), [(Releaser, True), (LessNoise, False)])
def test_a_message_that_shows_a_row_is_caught(releaser: type[Releaser], good: bool) -> None:
    task = LocalStepsTask(steps_min=2)
    subject = conformance_subject(task, "discrete_gaussian").but(releaser=releaser)
    assert all(finding.good for finding in attacks(subject)) == good


def test_a_rule_that_makes_no_version_is_refused(tmp_path: Path) -> None:
    still = RIGHT.replace("        self.move(", "        (")
    with pytest.raises(ConfigError, match="does each step, or the last of them, call move once"):
        failed(rehearsal(tmp_path, "still", still))


def test_what_is_no_algorithm_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="is no algorithm"):
        rehearsal(tmp_path, "no_algorithm", "def Own(): pass")
