"""The observer of peers: reports folded into a model, a counter and ledgers.

It can be restored, and it ends.
"""

from __future__ import annotations

import pytest
import torch

from tacit.algorithms import registry
from tacit.algorithms.gossip.adp2sgd import Peer
from tacit.algorithms.gossip.allreduce import SyncPeer
from tacit.algorithms.gossip.report_fold import GRACE, QUIET, ReportFold
from tacit.config import RunFile
from tacit.datasets import Dataset
from tacit.errors import ConfigError
from tacit.privacy.accounting import Spend
from tacit.privacy.ledger import Charged, Ledger
from tacit.privacy.noise.randomness import Random
from tacit.privacy.release import Releaser
from tacit.protocol.messages import EVERYONE, SERVER, Deadline, Halt, Hello, Report, Timer, Update
from tests.helpers.run_files import Layer
from tests.helpers.run_files import run_file as made

FILE: Layer = {
    "run": {"updates": 100},
    "privacy": {"batch": 32, "noise_multiplier": 1.0, "clip": 1.0},
}


def run_file(
    name: str = "adp2sgd", mechanism: str = "gaussian", count: int = 4, more: str = ""
) -> RunFile:
    return made(
        FILE,
        more,
        algorithm={"name": name},
        privacy={"mechanism": mechanism},
        edges={"count": count},
    )


RUN = run_file()
MODEL = RUN.build_model()


def report_fold(*edges: str) -> ReportFold:
    fold = registry.server(RUN.define(), MODEL)
    assert isinstance(fold, ReportFold)
    for edge in edges:
        fold.on_message(Hello(edge, 2.0, 1e-5, "gaussian", 0.1, 0.1, 100.0, ()))
    return fold


def update(edge: str, version: int, steps: int, value: float) -> Update:
    spent = (Spend(0.1, 1.0, steps),)
    return Update(
        edge,
        version,
        torch.full((MODEL.size,), value),
        0.0,
        spent,
        Charged(steps, bytes(32)),
        steps,
    )


def test_the_model_is_the_mean_of_the_models_as_last_reported() -> None:
    fold = report_fold("edge-0", "edge-1")
    for report in (
        update("edge-0", 3, 2, 1.0),
        update("edge-1", 4, 2, 3.0),
        update("edge-0", 8, 4, 5.0),
    ):
        assert fold.on_message(report) == []
    assert torch.equal(fold.params, torch.full((MODEL.size,), 4.0))
    assert fold.version == 8
    assert {name: record.updates for name, record in fold.edges.items()} == {
        "edge-0": 4,
        "edge-1": 2,
    }
    assert fold.schedule()["disagreement"] == pytest.approx(MODEL.size**0.5)


def test_a_peer_may_know_more_of_the_counter_but_must_have_said_hello() -> None:
    fold = report_fold("edge-0")
    assert fold.screen(update("edge-0", 50, 1, 1.0)) is None
    assert fold.screen(update("edge-1", 0, 1, 1.0)) == "unknown"


def test_the_run_ends_when_all_have_said_their_last_and_nothing_more_comes() -> None:
    fold = report_fold("edge-0", "edge-1")
    for report in (
        update("edge-0", 100, 50, 1.0),
        update("edge-1", 100, 50, 3.0),
        update("edge-0", 100, 50, 2.0),
    ):
        assert fold.on_message(report) == []  # the last: a neighbour's exchange has changed it
        assert (fold.version, fold.halt_reason) == (99, "")
    assert fold.timer() == Timer(3, QUIET)
    assert fold.on_message(Deadline(2)) == []
    (out,) = fold.on_message(Deadline(3))
    assert (out.to, type(out.message)) == (EVERYONE, Halt)
    assert fold.version == 100
    assert torch.equal(fold.params, torch.full((MODEL.size,), 2.5))


def test_a_peer_that_is_away_at_the_end_is_waited_for_a_while() -> None:
    fold = report_fold("edge-0", "edge-1")
    assert fold.timer() is None
    fold.on_message(update("edge-0", 100, 50, 1.0))
    assert fold.timer() == Timer(1, GRACE)
    fold.on_message(Deadline(1))
    assert (fold.version, fold.halt_reason) == (100, "all updates applied")


def test_it_continues_from_its_state_to_the_same_bits() -> None:
    first = report_fold("edge-0", "edge-1")
    first.on_message(update("edge-0", 7, 4, 0.1))
    again = report_fold()
    again.restore(*first.state())
    for fold in (first, again):
        fold.on_message(update("edge-1", 9, 3, 0.7))
    assert torch.equal(first.params, again.params)
    assert (first.version, first.final) == (again.version, again.final)


# -- roles and the run file ------------------------------------------------------------------------


def role(run: RunFile) -> Peer | SyncPeer:
    rows = Dataset(torch.zeros(40, 1, 8, 8), torch.zeros(40, dtype=torch.int64), 10, "digits")
    peer_role = registry.edge(
        run.define(),
        "edge-1",
        rows,
        run.build_model(),
        Releaser(run.plan(1), Ledger(":memory:", "d"), Random()),
    )
    assert isinstance(peer_role, Peer | SyncPeer)
    return peer_role


def test_a_run_file_becomes_its_peers() -> None:
    peer = role(RUN)
    assert isinstance(peer, Peer)
    assert peer.neighbours == {"edge-0", "edge-2"}
    assert (peer.settings.horizon, peer.settings.clip) == (100, 1.0)
    sync = role(run_file("sync"))
    assert isinstance(sync, SyncPeer)
    assert sync.neighbours == {"edge-0", "edge-2", "edge-3"}


def test_a_report_says_the_end_only_when_nothing_can_follow() -> None:
    peer = role(RUN)
    assert isinstance(peer, Peer)

    def said() -> int:
        (out,) = peer.report()
        assert out.to == SERVER
        assert isinstance(out.message, Report)
        return out.message.version

    peer.here = {"edge-2"}
    peer.links["edge-2"].open = True
    peer.counts["edge-0"] = 120
    assert said() == 99
    peer.links["edge-2"].open = False
    assert said() == 100


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"name": "adp2sgd", "mechanism": "none"}, "adp2sgd is with noise"),
        ({"name": "adpsgd"}, "adpsgd without"),
        ({"mechanism": "paper"}, "MAPA's paper's"),
        ({"count": 1}, "two peers at least"),
        ({"more": "[algorithm.x]"}, "unknown key"),
    ],
)
def test_a_contradiction_is_one_line(changes: dict[str, str], why: str) -> None:
    with pytest.raises(ConfigError, match=why) as refusal:
        run_file(**changes)  # type: ignore[arg-type]
    assert "\n" not in str(refusal.value)


def test_a_torus_of_seven_is_refused_with_the_run_file() -> None:
    with pytest.raises(ConfigError, match="no torus"):
        run_file("adp2sgd", count=7, more='algorithm.topology = "torus"')


def test_a_report_of_what_cannot_be_is_refused() -> None:
    fold = report_fold("peer-0")
    size = fold.params.numel()
    assert fold.screen(Update("peer-0", 101, torch.zeros(size), 1.0, ())) == "version"
    assert fold.screen(Update("peer-0", 100, torch.full((size,), 3e38), 1.0, ())) == "norm"
    assert fold.screen(Update("peer-0", 100, torch.zeros(size), 1.0, ())) is None
