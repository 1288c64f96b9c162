"""Private additive boosting: what is counted, what a step does, and what a run file may leave out."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from tacit import config
from tacit.algorithms import registry
from tacit.algorithms.ebm.ebm_server import EbmServer
from tacit.algorithms.ebm.histogram_steps import Prior, rows_of_bins
from tacit.errors import ConfigError
from tacit.models.additive import AdditiveModel
from tacit.models.bins import category_column, number_column
from tacit.privacy.private_sum.rounded_sums import room
from tacit.protocol.messages import GlobalModel, Hello, Update

RUN = """
[data]
kind = "table"
train = "site{edge}.csv"
target = "outcome"
rows = 400
[data.columns]
age = { low = 0, high = 100 }
job = { values = ["cook", "nurse"] }
outcome = OUTCOME
[algorithm]
name = "ebm"
[edges]
count = 3
[privacy]
epsilon = 1.0
"""
OUTCOMES = {
    2: '{ values = ["home", "ward"] }',
    3: '{ values = ["a", "b", "c"] }',
    0: "{ low = 0, high = 10 }",
}


def server(labels: int = 2) -> EbmServer:
    run = config.parse(RUN.replace("OUTCOME", OUTCOMES[labels]), "test").define()
    role = registry.server(run, run.build_model())
    assert isinstance(role, EbmServer)
    return role


def greet(role: EbmServer, edge: str = "edge-0") -> GlobalModel:
    hello = Hello(edge, 1.0, 1e-5, "discrete_gaussian", 1.0, 0.1, 100.0, ())
    (out,) = role.on_message(hello)
    assert isinstance(out.message, GlobalModel)
    return out.message


def answered(role: EbmServer, task: GlobalModel, x: torch.Tensor, y: torch.Tensor) -> Update:
    """Return what an edge would send without noise: its clipped gradients' sum, made shorter."""
    model = role._model
    values = model.residuals(task.params, x, y).dense(model.size).astype(np.float64)
    lengths = np.linalg.norm(values, axis=1, keepdims=True)
    clipped = values * np.minimum(1.0, role.clip / np.maximum(lengths, 1e-12))
    plan = role._plans.named("edge-0")
    shorter = room(plan, model.most_entries)
    vector = -clipped.sum(0) * shorter / plan.batch
    return Update("edge-0", task.version, torch.from_numpy(vector).float(), role.clip, ())


def rows(labels: int, count: int = 300) -> tuple[torch.Tensor, torch.Tensor]:
    chance = torch.Generator().manual_seed(1)
    x = torch.rand(count, 4, generator=chance)
    x[:, 1:] = torch.eye(3)[torch.randint(3, (count,), generator=chance)]
    if not labels:
        return x, x[:, 0]
    return x, (x[:, 0] * labels).long()


@pytest.mark.parametrize("labels", [0, 2, 3])
def test_the_first_releases_count_the_rows_of_each_bin_and_class(labels: int) -> None:
    role = server(labels)
    x, y = rows(labels)
    task = greet(role)
    for _ in range(role._counts_needed):
        (out,) = role.on_message(answered(role, task, x, y))
        assert isinstance(out.message, GlobalModel)
        task = out.message
    bins = role._model.bins_of(x)
    for label in range(role._model.classes):
        mine = bins[y.numpy() == label] if labels else bins
        exact = np.bincount(mine.ravel(), minlength=role._model.width)
        assert np.allclose(role.counts[label].numpy(), exact, atol=1e-2)
    if labels:  # the model begins with the classes' shares
        shares = torch.softmax(role._model.logits(role.params, x[:1]), 1)[0]
        expected = torch.bincount(y, minlength=labels) / len(y)
        assert torch.allclose(shares, expected, atol=1e-3)


def test_a_second_answer_to_a_task_that_counted_counts_nothing() -> None:
    role = server()
    x, y = rows(2)
    task = greet(role)
    role.on_message(answered(role, task, x, y))
    once = role.counts
    role.on_message(answered(role, task, x, y))
    assert torch.equal(role.counts, once)
    assert role.version == 2
    assert role.steps == 0


