"""A vertical run file: what it means, and what it must not say."""

from __future__ import annotations

import math
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import torch
from tacit_services.worker.outbox import Outbox

from tacit import config
from tacit.algorithms import registry
from tacit.algorithms.vafl import vertical_settings
from tacit.algorithms.vafl.vertical_settings import vertical
from tacit.config import RunFile
from tacit.datasets import Dataset
from tacit.errors import BudgetSpent, ConfigError
from tacit.privacy.accounting import gdp
from tacit.privacy.ledger import Ledger
from tacit.privacy.ledger.simulated import SimulatedLedger
from tacit.privacy.noise.randomness import Random
from tacit.privacy.release.embeddings import EmbeddingReleaser
from tests.helpers.run_files import run_file as base_run_file
from tests.helpers.vafl_rig import run_file

EXPERIMENTS = sorted(
    (Path(__file__).parent.parent.parent.parent / "experiments").glob("vafl-*.toml")
)


def private(mode: str, **changes: Any) -> RunFile:
    document = run_file(algorithm=f'mode = "{mode}"').model_dump()
    document["privacy"] |= {"mechanism": "gaussian", "epsilon": 8.0, "pushes": 9} | changes
    return RunFile.model_validate(document)


@pytest.mark.parametrize("file", EXPERIMENTS, ids=lambda path: path.stem)
def test_every_experiment_is_a_valid_run(file: Path) -> None:
    run = config.load(file)
    assert run.build_model().shape[0] == run.edges.count
    assert vertical(run.define()).plan(0).epsilon > 0


@pytest.mark.parametrize("mode", ["cached", "fresh"])
def test_the_noise_is_calibrated_exactly_for_the_releases_of_one_record(mode: str) -> None:
    plan = vertical(private(mode).define()).plan(0)
    mu = 3 / plan.noise_multiplier  # pushes = 9
    assert gdp.epsilon(mu, plan.delta) == pytest.approx(8.0, rel=1e-6)
    assert plan.std == pytest.approx(2 * plan.bound * plan.noise_multiplier)


def test_a_party_that_learns_unprotected_can_pay_for_so_many_uploads_and_no_more() -> None:
    run = private("trained")
    plan, batch = vertical(run.define()).plan(0), round(run.privacy.batch)
    releaser = EmbeddingReleaser(plan, SimulatedLedger(), Random(1), 10 * batch)

    def upload(number: int) -> None:
        rows = torch.arange(batch) + number % 10 * batch
        releaser.release(rows, lambda: torch.zeros(batch, 2))
        releaser.step(rows, lambda: torch.zeros(1, 2))

    for number in range(9):  # pushes
        upload(number)
    with pytest.raises(BudgetSpent):
        upload(9)
    paid = run.algorithm.traits(4).capacity(run.privacy.pushes, "edge", 4)
    assert paid == 36  # four parties; every upload is an iteration


def test_dp_sgd_gives_half_of_mu_squared_to_each() -> None:
    plan = vertical(private("dp_sgd").define()).plan(0)
    mu = math.sqrt(9 / plan.noise_multiplier**2 + 9 / plan.step_multiplier**2)
    assert gdp.epsilon(mu, plan.delta) == pytest.approx(8.0, rel=1e-6)


def test_a_stated_noise_is_taken_and_a_party_may_have_its_own_budget() -> None:
    run = private("fresh", noise_multiplier=4.0).model_dump()
    run["edges"]["epsilon"] = [1.0]
    parsed = RunFile.model_validate(run)
    assert vertical(parsed.define()).plan(0).noise_multiplier == 4.0
    assert [vertical(parsed.define()).plan(party).epsilon for party in (0, 1)] == [1.0, 8.0]


def test_synchronous_means_all_parties_on_common_batches() -> None:
    protocol = vertical(run_file(synchronous=True).define()).protocol
    assert (protocol.t, protocol.coordinated, protocol.steps.t) == (4, True, 4)


def test_max_delay_is_the_theorems_d() -> None:
    run = run_file(
        algorithm='max_delay = 9\nsteps_rule = "theorem_1"\nsmoothness = 2.0\nscale = 1e6'
    )
    assert vertical(run.define()).protocol.steps.party(0) == 1 / (4 * 10 * 2.0)


