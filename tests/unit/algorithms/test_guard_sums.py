"""The guard's sums in a fold: who is accused counts no more, and a replay knows the same."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
import torch
from torch import Tensor

from tacit.algorithms import registry
from tacit.algorithms.base.server import ServerRole
from tacit.config import RunFile
from tacit.errors import ConfigError
from tacit.protocol.messages import GlobalModel, Hello, LiftQuarantine, Update
from tacit.robust import rules
from tests.golden.harness import sha256
from tests.helpers.run_files import run_file

GUARD = {"sums": True, "agreement": True}
LOCAL: dict[str, Any] = {"learning_rate": 0.5}
ALGORITHMS: dict[str, dict[str, Any]] = {
    "mapa": {},
    "fedasync": {"name": "fedasync", "steps_min": 2} | LOCAL,
    "fedbuff": {"name": "fedbuff", "steps_min": 2, "buffer": 5} | LOCAL,
    "fedavg": {"name": "fedavg", "steps_min": 2} | LOCAL,
    "dp-pasgd": {"name": "dp-pasgd", "tau": 2} | LOCAL,
}


def run(name: str, **guard: Any) -> RunFile:
    of_mapa = {"name": "mapa", "smoothness": 1.0, "deviation": 1.0} if name == "mapa" else {}
    return run_file(
        run={"updates": 1000},
        edges={"count": 5},
        privacy={"noise_multiplier": 1.0, "clip": 1.0, "batch": 32, "epsilon": 100.0},
        algorithm=of_mapa | ALGORITHMS[name],
        guard=guard or GUARD,
    )


def hello(edge: str) -> Hello:
    return Hello(edge, 100.0, 1e-5, "discrete_gaussian", 1.0, 0.1, 100.0, ())


@dataclass
class World:
    """A server, and edges that send noise of the law about their base, each in its turn."""

    role: ServerRole
    messages: list[Any]
    random: torch.Generator
    last: list[Any] = field(default_factory=list)  # what came of the latest message

    def say(self, message: Any) -> list[Any]:
        self.messages.append(message)
        self.last = self.role.on_message(message)
        return self.last

    def turn(self, edge: str, lie: Callable[[Tensor], Tensor] = lambda led: led) -> None:
        """Send one update on the newest model."""
        role = self.role
        mine = Update(edge, role.version, role.params, role.clip, ())
        base = role.base(mine) if edge not in role.accused else role.params
        noise = torch.randn(base.shape, generator=self.random) * role.law(mine).deviation
        self.say(Update(edge, role.version, base + lie(noise), role.clip, ()))


def world(name: str, **guard: Any) -> World:
    definition = run(name, **guard).define()
    federation = World(
        registry.server(definition, definition.build_model()), [], torch.Generator().manual_seed(1)
    )
    for number in range(5):
        federation.say(hello(f"edge-{number}"))
    return federation


@pytest.mark.parametrize("name", ALGORITHMS)
def test_an_honest_edge_is_heard_and_one_that_lies_is_not(name: str) -> None:
    here = world(name)
    for _ in range(6):
        for number in range(5):
            here.turn(f"edge-{number}", (lambda led: 10 * led) if number == 3 else lambda led: led)
    assert set(here.role.accused) == {"edge-3"}
    assert "too long" in here.role.accused["edge-3"]
    assert here.role.kept_out == 6
    assert here.role.edges["edge-3"].updates == 0
    assert here.role.on_message(hello("edge-3")) == []
    assert torch.linalg.vector_norm(here.role.params) < 1e3


@pytest.mark.parametrize("name", ALGORITHMS)
def test_a_snapshot_anywhere_and_a_replay_end_in_the_same_bits(name: str) -> None:
    here = world(name)
    for turn in range(4):
        for number in range(5):
            lie = (lambda led: 0 * led + 0.01) if number == 1 and turn else (lambda led: led)
            here.turn(f"edge-{number}", lie)
    here.say(LiftQuarantine("edge-1"))
    here.turn("edge-1")
    definition = run(name).define()
    for cut in range(0, len(here.messages) + 1, 6):
        first, second = (registry.server(definition, definition.build_model()) for _ in range(2))
        for message in here.messages[:cut]:
            first.on_message(message)
        second.restore(*first.state())
        for message in here.messages[cut:]:
            second.on_message(message)
        assert sha256(second) == sha256(here.role)


@pytest.mark.parametrize(("name", "moves"), [("mapa", 4), ("fedasync", 4), ("dp-pasgd", 1)])
def test_who_works_against_the_others_takes_no_turns_of_theirs(name: str, moves: int) -> None:
    # Given five edges of one mind but for one, whose mean is turned,
    here = world(name)
    role = here.role
    assert role.watch is not None
    law = role.law(Update("edge-0", 0, role.params, role.clip, ()))
    mean = torch.zeros_like(role.params)
    mean[0] = law.pull * law.rows / 3
    answers: list[str] = []
    for _ in range(40):
        before = role.version
        for number in range(5):
            sign = -1.0 if number == 3 else 1.0
            here.turn(f"edge-{number}", lambda led, sign=sign: led + sign * mean)  # type: ignore[misc]
            answers += [out.to for out in here.last if number == 3]
    # then it is told apart, and asked again and again, but the model moves by the others' alone.
    assert role.accused == {}
    assert role.discounted == {"edge-3"}
    assert role.version - before == moves
    # A round waits for it, so there it counts, for little.
    assert ("edge-3" in answers[-1:]) == (role.kept_out > 0) == role.one_by_one


@pytest.mark.parametrize("against", [1, 2])
@pytest.mark.parametrize("name", ALGORITHMS)
def test_whatever_edges_send_within_the_law_all_are_asked_on(name: str, against: int) -> None:
    # Given five edges, of which some work against the others, then others of them, then anything,
    here = world(name)
    role, random = here.role, torch.Generator().manual_seed(against)
    law = role.law(Update("edge-0", 0, role.params, role.clip, ()))
    axes = torch.nn.functional.normalize(torch.randn(3, len(role.params), generator=random))
    ever: set[str] = set()
    for phase in range(3):
        signs = torch.randint(-1, 2, (5, 3), generator=random).float()
        if phase < 2:
            signs = torch.tensor([[1.0, 0.0, 0.0]]).repeat(5, 1)
            signs[torch.randperm(5, generator=random)[:against]] *= -1
        means = signs @ axes * (law.pull * law.rows / 3)
        for _ in range(10):
            for number in range(5):
                here.turn(f"edge-{number}", lambda led, mean=means[number]: led + mean)  # type: ignore[misc]
        # then the guard sees who does, and shuts out nobody;
        assert role.accused == {}
        ever |= role.discounted
    assert len(ever) >= against
    # everybody is asked for more.
    for number in range(5):
        here.turn(f"edge-{number}")
        addressees = {out.to for out in here.last}
        assert not role.one_by_one or addressees == {f"edge-{number}"}
    assert role.one_by_one or addressees == {f"edge-{number}" for number in range(5)}


def test_a_release_lets_the_edge_begin_anew() -> None:
    here = world("mapa")
    here.turn("edge-0", lambda led: 10 * led)
    assert here.role.accused.keys() == {"edge-0"}
    (out,) = here.say(LiftQuarantine("edge-0"))
    assert isinstance(out.message, GlobalModel)
    here.turn("edge-0")
    assert here.role.accused == {}
    assert here.role.edges["edge-0"].updates == 1
    assert here.say(LiftQuarantine("edge-0")) == []


def test_without_a_majority_the_run_ends_and_says_who() -> None:
    here = world("mapa")
    for number in range(3):
        here.turn(f"edge-{number}", lambda led: 10 * led)
    assert here.role.halt_reason.startswith("no majority of honest edges (edge-0: ")
    assert all(f"edge-{number}" in here.role.halt_reason for number in range(3))


def test_a_round_does_not_wait_for_who_is_accused() -> None:
    here = world("dp-pasgd")
    for number in range(5):
        here.turn(f"edge-{number}", (lambda led: 10 * led) if number == 4 else lambda led: led)
    assert here.role.version == 1


def test_a_base_that_is_no_longer_held_is_stale() -> None:
    here = world("fedasync", sums=True)
    role = here.role
    role.models = {5: role.params}  # type: ignore[attr-defined]
    role.version = 7
    assert role.admits(Update("edge-0", 5, role.params, role.clip, ()), 2)
    assert not role.admits(Update("edge-0", 4, role.params, role.clip, ()), 3)


def test_the_rule_makes_a_rounds_model() -> None:
    mean, median = (world("fedavg", rule=rule) for rule in ("mean", "median"))
    for here in (mean, median):
        for number in range(5):
            here.say(Update(f"edge-{number}", 0, torch.full((650,), float(number**3)), 1.0, ()))
    assert mean.role.params[0] == pytest.approx(20.0)
    assert median.role.params[0] == 8.0


@pytest.mark.parametrize(
    ("name", "guard", "message"),
    [
        ("mapa", {"agreement": True}, "set guard.sums = true"),
        ("mapa", {"rule": "median"}, 'guard.rule="median": mapa takes updates one by one'),
        ("fedavg", {"trim": 2}, 'rule=mean trims nothing; say "trimmed"'),
    ],
)
def test_contradictions_are_refused(name: str, guard: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        run(name, **guard)


def test_a_rule_holds_no_more_updates_than_it_may(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rules, "MOST", 5)
    assert run("fedbuff", rule="median").guard.rule == "median"
    monkeypatch.setattr(rules, "MOST", 4)
    with pytest.raises(ConfigError, match=r"fedbuff combines 5 updates.* at most 4"):
        run("fedbuff", rule="median")
    assert run("fedbuff").guard.rule == "mean"


def test_what_decides_the_model_is_in_a_runs_name_and_no_edges_business() -> None:
    plain, sums = run("mapa", burst=9, false_alarm=1e-6), run("mapa", sums=True)
    assert run("mapa", rate=5.0).fingerprint() == plain.fingerprint() != sums.fingerprint()
    assert sums.agreed() == plain.agreed()
