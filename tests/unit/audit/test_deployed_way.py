"""The audit attacks the edge that `tacit edge` makes, computing in the way that it computes.

An exception in that way fails the audit: else its attacks would speak of another edge.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tacit_services.cli.audit import host
from tacit_services.identity.folder import Identity
from tacit_services.settings import EdgeSettings
from tacit_services.testbed import simulated_run
from tacit_services.worker.row_owner import RowOwner
from torch import nn

from tacit import config
from tacit.algorithms.base.edge import EdgeRole
from tacit.algorithms.base.gradient_edge import GradientEdge
from tacit.algorithms.gossip.adp2sgd import Peer
from tacit.algorithms.gossip.allreduce import SyncPeer
from tacit.algorithms.least_squares.moments_edge import MomentsEdge
from tacit.audit import own_modules, whole
from tacit.audit.adapters import make
from tacit.audit.asked_edge import AskedSource, AskedSubject
from tacit.audit.asked_worlds import TOGETHER
from tacit.audit.judged_edge import JudgedSource, JudgedSubject
from tacit.audit.judged_worlds import TWO
from tacit.audit.moments_attack import MomentsSource, MomentsSubject
from tacit.audit.mutants import OTHERS, SAMPLED
from tacit.audit.own_modules import Gated, Raising, RecurrentUnit, model_of
from tacit.audit.subject import NARROW, Randomness, Subject
from tacit.audit.whole import ALGORITHMS, HONEST, SAMPLED_TESTS, audit
from tacit.audit.worlds import opposed_world, quiet_world
from tacit.config import parse
from tacit.config.algorithm_entries import BUILT_IN
from tacit.config.definition import Definition
from tacit.errors import ConfigError, ServiceError
from tacit.kernels.loading import library
from tacit.models.graph.frozen_module import FrozenModule
from tacit.models.trusted_module import TrustedModule
from tacit.privacy.ledger import Ledger
from tacit.privacy.private_sum.judged_sums import JudgedSums
from tacit.privacy.private_sum.moment_sums import MomentSums
from tacit.privacy.private_sum.row_by_row import GraphSums
from tacit.privacy.private_sum.row_sums import RowSums
from tacit.privacy.private_sum.rows_alone import RowsAlone
from tacit.privacy.private_sum.whole_sums import WholeSums
from tacit.privacy.release import PRIVATE
from tests.helpers.run_files import toml

compiled = pytest.mark.skipif(
    library() is None and not os.environ.get("CI"), reason="numba is not installed"
)
ALONE = "drawn rows alone"
WITHOUT_NOISE = ("asgd", "csgd", "sgd", "adpsgd")
# Those that release of all rows have tests of their own after this one, or in test_histograms.py.
ELSEWHERE = (*WITHOUT_NOISE, "vafl", "ask", "least-squares", "ebm")
NAMES = [name for name in BUILT_IN if name not in ELSEWHERE]
PEERS = ("adp2sgd", "sync")
# Tests of what has no kernels: what is deployed in slots, as units of several rows, and a graph.
WITHOUT_KERNELS = ("places", "places in a graph", "own", "raising", "person", "dealt", "people")
REFUSED = ("orders",)  # an honest edge computes nothing on such orders


class Broken(Exception):
    """What the broken way raises: no error of tacit's, which an attack might take for an answer."""


def run(name: str, mechanism: str) -> Definition[Any]:
    return parse(
        f"""
        run.updates = 5
        data.dataset = "digits"
        model.name = "logistic"
        edges.count = 2
        algorithm.name = "{name}"
        privacy.mechanism = "{mechanism}"
        """,
        "test",
    ).define()


def deployed(definition: Definition[Any], folder: Path) -> EdgeRole:
    """Return an edge's role, as `tacit edge` and `tacit peer` make it with their own settings."""
    settings = EdgeSettings(run_file=str(folder / "run.toml"))
    owner = RowOwner(settings.data, settings.device, settings.policy, settings.rows_alone)
    ledger = Ledger(":memory:", "digits")
    with closing(ledger), open(os.devnull, "rb") as lock:  # noqa: PTH123  (a device)
        identity = Identity(0, folder, lock)
        return owner.role(definition, definition.build_model(), identity, ledger)


def way(role: EdgeRole) -> str:
    """Return how the role computes, and why, without its number of slots, which the plan states."""
    return role.private_sum.way.rpartition(" slots: ")[2]