def test_every_client_may_have_its_own_regularizer() -> None:
    run = run_file(algorithm="regularization = [0.1, 0.2, 0.3, 0.4]")
    assert [vertical(run.define()).regularization(party) for party in range(4)] == [
        0.1,
        0.2,
        0.3,
        0.4,
    ]
    assert vertical(run_file(algorithm="regularization = [0.1]").define()).regularization(3) == 0.1


@pytest.mark.parametrize(
    ("section", "values", "key"),
    [
        ("privacy", {"mechanism": "discrete_gaussian"}, "privacy.mechanism=discrete_gaussian"),
        ("privacy", {"mechanism": "gaussian", "noise_at": "server"}, "at the party"),
        ("privacy", {"mechanism": "paper"}, "privacy.noise_multiplier"),
        ("algorithm", {"t": 5}, "algorithm.t=5"),
        (
            "algorithm",
            {"t": 2, "synchronous": True},
            "algorithm.t=2: synchronous waits for all 4 parties",
        ),
        ("algorithm", {"regularization": [0.1, 0.2]}, "2 numbers for 4 parties"),
        ("data", {"partition": "shards"}, "data.partition=shards: vafl divides columns"),
        ("data", {"spare": 2}, "data.spare=2: vafl divides columns"),
        ("model", {"name": "mlp", "hidden": [8]}, "a sum of embeddings needs logistic"),
        ("privacy", {"mechanism": "gaussian", "batch": 1e6}, "above the 1437 rows"),
    ],
)
def test_contradictions_are_refused(section: str, values: dict[str, Any], key: str) -> None:
    document = run_file().model_dump()
    document[section] |= values
    with pytest.raises(ValueError, match=key.replace(".", r"\.")):
        RunFile.model_validate(document)


def test_uploads_are_no_gradients_whose_norm_a_guard_could_bound() -> None:
    document = private("fresh").model_dump() | {"guard": {"norm_factor": 1.0}}
    with pytest.raises(ValueError, match=r"guard.norm_factor=1: vafl's uploads are no gradients"):
        RunFile.model_validate(document)


def test_quadrants_are_four() -> None:
    with pytest.raises(ConfigError, match="quadrants are four"):
        run_file(parties=3, algorithm="quadrants = true")


def test_a_horizontal_run_has_no_parties() -> None:
    run = base_run_file(run={"updates": 1}, algorithm={"name": "mapa"})
    with pytest.raises(ConfigError, match=r"algorithm.name='mapa' is not vertical"):
        vertical(run.define())


def test_records_of_one_person_are_told_apart() -> None:
    ids = torch.tensor([7, 8, 7])
    record_ids = vertical_settings.record_ids(
        Dataset(torch.zeros(3, 1), torch.zeros(3), 2, "pd/train", ids)
    )
    assert record_ids == ["pd/train/7/0", "pd/train/8/0", "pd/train/7/1"]
    assert vertical_settings.record_ids(
        Dataset(torch.zeros(1, 1), torch.zeros(1), 2, "x/test")
    ) == ["x/test/0/0"]


def test_an_outbox_keeps_the_state_of_the_message_that_it_came_with(tmp_path: Path) -> None:
    with closing(Ledger(tmp_path / "ledger.db", "people")) as ledger:
        first = Outbox(ledger, "run")
        assert first.state() is None
        first.put(1, b"one", state=b"state of one")
        first.put(2, b"two")
    with closing(Ledger(tmp_path / "ledger.db", "people")) as ledger:
        again = Outbox(ledger, "run")
        assert again.state() == b"state of one"
        assert Outbox(ledger, "another").state() is None
        again.put(3, b"three", state=b"state of three")
        assert again.state() == b"state of three"


def test_a_vertical_run_has_no_edge_and_its_server_knows_labels() -> None:
    run = config.load(EXPERIMENTS[0])
    definition, model = run.define(), run.build_model()
    with pytest.raises(ConfigError, match="needs the labels of its people"):
        registry.server(definition, model)
    with pytest.raises(ConfigError, match="start tacit party"):
        registry.edge(definition, "edge-0", *(None, model, None))  # type: ignore[arg-type]
