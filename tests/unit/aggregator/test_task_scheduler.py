"""The scheduler in front of the downlink.

Nobody has a task before the run begins, nor ahead of its share.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
from tacit_services.aggregator.downlink import Downlink
from tacit_services.aggregator.task_scheduler import TaskScheduler, scheduler_of

from tacit import config
from tacit.algorithms import registry
from tacit.algorithms.base.server import ServerRole
from tacit.protocol import topics
from tacit.protocol._pb import wire_pb2 as pb
from tacit.protocol.messages import Hello, Outgoing, Retired, Update
from tests.conftest import ROOT
from tests.helpers.run_files import Layer, run_file

RUN: Layer = {
    "run": {"updates": 60},
    "privacy": {"noise_multiplier": 1.0, "clip": 1.0},
    "edges": {"count": 3},
}


class Gated:
    """A role, its scheduler, and a clock that is set by hand."""

    def __init__(
        self, edges: str = "", name: str = "mapa", more: str = "", role: ServerRole | None = None
    ) -> None:
        self.run = run_file(RUN, {"algorithm": more, "edges": edges}, algorithm={"name": name})
        self.role = role or registry.server(self.run.define(), self.run.build_model())
        self.presence: dict[str, str] = {}
        self.shut: set[str] = set()
        self.now = 0.0
        self.scheduler = scheduler_of(
            self.run.define(), self.role, self.presence, lambda: self.shut, lambda: self.now
        )

    def hello(self, edge: str) -> bool:
        """Bring `edge` online, and return whether it is given a task."""
        self.presence[edge] = "online"
        return self._said(Hello(edge, 8.0, 1e-5, "gaussian", 0.1, 0.1, 10.0, ()))

    def push(self, edge: str) -> bool:
        """Push as `edge`, and return whether it is given its next task."""
        self.now += 0.01
        return self._said(Update(edge, self.role.version, torch.zeros(self.role.largest), 1.0, ()))

    def _said(self, message: Hello | Update) -> bool:
        self.role.on_message(message)
        self.scheduler.heard(message.edge, update=isinstance(message, Update))
        return self.scheduler.admits(message.edge) or message.edge in self.scheduler.due()


def test_nobody_has_a_task_before_all_are_there_and_then_everybody_has() -> None:
    gated = Gated()
    assert [gated.hello(edge) for edge in ("edge-0", "edge-1")] == [False, False]
    assert (gated.scheduler.due(), gated.scheduler.needed) == ([], 3)
    assert gated.hello("edge-2")
    assert sorted(gated.scheduler.due()) == ["edge-0", "edge-1"]
    assert gated.scheduler.needed == 0


def test_edges_min_begins_with_so_many() -> None:
    gated = Gated("min = 2")
    assert [gated.hello(edge) for edge in ("edge-0", "edge-1", "edge-2")] == [False, True, True]


def test_the_operator_begins_the_run_with_those_that_are_there() -> None:
    gated = Gated()
    assert [gated.hello(edge) for edge in ("edge-0", "edge-1")] == [False, False]
    gated.scheduler.begin()
    assert sorted(gated.scheduler.due()) == ["edge-0", "edge-1"]
    assert gated.scheduler.needed == 0
    assert gated.hello("edge-2")


def test_after_the_wait_the_run_begins_with_those_that_are_there() -> None:
    gated = Gated("wait = 5.0")
    assert not gated.hello("edge-0")
    assert not gated.hello("edge-1")
    gated.presence["edge-1"] = "offline"
    gated.now = 5.0
    assert gated.scheduler.due() == ["edge-0"]


def test_asking_again_changes_nothing() -> None:
    gated = Gated()
    assert not gated.hello("edge-0")
    assert not any(gated.hello("edge-0") for _ in range(5))


def test_an_edge_ahead_waits_until_the_other_has_caught_up() -> None:
    gated = Gated("min = 2")
    gated.hello("edge-0"), gated.hello("edge-1"), gated.scheduler.due()
    assert [gated.push("edge-0"), gated.push("edge-0")] == [
        True,
        False,
    ]  # the slack of so short a run is two turns
    assert not gated.hello("edge-0")  # asking does not help
    assert gated.scheduler.due() == []
    assert gated.push("edge-1")
    assert gated.scheduler.due() == ["edge-0"]


@pytest.mark.parametrize("away", ["offline", "left", "refusing", "retired", "quarantined"])
def test_nobody_waits_for_an_edge_that_cannot_push(away: str) -> None:
    gated = Gated("min = 2")
    gated.hello("edge-0"), gated.hello("edge-1"), gated.scheduler.due()
    if away == "retired":
        gated.role.on_message(Retired("edge-1", "budget", ()))
    elif away == "quarantined":
        gated.shut.add("edge-1")
    else:
        gated.presence["edge-1"] = away
    assert all(gated.push("edge-0") for _ in range(20))


@pytest.mark.parametrize(
    ("edges", "name", "more"),
    [
        ('share = "any"', "mapa", ""),
        ("", "fedasync", "concurrency = 2"),
    ],  # a queue is a rule of its own
)
def test_without_the_rule_nobody_waits_once_the_run_has_begun(
    edges: str, name: str, more: str
) -> None:
    gated = Gated(f"min = 1\n{edges}", name, more)
    assert gated.hello("edge-0")
    assert gated.hello("edge-1")
    assert all(gated.push("edge-0") for _ in range(20))


def test_a_run_that_has_begun_does_not_wait_anew_and_keeps_its_accounts() -> None:
    gated = Gated("min = 2")
    gated.hello("edge-0"), gated.hello("edge-1"), gated.scheduler.due()
    gated.push("edge-1"), gated.push("edge-0"), gated.push("edge-0")
    restarted = Gated(role=gated.role)  # a successor that has folded the same
    restarted.scheduler.resume()
    assert restarted.scheduler.needed == 0
    assert restarted.hello("edge-1")
    assert [restarted.hello("edge-0"), restarted.push("edge-0")] == [True, False]


def test_a_message_from_before_the_restart_begins_the_run() -> None:
    gated = Gated()
    assert not gated.hello("edge-0")  # that it had a task already, this process does not know
    assert gated.push("edge-0")


def test_rounds_peers_and_parties_have_an_open_gate() -> None:
    for file, open_one in (
        ("fedavg-cifar10-cnn", True),
        ("adp2sgd-digits", True),
        ("mapa-digits", False),
    ):
        run = config.load(ROOT / "experiments" / f"{file}.toml")
        role = registry.server(run.define(), run.build_model())
        assert (type(scheduler_of(run.define(), role, {}, frozenset)) is TaskScheduler) == open_one


def test_who_is_held_back_has_its_receipt_and_no_model() -> None:
    gated, sent = Gated(), []

    class Wire:
        @property
        def connection(self) -> Wire:
            return self

        def publish(self, topic: str, payload: bytes, *, retain: bool = False) -> None:
            sent.append(topic)

    wired: Any = Wire()
    down = Downlink("run", b"s" * 32, 1 << 18, wired, gated.scheduler)
    gated.hello("edge-0")
    down.reply(
        Outgoing("edge-0", gated.role.global_model()), 1, pb.Receipt(status=pb.Receipt.ACCEPTED)
    )
    down.reply(
        Outgoing("edge-0", gated.role.global_model())
    )  # to a question about a message that was accepted before
    assert sent == [topics.down("run", "edge-0", "receipt")]
    gated.hello("edge-1"), gated.hello("edge-2")
    down.reply(Outgoing("edge-0", gated.role.global_model()))
    assert sent[1:] == [topics.down("run", "edge-0", "model", 0)]