def audited(kind: type[EdgeRole], mechanism: str) -> EdgeRole:
    """Return the audit's own edge of this class."""
    for subject in (*HONEST, *ALGORITHMS):
        variant = subject.but(mechanism=mechanism)
        role = make(variant, quiet_world(NARROW).records(canary=True), Randomness(1)).edge
        if type(role) is kind:
            return role
    raise AssertionError(f"{kind} is not audited")


@pytest.mark.parametrize("mechanism", PRIVATE)
@pytest.mark.parametrize("name", NAMES)
def test_the_audits_way_is_the_deployed_way(name: str, mechanism: str, tmp_path: Path) -> None:
    definition = run(name, mechanism)
    role = deployed(definition, tmp_path)
    # A peer that averages with all of them shares its steps with one that averages in pairs.
    kind = Peer if type(role) is SyncPeer else type(role)
    assert way(audited(kind, mechanism)) == way(role)
    if library() is not None:
        assert (way(role) == ALONE) == (name not in PEERS)


def test_the_audited_edge_of_second_moments_is_the_deployed_one(tmp_path: Path) -> None:
    mine = MomentsSource(MomentsSubject(), Randomness(1))
    role = deployed(run("least-squares", "discrete_gaussian"), tmp_path)
    assert type(role) is type(mine.edge) is MomentsEdge
    assert type(role.private_sum) is type(mine.edge.moments) is MomentSums


def test_the_audited_edge_that_is_asked_is_the_deployed_one(tmp_path: Path) -> None:
    file = TOGETHER.write(tmp_path, TOGETHER.persons[0])
    definition = config.load(file).define()
    mine = AskedSource(AskedSubject(), Randomness(1), file, TOGETHER)
    role = deployed(definition, tmp_path)
    assert type(role) is type(mine.edge) is GradientEdge
    assert isinstance(role.private_sum, WholeSums)
    assert isinstance(mine.edge.private_sum, WholeSums)
    assert torch.equal(role.private_sum.x, mine.edge.private_sum.x)
    # All of its plan but for z, and for the budget, which an audit passes.
    plan, own = role.releaser.plan, mine.edge.releaser.plan
    assert replace(own, noise_multiplier=plan.noise_multiplier, epsilon=plan.epsilon) == plan


def test_the_audited_edge_that_judges_is_the_deployed_one(tmp_path: Path) -> None:
    mine = JudgedSource(JudgedSubject(), Randomness(1), tmp_path, TWO, TWO.persons[0], ":memory:")
    definition = config.load(tmp_path / "run.toml").define()
    role = deployed(definition, tmp_path)  # by a ledger of its own, so the sides are others
    assert type(role) is type(mine.edge) is GradientEdge
    assert way(role) == way(mine.edge)
    assert role.judge is not None
    assert mine.edge.judge is not None
    assert type(role.judge.sums) is type(mine.edge.judge.sums) is JudgedSums
    assert role.judge.sums.sheet == mine.edge.judge.sums.sheet == TWO.sheet
    for honest, own in ((role, mine.edge), (role.judge, mine.edge.judge)):
        plan, others = honest.releaser.plan, own.releaser.plan
        assert replace(others, noise_multiplier=plan.noise_multiplier, epsilon=plan.epsilon) == plan
        assert honest.releaser._cost().side == own.releaser._cost().side


@pytest.mark.parametrize("kind", [Gated, Raising, RecurrentUnit])
def test_the_audits_own_modules_are_computed_the_deployed_way(
    kind: type[nn.Module], tmp_path: Path
) -> None:
    shutil.copy(own_modules.__file__, tmp_path / "nets.py")
    rows = np.zeros((8, 2), dtype=np.float32), np.arange(8) % 2
    np.savez(tmp_path / "rows.npz", x=rows[0], y=rows[1])
    (tmp_path / "run.toml").write_text(
        toml(
            run={"updates": 5},
            data={"kind": "arrays", "train": "rows.npz", "shape": [2], "classes": 2, "rows": 8}
            | {"rows_max": 8, "low": 0.0, "high": 1.0, "dataset": None},
            model={"name": "python", "entry": f"nets:{kind.__name__}"}
            | ({"control_flow": "trusted"} if kind is Raising else {}),
            algorithm={"name": "mapa", "smoothness": 1.0, "deviation": 1.0},
            edges={"count": 1},
        )
    )
    role = deployed(config.load(tmp_path / "run.toml").define(), tmp_path)
    subject = HONEST[1].but(model=model_of(kind))
    mine = make(subject, opposed_world().records(canary=True), Randomness(1)).edge
    assert type(role) is type(mine)
    assert way(mine) == way(role).replace(role.model.name, "audit")
    assert type(mine.private_sum) is type(role.private_sum)
    expected = TrustedModule if kind is Raising else FrozenModule
    assert type(role.model) is type(mine.model) is expected
    assert (way(mine) == GraphSums.way) == (kind is RecurrentUnit)


