"""Pairs of columns: what is searched for and counted, what is chosen, and what a run file may say."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import numpy as np
import pytest
import torch

from tacit import config
from tacit.algorithms import registry
from tacit.algorithms.ebm.noise_of_runs import NoiseOfRuns
from tacit.algorithms.ebm.pair_steps import PairPrior, without_columns
from tacit.algorithms.ebm.pairs_server import PairsServer
from tacit.algorithms.ebm.phases import LOOKS, Phases
from tacit.errors import ConfigError
from tacit.models.additive import AdditiveModel
from tacit.protocol.messages import GlobalModel
from tests.unit.algorithms.test_ebm import OUTCOMES, RUN, answered, greet

ROWS = 4000


def text(keys: str, labels: int = 2) -> str:
    columns = "age = { low = 0, high = 100 }\nheight = { low = 0, high = 100 }"
    written = RUN.replace("OUTCOME", OUTCOMES[labels]).replace("rows = 400", f"rows = {ROWS}")
    written = written.replace("age = { low = 0, high = 100 }", columns)
    return written.replace('name = "ebm"', f'name = "ebm"\n{keys}').replace(
        "count = 3", "count = 1"
    )


def server(keys: str, labels: int = 2) -> PairsServer:
    run = config.parse(text(keys, labels), "test").define()
    role = registry.server(run, run.build_model())
    assert isinstance(role, PairsServer)
    return role


def rows(labels: int = 2) -> tuple[torch.Tensor, torch.Tensor]:
    """Return rows whose target is high where the two numbers are on one side: neither alone."""
    chance = torch.Generator().manual_seed(1)
    x = torch.rand(ROWS, 5, generator=chance)
    x[:, 2:] = torch.eye(3)[torch.randint(3, (ROWS,), generator=chance)]
    together = 0.5 + 2 * (x[:, 0] - 0.5) * (x[:, 1] - 0.5)
    if not labels:
        return x, together
    drawn = torch.rand(ROWS, generator=chance) < together
    return x, drawn.long() * (labels - 1)


def trained(role: PairsServer, x: torch.Tensor, y: torch.Tensor) -> list[GlobalModel]:
    """Run to the end without noise, and return its tasks."""
    tasks = [greet(role)]
    while not role.halted:
        for out in role.on_message(answered(role, tasks[-1], x, y)):
            if isinstance(out.message, GlobalModel):
                tasks.append(out.message)
    return tasks


@cache
def searched(labels: int = 2) -> tuple[PairsServer, list[GlobalModel]]:
    role = server("interactions = 1", labels)
    return role, trained(role, *rows(labels))


@cache
def listed(labels: int = 2) -> PairsServer:
    role = server('pairs = [["height", "age"]]', labels)
    trained(role, *rows(labels))
    return role


def covered(role: PairsServer, task: GlobalModel) -> tuple[bool, ...]:
    return tuple((role._model.shares(task.params) > 0).tolist())


def test_an_edge_counts_steps_looks_counts_cells_and_steps_with_the_pair() -> None:
    role, tasks = searched()
    kinds = [covered(role, task) for task in tasks]
    columns, looks = (True,) * 3 + (False,) * 3 + (True,), (False,) * 3 + (True,) * 3 + (False,)
    cells, both = (False,) * 3 + (True,) + (False,) * 3, (True,) * 4 + (False, False, True)
    first = Phases.of(26).search
    assert kinds[:first] == [columns] * first
    assert kinds[first : first + LOOKS] == [looks] * LOOKS
    assert kinds[first + LOOKS : first + LOOKS + 2] == [cells] * 2
    assert set(kinds[first + LOOKS + 2 : -1]) == {both}
    assert [role._model.pairs[number].name for number in role.pairs] == ["age × height"]


@pytest.mark.parametrize("labels", [0, 2, 3])
@pytest.mark.parametrize("chosen", [True, False])
def test_rows_are_counted_in_the_cells_of_a_pair(chosen: bool, labels: int) -> None:
    role = searched(labels)[0] if chosen and labels < 3 else listed(labels)
    x, y = rows(labels)
    cells = role._model.bins_of(x)[:, 3]
    for label in range(role._model.classes):
        mine = cells[y.numpy() == label] if labels else cells
        exact = np.bincount(mine, minlength=role._model.width)[role._cells]
        assert np.allclose(role.counts[label].numpy()[role._cells], exact, atol=0.05)


@pytest.mark.parametrize("labels", [0, 2])
def test_a_pair_is_learnt_that_no_column_has_alone(labels: int) -> None:
    x, y = rows(labels)
    losses = []
    for role in (searched(labels)[0], listed(labels)):
        losses.append(float(role._model.data_loss(role._model.logits(role.params, x), y).mean()))
    alone = float((y - y.float().mean()).square().mean()) if not labels else 0.693
    assert max(losses) < (0.6 if not labels else 0.97) * alone


def test_where_no_pair_says_anything_none_is_chosen() -> None:
    role = server("interactions = 3")
    x, y = rows()
    tasks = trained(role, x, y[torch.randperm(ROWS, generator=torch.Generator().manual_seed(4))])
    assert role.looks_of
    assert role.pairs == []
    assert covered(role, tasks[-1]) == (True,) * 3 + (False,) * 3 + (True,)


def test_listed_pairs_are_covered_from_the_first_count_on() -> None:
    role = server('pairs = [["job", "age"]]')
    assert [(pair.first, pair.second) for pair in role._model.pairs] == [(0, 2)]
    assert covered(role, greet(role)) == (True,) * 5
    assert role.horizon == 18


def test_the_band_of_cells_is_of_runs_with_the_same_choice() -> None:
    role, _ = searched()
    read = role.bins_read()
    assert isinstance(read, NoiseOfRuns)
    again = read.again()
    assert isinstance(again, PairsServer)
    assert again._choice() == role.pairs == [0]
    known = replace(read, updates=24).deviations()
    assert known is not None
    cells = known[role._cells]
    assert (cells[:64] > 0.01).all()
    assert not cells[64:].any()  # of pairs that were not chosen
    assert read.rows[role._cells][:64].sum() == pytest.approx(ROWS, rel=1e-3)


def test_a_server_that_was_stopped_in_its_search_goes_on_with_the_same_bits() -> None:
    x, y = rows()
    roles = [server("interactions = 1") for _ in range(2)]
    task, _ = map(greet, roles)
    while not roles[0].halted:
        update = answered(roles[0], task, x, y)
        if roles[0].version == Phases.of(26).search + 1:
            roles[1].restore(*roles[0].state())
        if roles[0].version > Phases.of(26).search:
            roles[1].on_message(update)
        out = roles[0].on_message(update)[-1]
        if isinstance(out.message, GlobalModel):
            task = out.message
    assert torch.equal(roles[0].params, roles[1].params)
    assert roles[0].pairs == roles[1].pairs


def test_the_equations_of_cells_are_solved_and_columns_are_taken_out() -> None:
    model = server("interactions = 1")._model
    prior = PairPrior(model, (0, 1, 2), 1.0, 0.2)
    chance = np.random.default_rng(1)
    more, right = chance.uniform(0.5, 2, (3, 64)), chance.normal(size=(2, 3, 64))
    solution = prior.solved(more, right)
    assert np.allclose(prior.times(solution) + more * solution, right)
    dense = prior._matrix[0] + np.diag(more[0])
    gain = np.einsum("ci,ci", right[:, 0], np.linalg.solve(dense, right[:, 0].T).T)
    volume = np.linalg.slogdet(dense)[1] - np.linalg.slogdet(prior._matrix[0])[1]
    assert prior.evidence(more, right)[0] == pytest.approx((gain - 2 * volume) / 2)
    across, down = chance.uniform(size=(8, 1)), chance.uniform(size=(1, 8))
    shares = np.outer(chance.dirichlet(np.ones(8)), chance.dirichlet(np.ones(8)))
    of_columns = (shares * (across + down)).reshape(1, 1, 64)
    assert np.allclose(without_columns(of_columns, shares.reshape(1, 64)), 0, atol=1e-9)


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ('pairs = [["age", "weight"]]', "'weight': is no column"),
        ('pairs = [["age", "age"]]', "name two different columns"),
        ("interactions = 21", "less than or equal to 20"),
        ('interactions = 1\n[model]\nname = "additive"\n[run]\nseed=1', None),
    ],
)
def test_pairs_that_cannot_be_learnt_are_refused(keys: str, message: str | None) -> None:
    if message is None:
        assert isinstance(server(keys)._model, AdditiveModel)
        return
    with pytest.raises(ConfigError, match=message):
        server(keys)


def test_more_pairs_than_can_be_told_apart_are_refused() -> None:
    settings = config.parse(text("interactions = 5"), "test").algorithm
    assert len(settings.pairs_of([str(number) for number in range(25)])) == 300
    with pytest.raises(ConfigError, match=r"26 columns have 325 pairs.*algorithm.pairs"):
        settings.pairs_of([str(number) for number in range(26)])


@pytest.mark.parametrize(
    ("keys", "epsilon", "hinted"),
    [
        ("interactions = 5", "1.0", True),
        ("interactions = 5", "2.0", False),
        ('pairs = [["age", "job"]]', "1.0", False),
    ],
)
def test_the_preflight_says_where_a_search_finds_little(
    keys: str, epsilon: str, hinted: bool
) -> None:
    run = config.parse(text(keys).replace("epsilon = 1.0", f"epsilon = {epsilon}"), "test")
    hints = run.algorithm.hindered(run.plan(0))
    assert hints is not None
    assert any("needs no search" in sentence for sentence in hints) == hinted


def test_pairs_need_exact_sums() -> None:
    with pytest.raises(ConfigError, match="pairs of columns need exact sums"):
        config.parse(text("interactions = 5") + 'mechanism = "gaussian"', "test")
