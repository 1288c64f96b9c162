"""The run file: what is wrong is said in one line that names the field and the value."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from tacit import config
from tacit.config import RunFile
from tacit.config.algorithms import DpPasgd, FedAsync, Mapa
from tacit.config.data import BenchmarkData
from tacit.errors import ConfigError

GOOD: dict[str, dict[str, str]] = {
    "run": {"updates": "100"},
    "data": {"dataset": '"digits"'},
    "model": {"name": '"logistic"'},
    "algorithm": {"name": '"mapa"'},
    "privacy": {"batch": "32", "noise_multiplier": "1.0"},
    "edges": {"count": "2"},
    "evaluation": {"every": "50"},
}
PLAIN = {"algorithm.name": '"asgd"', "privacy.mechanism": '"none"'}


def text(changes: dict[str, str | None] | None = None) -> str:
    """GOOD as TOML with `section.key` set, or taken out where the value is None."""
    sections = {name: dict(keys) for name, keys in GOOD.items()}
    for path, value in (changes or {}).items():
        section, key = path.split(".")
        sections.setdefault(section, {}).pop(key, None)
        if value is not None:
            sections.setdefault(section, {})[key] = value
    return _toml(sections)


def parsed(changes: dict[str, str | None] | None = None, **replaced: Any) -> RunFile:
    return config.parse(text(changes), "file.toml", **replaced)


def refusal(content: str, **replaced: Any) -> str:
    with pytest.raises(ConfigError) as refused:
        config.parse(content, "file.toml", **replaced)
    message = str(refused.value)
    assert message.startswith("file.toml: ")
    assert "\n" not in message
    return message


def test_the_file_that_all_others_are_made_from_is_good() -> None:
    run = parsed()
    assert (run.run.updates, run.privacy.batch, run.edges.count, run.plans().rows) == (
        100,
        32.0,
        2,
        718,
    )


@pytest.mark.parametrize("section", GOOD)
def test_an_unknown_key_is_refused_in_every_section(section: str) -> None:
    assert f"{section}.typo=1: unknown key" in refusal(text({f"{section}.typo": "1"}))


def test_an_unknown_key_names_the_one_that_was_meant() -> None:
    assert "privacy.pushs=1: unknown key; did you mean pushes?" in refusal(
        text({"privacy.pushs": "1"})
    )
    assert "privcy: unknown key; did you mean privacy?" in refusal(text() + "\n[privcy]\n")
    assert "algorithm.tau=1: unknown key: it belongs to another algorithm" in refusal(
        text({"algorithm.tau": "1"})
    )
    assert "algorithm.deviatoin=1: unknown key; did you mean deviation?" in refusal(
        text({"algorithm.deviatoin": "1"})
    )


def test_an_unknown_section_is_refused() -> None:
    assert "typo: unknown key" in refusal(text() + "\n[typo]\n")


@pytest.mark.parametrize("section", ["run", "data", "model", "algorithm"])
def test_a_missing_section_is_refused(section: str) -> None:
    assert f"{section}: Field required" in refusal(_sections(section))


def _sections(without: str) -> str:
    return _toml({name: keys for name, keys in GOOD.items() if name != without})


def _toml(sections: dict[str, dict[str, str]]) -> str:
    lines = (
        [f"[{name}]", *(f"{key} = {value}" for key, value in keys.items())]
        for name, keys in sections.items()
    )
    return "\n".join(line for section in lines for line in section)


def test_an_empty_file_says_everything_that_is_missing() -> None:
    message = refusal("")
    for section in ("run", "data", "model", "algorithm"):
        assert f"{section}: Field required" in message


TEXT = {"data.dataset": '"wikitext-2"', "model.name": '"lstm"'}


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"data.partition": '"natural"'}, "partition=natural: digits has no natural groups"),
        (
            {"data.dataset": '"adult"', "data.partition": '"natural"', "edges.count": "17"},
            "edges.count=17 is above the 16",
        ),
        (
            {
                "data.dataset": '"vehicle"',
                "data.partition": '"natural"',
                "data.spare": "1",
                "edges.count": "3",
            },
            "spare=1: partition=natural",
        ),
        (
            {**TEXT, "data.partition": '"dirichlet"'},
            "partition=dirichlet: wikitext-2 has no label for each row",
        ),
        ({"data.vocabulary": "500"}, "vocabulary=500: digits is not a text"),
        ({"data.sequence": "8"}, "sequence=8: digits is not a text"),
        (
            {"model.name": '"lstm"'},
            "model.name=lstm: lstm is for text and text for lstm, data.dataset=digits",
        ),
        (
            {**TEXT, "model.name": '"cnn"'},
            "model.name=cnn: lstm is for text and text for lstm, data.dataset=wikitext-2",
        ),
        (
            {"model.name": '"resnet"', "data.features": '"scattering"'},
            "needs model.name logistic or svm or mlp or python, not resnet",
        ),
        ({**TEXT, "data.vocabulary": "33279"}, "data.vocabulary=33279"),
        ({"model.name": '"mlp"', "model.hidden": "[0]"}, "model.hidden.0=0"),
        ({"model.name": '"cnn"', "model.channels": "[]"}, "model.channels=[]"),
    ],
)
def test_data_and_model_that_do_not_fit_are_named(
    changes: dict[str, str | None], complaint: str
) -> None:
    assert complaint in refusal(text(changes))


SMALL_LSTM = {
    "data.vocabulary": "100",
    "data.sequence": "9",
    "model.embedding": "8",
    "model.hidden": "[4]",
}
RESNET = {
    "data.dataset": '"cifar10"',
    "model.name": '"resnet"',
    "model.width": "8",
    "model.blocks": "2",
}
FOUR_CONV = {"data.dataset": '"cifar10"', "model.name": '"cnn"', "model.channels": "[4, 4, 8, 8]"}
FOUR_CONV |= {"model.kernel": "3", "model.hidden": "[16]", "model.pool_every": "2"}
ADULT = {"data.dataset": '"adult"', "data.partition": '"natural"', "edges.count": "16"}


@pytest.mark.parametrize(
    ("changes", "size", "rows"),
    [
        ({**TEXT, **SMALL_LSTM}, 800 + 128 + 16 + 64 + 400 + 100, 104_431),
        (RESNET, 224 + 4 * 584 + 1168 + 3 * 2320 + 4640 + 3 * 9248 + 330, 10_000),
        (FOUR_CONV, 112 + 148 + 296 + 584 + 512 * 16 + 16 + 170, 10_000),
        (ADULT, 2 * 103, 2035),
    ],
)
def test_sizes_of_models_and_data_reach_the_model(
    changes: dict[str, str | None], size: int, rows: int
) -> None:
    run = parsed(changes)
    assert (run.build_model().size, run.plans().rows) == (size, rows)


@pytest.mark.parametrize("key", ["run.updates", "data.dataset", "model.name", "algorithm.name"])
def test_a_missing_key_is_refused(key: str) -> None:
    assert f"{key}: Field required" in refusal(text({key: None}))


NUMBERS = [
    "privacy.epsilon",
    "privacy.delta",
    "privacy.batch",
    "privacy.noise_multiplier",
    "privacy.clip",
    "privacy.clip_min",
    "privacy.clip_max",
    "privacy.paper_epsilon",
    "algorithm.smoothness",
    "algorithm.deviation",
    "algorithm.radius",
    "algorithm.reduction",
    "algorithm.initial_gap",
    "algorithm.failure",
    "data.alpha",
    "data.spare_weight",
    "model.regularization",
]
COUNTS = [
    "run.updates",
    "run.seed",
    "run.snapshot_every",
    "data.spare",
    "algorithm.max_staleness",
    "privacy.pushes",
    "edges.count",
    "evaluation.every",
    "evaluation.samples",
    "model.kernel",
]


@pytest.mark.parametrize("key", NUMBERS)
@pytest.mark.parametrize(
    "value", ["nan", "inf", "-inf", "-1.0", '"2"', "true", "[1.0]", "{a = 1}", "1979-05-27"]
)
def test_a_number_that_is_none_is_refused(key: str, value: str) -> None:
    message = refusal(text({key: value}))
    assert f"{key}" in message
    assert (
        value in ("{a = 1}", "1979-05-27")
        or value.strip('"').strip("[]").lower() in message.lower()
    )


@pytest.mark.parametrize(
    "key", [key for key in NUMBERS if key not in ("algorithm.deviation", "model.regularization")]
)
def test_zero_is_refused_where_it_means_nothing(key: str) -> None:
    assert f"{key}=0.0" in refusal(text({key: "0.0"}))


@pytest.mark.parametrize("key", COUNTS)
@pytest.mark.parametrize("value", ["-1", "2.5", "nan", '"2"', "true", "[2]"])
def test_a_count_that_is_none_is_refused(key: str, value: str) -> None:
    assert key in refusal(text({key: value}))


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("run.updates", "0"),
        ("run.updates", "1" + 26 * "0"),
        ("edges.count", "0"),
        ("edges.count", "10001"),
        ("privacy.pushes", "0"),
        ("run.seed", str(2**63)),
        ("privacy.delta", "1.0"),
        ("algorithm.reduction", "1.0"),
        ("data.spare", "1001"),
        ("algorithm.failure", "1.0"),
        ("privacy.clip_min", "1e-07"),
        ("privacy.clip_max", "10000000.0"),
        ("privacy.noise_multiplier", "0.05"),
        ("privacy.batch", "0.5"),
        ("model.kernel", "16"),
        ("privacy.pushes", "1" + 400 * "0"),
        ("model.regularization", "1e+308"),
    ],
)
def test_a_value_out_of_range_is_refused(key: str, value: str) -> None:
    message = refusal(text({key: value}))
    assert f"{key}=" in message
    assert value in message


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        ("algorithm.name", '"adam"', "algorithm.name='adam'"),
        ("model.name", '"vgg"', "model.name='vgg'"),
        ("data.dataset", '"cifar"', "data.dataset = 'cifar'"),
        ("data.dataset", "5", "data.dataset=5"),
        ("data.partition", '"random"', "data.partition='random'"),
        ("privacy.mechanism", '"laplace"', "privacy.mechanism='laplace'"),
        ("model.activation", '"gelu"', "model.activation='gelu'"),
        ("run.name", '"a/b"', "run.name='a/b'"),
        ("run.name", '"a\\nb"', r"run.name='a\nb'"),
        ("model.channels", "[0, 1]", "model.channels.0=0"),
        ("model.channels", '[1, "2"]', "model.channels.1='2'"),
        ("model.hidden", "[0]", "model.hidden.0=0"),
        ("edges.epsilon", "[1.0, nan]", "edges.epsilon.1=nan"),
        ("edges.epsilon", "[1.0, 0.0]", "edges.epsilon.1=0.0"),
    ],
)
def test_a_value_that_is_not_on_the_list_is_refused(key: str, value: str, said: str) -> None:
    assert said in refusal(text({key: value}))


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"privacy.batch": "719"}, "privacy.batch=719 is above the 718 rows of one edge"),
        ({"edges.count": "100"}, "privacy.batch=32 is above the 14 rows of one edge"),
        ({"edges.count": "2000"}, "edges.count = 2000 leaves less than one of 1437 rows"),
        ({**PLAIN, "edges.count": "2000"}, "edges.count = 2000 leaves less than one of 1437 rows"),
        ({**PLAIN, "data.dataset": '"cifar"'}, "data.dataset = 'cifar'"),
        (
            {"privacy.clip_min": "2.0", "privacy.clip_max": "1.0"},
            "clip_min=2.0 is above clip_max=1.0",
        ),
        ({"privacy.clip": "200.0"}, "clip=200.0 is outside [clip_min=0.1, clip_max=100.0]"),
        ({"edges.epsilon": "[1.0, 2.0, 3.0]"}, "edges.epsilon names 3 edges, edges.count=2"),
        ({"algorithm.name": '"asgd"'}, "privacy.mechanism=discrete_gaussian: asgd is not private"),
        (
            {"algorithm.name": '"csgd"', "edges.count": "1"},
            "privacy.mechanism=discrete_gaussian: csgd is not private",
        ),
        ({**PLAIN, "algorithm.name": '"csgd"'}, "edges.count=2: csgd is centralised"),
        ({"privacy.mechanism": '"none"'}, "privacy.mechanism=none: mapa needs noise"),
        (
            {"privacy.mechanism": '"none"', "algorithm.name": '"audp"'},
            "privacy.mechanism=none: audp needs noise",
        ),
        ({"privacy.mechanism": '"paper"', "algorithm.deviation": "0.0"}, "algorithm.deviation=0.0"),
    ],
)
def test_values_that_contradict_one_another_are_refused(
    changes: dict[str, str | None], said: str
) -> None:
    assert said in refusal(text(changes))


def test_all_problems_are_said_at_once() -> None:
    message = refusal(text({"run.updates": "0", "privacy.epsilon": "-1.0"}))
    assert "run.updates=0" in message
    assert "privacy.epsilon=-1.0" in message


@pytest.mark.parametrize(
    "content", ["[run", "run = ", "\x00", "[run]\nupdates = 1\n[run]\n", "updates == 1", "{}"]
)
def test_what_is_not_toml_is_refused(content: str) -> None:
    assert refusal(content).startswith("file.toml: not TOML: ")


@pytest.mark.parametrize("value", ["1" * 5001, "0x" + "f" * 5000, "[" * 5000 + "]" * 5000])
def test_what_is_too_long_or_too_deep_for_the_parser_is_refused(value: str) -> None:
    assert refusal(f"x = {value}").startswith("file.toml: not TOML: ")


@pytest.mark.parametrize(
    "section", ["run", "data", "model", "algorithm", "privacy", "edges", "evaluation"]
)
@pytest.mark.parametrize("value", ["5", '"x"', "[1]"])
def test_a_section_that_is_a_value_is_refused(section: str, value: str) -> None:
    assert f"{section}=" in refusal(f"{section} = {value}\n" + _sections(section), edges=3, seed=4)


def test_a_file_that_cannot_be_read_is_refused(tmp_path: Path) -> None:
    (tmp_path / "latin.toml").write_bytes(b"\xff\xfe")
    for path in (tmp_path / "missing.toml", tmp_path, tmp_path / "latin.toml"):
        with pytest.raises(ConfigError, match="run file ") as refused:
            config.load(path)
        assert "\n" not in str(refused.value)


def test_load_is_parse_of_the_file(tmp_path: Path) -> None:
    (tmp_path / "run.toml").write_text(text(), encoding="utf-8")
    same = config.parse(text(), "run.toml", edges=3, seed=9, folder=tmp_path)
    assert config.load(tmp_path / "run.toml", edges=3, seed=9) == same


# -- what replaces the file ------------------------------------------------------------------------


def test_edges_and_seed_are_replaced() -> None:
    run = parsed(edges=3, seed=9)
    assert (run.edges.count, run.run.seed) == (3, 9)
    assert parsed().edges.count == 2


@pytest.mark.parametrize(
    ("replaced", "said"), [({"edges": 0}, "edges.count=0"), ({"seed": -1}, "run.seed=-1")]
)
def test_what_replaces_is_checked_like_the_file(replaced: dict[str, int], said: str) -> None:
    assert said in refusal(text(), **replaced)


def test_csgd_keeps_its_one_edge_whatever_is_asked() -> None:
    run = parsed({**PLAIN, "algorithm.name": '"csgd"', "edges.count": "1"}, edges=7)
    assert run.edges.count == 1


# -- the fingerprint -------------------------------------------------------------------------------

OTHER = {
    "run.name": '"other"',
    "run.updates": "101",
    "run.seed": "2",
    "run.snapshot_every": "201",
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


# Of a user's own module: tests/config/test_own_data.py.
OF_A_MODULE = {f"model.{key}" for key in ("entry", "arguments", "loss", "weights", "trainable")}


def test_the_list_of_changes_names_every_parameter_there_is() -> None:
    sections = {name: field.annotation for name, field in RunFile.model_fields.items()}
    del sections[
        "guard"
    ]  # test_guard_sums: but for what decides the model it may change while a run goes on
    del sections["network"]  # for the simulator, which has no journal
    sections |= {"algorithm": Mapa, "data": BenchmarkData}
    there = {f"{name}.{key}" for name, section in sections.items() for key in section.model_fields}  # type: ignore[union-attr]
    assert there == set(OTHER) | OF_A_MODULE | {"data.kind"}
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


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        (
            {"algorithm.steps_min": "5", "algorithm.steps_max": "4"},
            "steps_max=4 is below steps_min=5",
        ),
        ({"algorithm.clients": "3"}, "algorithm.clients=3 is above edges.count=2"),
        ({"algorithm.name": '"sgd"'}, "edges.count=2: sgd is single-threaded"),
        (
            {"privacy.mechanism": '"paper"'},
            "privacy.mechanism=paper: the paper of fedasync has no noise",
        ),
        ({"algorithm.smoothness": "1.0"}, "algorithm.smoothness=1.0: unknown key"),
        ({"algorithm.mixing": "1.5"}, "algorithm.mixing=1.5"),
        ({"guard.norm_factor": "2.0"}, "guard.norm_factor: fedasync sends models"),
        (
            {"privacy.noise_at": '"server"', "privacy.mechanism": '"gaussian"'},
            "privacy.noise_at=server: fedasync",
        ),
    ],
)
def test_a_contradiction_in_the_section_of_another_paper(
    changes: dict[str, str | None], complaint: str
) -> None:
    with pytest.raises(ConfigError, match=re.escape(complaint)) as error:
        parsed({"algorithm.name": '"fedasync"', "privacy.clip": "1.0", **changes})
    assert "\n" not in str(error.value)


def test_sums_need_local_steps_that_do_not_diverge() -> None:
    section: dict[str, str | None] = {
        "algorithm.name": '"fedasync"',
        "algorithm.learning_rate": "0.5",
        "algorithm.steps_max": "5",
        "privacy.clip": "1.0",
    }
    sums: dict[str, str | None] = {"guard.sums": "true"}
    parsed(section | sums | {"algorithm.proximal": "4.0"})  # at 2 the law still holds
    parsed(section | {"algorithm.proximal": "4.5"})
    with pytest.raises(ConfigError, match=r"algorithm.proximal=4.5: .* it is above 2, so local"):
        parsed(section | sums | {"algorithm.proximal": "4.5"})


@pytest.mark.parametrize("key", OTHER)
def test_every_parameter_changes_the_fingerprint(key: str) -> None:
    usual: dict[str, str | None] = {
        "privacy.mechanism": '"gaussian"'
    }  # which goes with every other parameter
    usual |= TEXT if key in ("data.vocabulary", "data.sequence") else {}
    assert parsed(usual | {key: OTHER[key]}).fingerprint() != parsed(dict(usual)).fingerprint()


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
    left = run.plan(0).pushes_left(())
    assert left is not None
    assert left >= 100


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
    said: dict[str, str | None] = {
        "privacy.noise_at": '"server"',
        "privacy.mechanism": '"gaussian"',
    }
    plan = parsed(said | {"privacy.noise_multiplier": None, "privacy.pushes": "20"}).plan(0)
    assert (plan.private, plan.sampling_rate, plan.declared) == (False, 1.0, "gaussian@server")
    central = plan.central()
    assert (central.private, central.sampling_rate, central.batch) == (True, 1.0, 1.0)
    assert 20 <= (central.pushes_left(()) or 0) < 24
    assert plan.noise_variance(650) == central.noise_variance(650) == 650 * plan.noise_multiplier**2


def test_batch_normalization_is_refused_and_told_why() -> None:
    with pytest.raises(
        ConfigError, match=r"model\.normalization='batch': .* looks across examples.* use group"
    ) as error:
        parsed({"model.name": '"cnn"', "model.normalization": '"batch"'})
    assert "\n" not in str(error.value)


def test_a_linear_model_has_nothing_to_normalize() -> None:
    with pytest.raises(ConfigError, match=r"model\.normalization = 'group': group is for cnn"):
        parsed({"model.normalization": '"group"'}).build_model()


def test_a_model_that_does_not_fit_the_data_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"model\.kernel = 4"):
        parsed({"model.name": '"cnn"', "model.kernel": "4"}).build_model()


@pytest.mark.parametrize(
    "changes",
    [
        {"model.name": '"mlp"', "model.hidden": "[65536, 65536, 65536]"},
        {**RESNET, "model.width": "1024", "model.blocks": "32"},
    ],
)
def test_a_model_that_no_memory_holds_is_refused_before_any_is_taken(
    changes: dict[str, str | None],
) -> None:
    with pytest.raises(
        ConfigError, match=r"^model: the layers of .* parameters, above 268,435,456$"
    ):
        parsed(changes).build_model()
