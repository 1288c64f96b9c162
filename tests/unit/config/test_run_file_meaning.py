"""What a run file means: its fingerprint, which every parameter changes, and its privacy plans."""

from __future__ import annotations

import pytest

from tacit.algorithms.dp_pasgd.pasgd_settings import DpPasgd
from tacit.algorithms.fedasync.fedasync_settings import FedAsync
from tacit.algorithms.mapa.mapa_settings import Mapa
from tacit.config import RunFile
from tacit.config.data import BenchmarkData
from tacit.errors import ConfigError
from tests.helpers.good_run_file import PLAIN, TEXT, parsed

OTHER = {
    "run.name": '"other"',
    "run.updates": "101",
    "run.seed": "2",
    "run.snapshot_every": "201",
    "run.average": "0.5",
    "data.dataset": '"mnist"',
    "data.features": '"scattering"',
    "data.partition": '"shards"',
    "data.alpha": "0.6",
    "data.spare": "1",
    "data.spare_weight": "0.3",
    "model.name": '"svm"',
    "model.channels": "[10, 21]",
    "model.kernel": "3",
    "model.hidden": "[5]",
    "model.activation": '"tanh"',
    "model.regularization": "1e-4",
    "model.normalization": '"group"',
    "algorithm.name": '"audp"',
    "algorithm.smoothness": "11.0",
    "algorithm.deviation": "31.0",
    "algorithm.radius": "1.5",
    "algorithm.reduction": "0.6",
    "algorithm.initial_gap": "2.4",
    "algorithm.failure": "1e-2",
    "algorithm.max_staleness": "101",
    "algorithm.learning_rate": "0.5",
    "algorithm.schedule": '"linear"',
    "algorithm.warm_up": "0.1",
    "privacy.mechanism": '"knorm"',
    "privacy.epsilon": "2.1",
    "privacy.delta": "1e-6",
    "privacy.pushes": "1001",
    "privacy.batch": "33",
    "privacy.noise_multiplier": "1.1",
    "privacy.clip": "1.0",
    "privacy.clip_min": "0.2",
    "privacy.clip_max": "99.0",
    "privacy.paper_epsilon": "0.2",
    "privacy.noise_at": '"server"',
    "edges.count": "3",
    "edges.epsilon": "[1.0]",
    "edges.slowdown": "[2.0]",
    "edges.min": "1",
    "edges.wait": "61.0",
    "edges.grace": "61.0",
    "edges.share": '"budget"',
    "evaluation.every": "51",
    "evaluation.samples": "2001",
    "evaluation.metrics": '["auc"]',
    "model.pool_every": "2",
    "model.embedding": "65",
    "model.width": "17",
    "model.blocks": "2",
    "data.vocabulary": "2001",
    "data.sequence": "33",
}


# Of a user's own module: tests/unit/project/test_own_model.py.
OF_A_MODULE = {
    f"model.{key}"
    for key in ("entry", "arguments", "file", "loss", "weights", "trainable", "control_flow")
}


# Of judging at the edges: tests/unit/config/test_judging.py.
OF_LOOKS = {f"evaluation.{key}" for key in ("at", "held_out", "epsilon", "looks", "largest_error")}


def test_the_list_of_changes_names_every_parameter_there_is() -> None:
    sections = {name: field.annotation for name, field in RunFile.model_fields.items()}
    del sections[
        "guard"
    ]  # test_guard_sums: but for what decides the model it may change while a run goes on
    del sections["network"]  # for the simulator, which has no journal
    del sections["ask"]  # in the place of training: test_asked
    del sections["tracking"]  # where figures are written, which is in no name: tests/unit/tracking
    sections |= {"algorithm": Mapa, "data": BenchmarkData}
    keys = {f"{name}.{key}" for name, section in sections.items() for key in section.model_fields}  # type: ignore[union-attr]
    elsewhere = {"data.kind", "run.stop", "model.bins"}  # bins: tests/unit/algorithms/test_ebm.py
    assert keys == set(OTHER) | OF_A_MODULE | OF_LOOKS | elsewhere
    assert {f"algorithm.{key}" for key in FedAsync.model_fields} == {
        *FEDASYNC,
        "algorithm.steps_max",
    }
    assert {f"algorithm.{key}" for key in DpPasgd.model_fields} == set(DP_PASGD)


