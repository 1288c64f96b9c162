"""Fair participation.

When a run begins, who takes turns while others wait, and that nobody stands still.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from tacit_services.aggregator import participation
from tacit_services.aggregator.participation import LEASE, LOOK, SLOW, Shares, Start

from tacit import config
from tacit.errors import ConfigError
from tests.conftest import ROOT

ALL = ("a", "b", "c", "d", "e")


# -- the beginning ---------------------------------------------------------------------------------


def test_a_run_begins_when_all_that_are_needed_are_there() -> None:
    start = Start(3, 60.0)
    assert [begins(start, present, float(present)) for present in range(4)] == [False] * 3 + [True]
    assert start.needed == 0


def test_a_run_begins_with_fewer_after_the_wait_which_begins_with_the_first_edge() -> None:
    start = Start(3, 60.0)
    assert not begins(start, 0, 1000.0)  # an aggregator may be there long before
    assert not begins(start, 1, 1001.0)
    assert not begins(start, 2, 1060.9)
    assert start.needed == 3
    assert begins(start, 2, 1061.0)


def test_a_run_never_begins_with_nobody_and_never_waits_again() -> None:
    start = Start(3, 60.0)
    begins(start, 1, 0.0)
    assert not begins(start, 0, 100.0, listed=1)  # it has left
    assert begins(start, 1, 101.0)
    assert begins(start, 0, 102.0, listed=1)


def test_those_that_are_there_are_not_counted_before_there_could_be_enough() -> None:
    start, counted = Start(3, 60.0), []
    for edges_known in (1, 2, 2, 3):
        start.look(edges_known, lambda: counted.append(1) or 3, 0.0)  # type: ignore[func-returns-value]
    assert len(counted) == 1


def test_who_waits_is_looked_at_once_in_a_while_that_grows_with_the_edges() -> None:
    shares = Shares(lambda edge: 1.0, 2.0, lambda edge: True)
    for number in range(80):
        assert shares.begin(f"edge-{number}", 0.0)
    shares.ready([], 0.0)
    assert not shares.look_due(79 * LOOK)
    assert shares.look_due(80 * LOOK)
    for number in range(9):
        shares.end(f"edge-{number}", 0.0)
    assert not shares.look_due(0.0)
    shares.end("edge-9", 0.0)  # an eighth of them
    assert shares.look_due(0.0)
    shares.ready([], 0.0)
    assert not shares.look_due(0.0)


def begins(start: Start, present: int, now: float, listed: int = 0) -> bool:
    return start.look(max(present, listed), lambda: present, now)


# -- shares, in a world of virtual time ------------------------------------------------------------


@dataclass
class World:
    """Edges whose turns take `seconds`; `gone` are online and silent.

    `run` gives the turns that each has had.
    """

    seconds: dict[str, Callable[[], float]]
    slack: float = 5.0
    weight: Callable[[str], float] = lambda edge: 1.0
    present: set[str] = field(default_factory=set)
    now: float = 0.0
    turns: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        self.present |= set(self.seconds)
        self.shares = Shares(self.weight, self.slack, self.present.__contains__)
        self.events: list[tuple[float, str]] = []
        self.held: list[str] = []
        self.join(self.seconds)

    def join(self, edges: Iterable[str]) -> None:
        for edge in edges:
            self.present.add(edge)
            self._ask(edge)

    def _ask(self, edge: str) -> None:
        if self.shares.begin(edge, self.now):
            heapq.heappush(self.events, (self.now + self.seconds[edge](), edge))
        else:
            self.held.append(edge)

    def run(self, until: float) -> Counter[str]:
        """Run the events up to `until`.

        An edge that is held is asked about four times a second, and after every event.
        """
        before = Counter(self.turns)
        while self.now < until:
            step = min(self.now + 0.25, until)
            if self.events and self.events[0][0] <= step:
                self.now, edge = heapq.heappop(self.events)
                if edge in self.present:
                    self.turns[edge] += 1
                    self.shares.end(edge, self.now)
                    self._ask(edge)
            else:
                self.now = step
            for edge in self.shares.ready(self.held, self.now) if self.held else []:
                self.held.remove(edge)
                self._ask(edge)
        return self.turns - before


def steady(seconds: float) -> Callable[[], float]:
    return lambda: seconds


def test_edges_a_little_quicker_than_others_take_no_more_than_their_share() -> None:
    world = World(
        {
            "a": steady(0.010),
            "b": steady(0.012),
            "c": steady(0.015),
            "d": steady(0.018),
            "e": steady(0.019),
        }
    )
    had = world.run(20.0)
    assert max(had.values()) - min(had.values()) <= world.slack + 1


def test_without_the_rule_they_would() -> None:  # the world shows what is forbidden
    world = World({"a": steady(0.010), "b": steady(0.019)}, slack=1e9)
    had = world.run(20.0)
    assert had["a"] > 1.8 * had["b"]


@pytest.mark.parametrize("slow", [1, 3])
def test_a_straggler_ten_times_slower_costs_the_others_nothing(slow: int) -> None:
    seconds = {edge: steady(0.1 if number < slow else 0.01) for number, edge in enumerate(ALL)}
    alone = World({edge: steady(0.01) for edge in ALL[slow:]}).run(30.0)
    had = World(seconds).run(30.0)
    for edge in ALL[slow:]:
        assert had[edge] >= 0.98 * alone[edge]
    for edge in ALL[:slow]:
        assert had[edge] >= 290  # as many turns as it can take


def test_an_edge_that_is_silent_from_the_start_holds_others_for_one_lease() -> None:
    had = World({"a": steady(1e9), "b": steady(0.01), "c": steady(0.01)}).run(30.0)
    assert min(had["b"], had["c"]) >= (30.0 - LEASE - 0.3) / 0.01


def test_an_edge_that_hangs_holds_others_for_no_longer_than_a_lease() -> None:
    stall = {"a": 0.01}
    world = World({"a": lambda: stall["a"], "b": steady(0.01), "c": steady(0.01)})
    world.run(5.0)
    stall["a"] = 1e9
    had = world.run(35.0)
    assert min(had["b"], had["c"]) >= (30.0 - LEASE - 0.3) / 0.01


def test_an_edge_that_goes_offline_holds_nobody() -> None:
    world = World({edge: steady(0.01) for edge in ALL})
    world.run(5.0)
    world.present.discard("a")
    had = world.run(15.0)
    assert min(had[edge] for edge in ALL[1:]) >= 995
    assert not had["a"]


def test_an_edge_that_is_quick_and_then_stalls_again_and_again_costs_others_no_more_than_half() -> (
    None
):
    turn = [0]

    def stalling() -> float:
        turn[0] += 1
        return LEASE - 0.01 if turn[0] % 33 == 0 else 0.01

    had = World({"a": stalling, "b": steady(0.01), "c": steady(0.01), "d": steady(0.01)}).run(60.0)
    assert had["b"] >= 60.0 / 0.01 / SLOW


def test_who_joins_late_has_its_share_of_what_is_left_and_no_burst() -> None:
    world = World({edge: steady(0.02) for edge in ALL})
    world.run(10.0)
    world.seconds["late"] = steady(0.01)  # and is twice as quick
    world.join(["late"])
    soon = world.run(11.0)
    assert soon["late"] <= soon["a"] + world.slack + 1
    had = world.run(30.0)
    assert abs(had["late"] - had["a"]) <= world.slack + 1


def test_joiners_with_a_tenth_of_the_rows_take_a_tenth_of_the_turns() -> None:
    light = {"x": steady(0.01), "y": steady(0.01), "z": steady(0.01)}  # twice as quick
    world = World(
        {edge: steady(0.02) for edge in ALL} | light,
        weight=lambda edge: 0.1 if edge in light else 1.0,
        slack=20.0,
    )
    had = world.run(40.0)
    for edge in light:
        assert had[edge] == pytest.approx(had["a"] / 10, abs=3)
    assert had["a"] >= 0.98 * 40.0 / 0.02  # and the others lose nothing


def test_who_comes_back_makes_up_for_no_more_than_the_slack() -> None:
    world = World({edge: steady(0.02) for edge in ALL})
    world.run(5.0)
    world.present.discard("a")
    world.run(15.0)
    world.seconds["a"] = steady(0.01)
    world.shares.end("a", world.now)  # the push that it had ready
    world.join(["a"])
    had = world.run(30.0)
    assert had["a"] <= had["b"] + 2 * world.slack + 1


def test_asking_again_does_not_renew_the_lease() -> None:
    world = World({"b": steady(0.01), "c": steady(0.01)})
    world.present.add("a")
    assert world.shares.begin("a", 0.0)
    for second in range(60):
        world.run(0.5 * (second + 1))
        assert world.shares.begin("a", world.now)  # the same task again, for who asks by Hello
    assert world.turns["b"] >= (30.0 - LEASE - 0.5) / 0.01


def test_a_restart_goes_on_where_the_kept_counts_are() -> None:
    shares = Shares(lambda edge: 1.0, 5.0, lambda edge: True)
    shares.resume({"a": 100, "b": 98, "c": 3})
    assert shares.begin("b", 0.0)
    assert shares.begin("c", 0.0)
    assert shares.accounts["b"].level == 98
    assert shares.accounts["c"].level == 99 - 5  # of what it has missed, the slack


# -- nothing stands still, whatever happens --------------------------------------------------------


@settings(max_examples=60, deadline=None)
@given(
    seconds=st.lists(st.sampled_from((0.005, 0.01, 0.02, 0.1, 1.0, 7.0)), min_size=2, max_size=6),
    weights=st.lists(st.sampled_from((0.1, 0.25, 1.0, 4.0)), min_size=6, max_size=6),
    slack=st.sampled_from((2.0, 5.0, 25.0)),
)
def test_everybody_who_answers_has_turns(
    seconds: list[float], weights: list[float], slack: float
) -> None:
    names = [f"edge-{number}" for number in range(len(seconds))]
    world = World(
        dict(zip(names, map(steady, seconds), strict=True)),
        slack=slack,
        weight=lambda edge: weights[int(edge.removeprefix("edge-"))],
    )
    had = world.run(60.0)
    for name in names:
        assert had[name] >= 1


class Liveness(RuleBasedStateMachine):
    """Edges that come, push, hang, go and come back in any order.

    An edge that is there may always have a task.
    """

    @initialize(slack=st.sampled_from((2.0, 10.0)))
    def begin(self, slack: float) -> None:
        self.present: set[str] = set()
        self.busy: set[str] = set()
        self.now = 0.0
        self.shares = Shares(
            lambda edge: 0.25 if edge == "e" else 1.0, slack, self.present.__contains__
        )

    def _ask(self) -> None:
        self.busy.update(
            edge for edge in sorted(self.present - self.busy) if self.shares.begin(edge, self.now)
        )
        self.busy.update(self.shares.ready(sorted(self.present - self.busy), self.now))

    @rule(edge=st.sampled_from(ALL))
    def come(self, edge: str) -> None:
        self.present.add(edge)
        self._ask()

    @rule(edge=st.sampled_from(ALL))
    def go(self, edge: str) -> None:
        self.present.discard(edge)
        self._ask()

    @precondition(lambda self: self.busy & self.present)
    @rule(data=st.data(), seconds=st.sampled_from((0.001, 0.01, 0.1, 3.0)))
    def push(self, data: st.DataObject, seconds: float) -> None:
        edge = data.draw(st.sampled_from(sorted(self.busy & self.present)))
        self.now += seconds
        self.busy.discard(edge)
        self.shares.end(edge, self.now)
        self._ask()

    @rule(seconds=st.sampled_from((0.1, 1.0, 10.0)))
    def pass_by(self, seconds: float) -> None:
        self.now += seconds
        self._ask()

    @invariant()
    def somebody_works(self) -> None:
        assert not self.present or self.busy & self.present

    @invariant()
    def nobody_is_held_longer_than_a_lease_by_who_is_silent(self) -> None:
        if self.present - self.busy:
            usual = self.shares._usual
            waited = [
                a.since for e, a in self.shares.accounts.items() if e in self.busy & self.present
            ]
            assert max(waited) >= self.now - max(LEASE, participation.LEASES * usual)


TestLiveness = Liveness.TestCase
TestLiveness.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)


# -- what the run file says ------------------------------------------------------------------------


def digits(**edges: str) -> config.RunFile:
    text = (ROOT / "experiments" / "mapa-digits.toml").read_text()
    lines = "\n".join(f"{key} = {value}" for key, value in edges.items())
    return config.parse(f"{text}\n[edges]\n{lines}\n", "test")


def test_the_slack_is_a_twentieth_of_what_an_edge_does_in_the_run() -> None:
    assert participation.slack(2500, [1.0] * 5) == 2500 / 5 / 20


def test_rows_are_public_ones_and_a_budget_is_the_run_files() -> None:
    elastic = config.load(ROOT / "experiments" / "mapa-mnist-cnn-elastic.toml").define()
    assert [
        elastic.weight(name) for name in ("edge-0", "edge-4", "edge-5", "edge-7", "stranger")
    ] == [1, 1, *[0.1] * 3]
    by_budget = digits(epsilon="[8.0, 2.0]", share='"budget"').define()
    assert [by_budget.weight(f"edge-{number}") for number in range(3)] == [2.0, 0.5, 1.0]
    assert digits().define().weight("stranger") == 1.0


@pytest.mark.parametrize(
    ("file", "edges", "message"),
    [
        ("mapa-digits", "min = 6", "edges.min=6 is above edges.count=5; more than will ever come"),
        ("mapa-digits", "min = 0", "edges.min=0"),
        ("mapa-digits", "wait = -1.0", "edges.wait=-1.0"),
        ("mapa-digits", 'share = "luck"', "edges.share='luck'"),
        ("mapa-digits-none", 'share = "budget"', "edges.share=budget: privacy.mechanism=none"),
    ],
)
def test_what_cannot_work_is_refused_in_one_line(file: str, edges: str, message: str) -> None:
    text = (ROOT / "experiments" / "mapa-digits.toml").read_text()
    if file.endswith("none"):
        text = text.replace('name = "mapa"', 'name = "asgd"').replace(
            "[privacy]", '[privacy]\nmechanism = "none"'
        )
    with pytest.raises(ConfigError) as refused:
        config.parse(f"{text}\n[edges]\n{edges}\n", "test")
    assert message in str(refused.value)
    assert "\n" not in str(refused.value)