@pytest.mark.parametrize("labels", [0, 2, 3])
def test_steps_lead_to_a_function_of_the_column_that_matters(labels: int) -> None:
    role = server(labels)
    x, y = rows(labels, 3000)
    model = role._model
    task = greet(role)
    before = float(model.data_loss(model.logits(role.params, x), y).mean())
    while role.steps < 40:
        (out,) = role.on_message(answered(role, task, x, y))
        assert isinstance(out.message, GlobalModel)
        task = out.message
    after = float(model.data_loss(model.logits(role.params, x), y).mean())
    assert after < 0.75 * before
    scores = role.params.view(model.classes, -1)[-1]
    age, job = scores[:32], scores[32:35]
    assert age.max() - age.min() > 3 * (job.max() - job.min())


def test_at_the_end_no_residual_is_cut() -> None:
    role = server()
    x, y = rows(2)
    task = greet(role)
    clips = []
    while not role.halted:
        clips.append((role.version, task.clip))
        out = role.on_message(answered(role, task, x, y))[-1]
        if isinstance(out.message, GlobalModel):
            task = out.message
    assert {clip for version, clip in clips if version < 43} == {0.7}
    assert {clip for version, clip in clips if version > 43} == {2**0.5}
    shares = role._model.logits(role.params, x).softmax(1).mean(0)
    assert torch.allclose(shares, torch.bincount(y) / len(y), atol=0.02)


def test_where_noise_hides_the_rows_the_preflight_says_so() -> None:
    text = RUN.replace("OUTCOME", OUTCOMES[2])
    few = text.replace("rows = 400", "rows = 60")
    settings = [config.parse(each, "test") for each in (text, few)]
    plenty, hidden = (run.algorithm.hindered(run.plan(0)) for run in settings)
    assert plenty == []
    assert hidden is not None
    assert "little is learnt" in hidden[0]


def test_a_late_update_weighs_less() -> None:
    role = server()
    assert role._weight(6, 3) == 1.0
    assert role._weight(12, 3) == 0.5


def test_its_equations_are_solved() -> None:
    columns = (number_column("a", 0, 5, 0, 1), category_column("b", 1, ("x", "y"), 2))
    model = AdditiveModel("additive", (3,), 2, columns=columns, labels=2)
    prior = Prior(model, 0.7, 0.2)
    chance = np.random.default_rng(1)
    more = chance.uniform(0.5, 2, model.width)
    right = chance.normal(size=(2, model.width))
    solution = prior.solved(more, right)
    assert np.allclose(prior.times(solution) + more * solution, right)
    whole = np.diag(prior.diagonal) + np.diag(prior.above[:-1], 1) + np.diag(prior.above[:-1], -1)
    assert np.allclose(whole @ solution[0], prior.times(solution)[0])
    assert prior.above[4] == 0  # no column's bin is another column's neighbour
    assert not prior.above[5:].any()  # nor are categories each other's


def test_no_bin_has_fewer_rows_than_none_and_every_column_has_all() -> None:
    columns = (number_column("a", 0, 5, 0, 1), category_column("b", 1, ("x", "y"), 2))
    model = AdditiveModel("additive", (3,), 2, columns=columns, labels=2)
    counted = np.array([50.0, -30.0, 20.0, 0.0, 40.0, 70.0, 35.0, -3.0, 100.0])
    rows_ = rows_of_bins(model, counted, 10.0)
    assert (rows_ > 0).all()
    assert rows_[:5].sum() == pytest.approx(100)
    assert rows_[5:8].sum() == pytest.approx(100)


def test_a_run_file_may_leave_out_all_but_its_data_and_its_budget() -> None:
    run = config.parse(RUN.replace("OUTCOME", OUTCOMES[2]), "test")
    assert (run.model.name, run.run.updates) == ("additive", 3 * 18)
    assert (run.privacy.batch, run.privacy.clip, run.privacy.pushes) == (400, 0.7, 20)
    assert run.plan(0).sampling_rate == 1
    stated = RUN.replace("OUTCOME", OUTCOMES[2]) + '[model]\nname = "additive"\n[run]\nupdates=54\n'
    assert config.parse(stated, "test").fingerprint() == run.fingerprint()


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ('[model]\nname = "logistic"', "model.name=logistic: ebm learns a function"),
        ("batch = 20", "privacy.batch=20: every row is read"),
        ('[model]\nname = "additive"\nhidden = [3]', "hidden"),
    ],
)
def test_what_it_does_not_do_is_refused(more: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        config.parse(RUN.replace("OUTCOME", OUTCOMES[2]) + more, "test")


def test_a_text_has_no_columns(tmp_path: Path) -> None:
    text = 'data.dataset = "wikitext-2"\nalgorithm.name = "ebm"\n'
    with pytest.raises(ConfigError, match="additive"):
        config.parse(text, "test").define().build_model()