FEDASYNC: dict[str, str | None] = {
    "algorithm.name": '"fedbuff"',
    "algorithm.learning_rate": "0.2",
    "algorithm.steps_min": "4",
    "algorithm.proximal": "0.01",
    "algorithm.mixing": "0.7",
    "algorithm.staleness": '"hinge"',
    "algorithm.a": "0.6",
    "algorithm.b": "5",
    "algorithm.mixing_decay": "0.5",
    "algorithm.mixing_decay_at": "0.4",
    "algorithm.max_staleness": "99",
    "algorithm.concurrency": "2",
    "algorithm.buffer": "9",
    "algorithm.server_rate": "0.9",
    "algorithm.clients": "1",
    "algorithm.quorum": "0.6",
    "algorithm.deadline_s": "61.0",
    "algorithm.schedule": '"linear"',
    "algorithm.warm_up": "0.1",
}
DP_PASGD: dict[str, str | None] = {
    "algorithm.name": '"fedasync"',
    "algorithm.learning_rate": "0.2",
    "algorithm.tau": "11",
    "algorithm.quorum": "0.6",
    "algorithm.deadline_s": "61.0",
    "algorithm.schedule": '"linear"',
    "algorithm.warm_up": "0.1",
}


@pytest.mark.parametrize(
    ("name", "key", "value"),
    [("fedasync", key, value) for key, value in FEDASYNC.items()]
    + [("dp-pasgd", key, value) for key, value in DP_PASGD.items()],
)
def test_every_parameter_of_the_others_changes_the_fingerprint(
    name: str, key: str, value: str
) -> None:
    usual: dict[str, str | None] = {"algorithm.name": f'"{name}"', "privacy.clip": "1.0"}
    assert parsed(usual | {key: value}).fingerprint() != parsed(dict(usual)).fingerprint()


@pytest.mark.parametrize("key", OTHER)
def test_every_parameter_changes_the_fingerprint(key: str) -> None:
    usual: dict[str, str | None] = {
        "privacy.mechanism": '"gaussian"'
    }  # which goes with every other parameter
    usual |= TEXT if key in ("data.vocabulary", "data.sequence") else {}
    assert parsed(usual | {key: OTHER[key]}).fingerprint() != parsed(dict(usual)).fingerprint()


def test_a_run_may_learn_to_stop_early_while_it_goes_on() -> None:
    assert parsed({"run.stop": '"no better"'}).fingerprint() == parsed().fingerprint()


def test_the_same_meaning_has_the_same_fingerprint() -> None:
    spelt_out = {"privacy.batch": "32.0", "run.seed": "1", "privacy.epsilon": "2"}
    assert (
        parsed(dict(spelt_out)).fingerprint()
        == parsed().fingerprint()
        == parsed(edges=2).fingerprint()
    )


# -- the plans -------------------------------------------------------------------------------------


def test_an_edge_has_its_own_epsilon_where_it_is_named() -> None:
    run = parsed({"edges.epsilon": "[0.5]"})
    assert [run.plan(index).epsilon for index in (0, 1, 7)] == [0.5, 2.0, 2.0]


def test_the_rate_is_batch_over_the_public_size() -> None:
    plan = parsed().plan(0)
    assert (plan.sampling_rate, plan.batch, plan.noise_multiplier) == (32 / 718, 32.0, 1.0)
    assert parsed({"privacy.batch": "718"}).plan(0).sampling_rate == 1.0


def test_noise_is_calibrated_for_the_pushes_where_none_is_given() -> None:
    run = parsed({"privacy.noise_multiplier": None, "privacy.pushes": "100"})
    pushes_left = run.plan(0).pushes_left(())
    assert pushes_left is not None
    assert pushes_left >= 100


@pytest.mark.parametrize("mechanism", ["none", "paper"])
def test_a_mechanism_without_a_guarantee_has_no_multiplier(mechanism: str) -> None:
    changes = dict(PLAIN) if mechanism == "none" else {"privacy.mechanism": '"paper"'}
    plan = parsed({**changes}).plan(0)
    assert (plan.mechanism, plan.noise_multiplier, plan.pushes_left(())) == (mechanism, 0.0, None)


@pytest.mark.parametrize("mechanism", ["discrete_gaussian", "knorm", "paper"])
def test_noise_at_the_server_is_gaussian(mechanism: str) -> None:
    with pytest.raises(
        ConfigError, match=rf"mechanism={mechanism}: noise_at=server knows gaussian only"
    ):
        parsed({"privacy.noise_at": '"server"', "privacy.mechanism": f'"{mechanism}"'})


def test_noise_at_the_server_covers_an_edge_that_is_always_seen() -> None:
    keys: dict[str, str | None] = {
        "privacy.noise_at": '"server"',
        "privacy.mechanism": '"gaussian"',
    }
    plan = parsed(keys | {"privacy.noise_multiplier": None, "privacy.pushes": "20"}).plan(0)
    assert (plan.private, plan.sampling_rate, plan.declared) == (False, 1.0, "gaussian@server")
    central = plan.central()
    assert (central.private, central.sampling_rate, central.batch) == (True, 1.0, 1.0)
    assert 20 <= (central.pushes_left(()) or 0) < 24
    assert plan.noise_variance(650) == central.noise_variance(650) == 650 * plan.noise_multiplier**2