@pytest.mark.parametrize("name", WITHOUT_NOISE)
def test_what_is_left_out_promises_nothing(name: str) -> None:
    with pytest.raises(ConfigError):
        run(name, "gaussian")


@pytest.mark.parametrize("subject", [*HONEST, *ALGORITHMS], ids=str)
@compiled
def test_no_honest_subject_asks_for_another_way(subject: Subject) -> None:
    assert subject.rows_alone
    assert subject.edge is None
    assert subject.ways is None


def test_only_the_simulator_asks_for_slots(tmp_path: Path) -> None:
    definition = run("mapa", "gaussian")
    part = simulated_run.rows_by_edge(definition, None)[0]
    role = simulated_run.edge(definition, definition.build_model(), 0, part)
    assert way(role) == "not asked for drawn rows alone"
    assert way(deployed(definition, tmp_path)) == (ALONE if library() else "numba is not installed")


# -- with the way replaced by an exception ---------------------------------------------------------


@pytest.fixture(params=[(RowSums, "sum"), (RowSums, "checked"), (RowsAlone, "compute")])
def broken(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Replace one function of the deployed way by one that only raises."""

    def raises(*args: object, **kwargs: object) -> None:
        raise Broken

    owner, name = request.param
    monkeypatch.setattr(owner, name, raises)


def attacks(subject: Subject) -> Mapping[str, Callable[[], object]]:
    """Return the audit's tests of this subject by name, each with few messages."""
    sampled = {
        name: partial(test, subject, Randomness(1), 8)
        for name, test in SAMPLED_TESTS.items()
        if name not in WITHOUT_KERNELS
    }
    structure = {
        name: partial(test, subject, Randomness(1))
        for name, test in whole._tests(host()).items()
        if name not in WITHOUT_KERNELS + REFUSED
    }
    return sampled | structure


@pytest.mark.usefixtures("broken")
@compiled
def test_the_whole_audit_ends_with_the_exception() -> None:
    with pytest.raises((Broken, ServiceError)):  # it forks first, and a child sends nothing
        list(audit(host(), PRIVATE, seed=1))


@pytest.mark.usefixtures("broken")
@compiled
def test_each_attack_on_an_edge_with_kernels_fails() -> None:
    stars = [subject for subject in ALGORITHMS if subject.algorithm not in PEERS]
    passed = []
    for subject in (HONEST[1], stars[0]):
        for name, attack in attacks(subject).items():
            try:
                attack()
            except Broken:
                continue
            passed.append(name)
    assert passed == []


def test_the_attack_on_a_graph_fails_where_its_sum_raises(monkeypatch: pytest.MonkeyPatch) -> None:
    def raises(*args: object, **kwargs: object) -> None:
        raise Broken

    monkeypatch.setattr(GraphSums, "sum", raises)
    with pytest.raises(Broken):
        SAMPLED_TESTS["places in a graph"](HONEST[1], Randomness(1), 8)


def test_mutants_of_a_graph_go_through_it_row_by_row() -> None:
    mutants = [subject for name, subject, _ in SAMPLED if name == "places in a graph"]
    assert len(mutants) == 3
    for mutant in mutants:
        subject = mutant.but(model=model_of(RecurrentUnit))
        role = make(subject, quiet_world(subject.model).records(canary=True), Randomness(1)).edge
        assert role.private_sum.way == GraphSums.way


@compiled
def test_mutants_of_drawn_rows_alone_are_drawn_rows_alone() -> None:
    mutants = [subject for _, subject, _ in SAMPLED] + [subject for _, subject in OTHERS]
    alone = [subject for subject in mutants if subject.compiled]
    assert len(alone) >= 8
    for subject in alone:
        role = make(subject, quiet_world(subject.model).records(canary=True), Randomness(1)).edge
        assert role.private_sum.way == ALONE
