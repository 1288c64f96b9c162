"""The run file: what is wrong is said in one line that names the field and the value."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tacit import config
from tacit.errors import ConfigError
from tests.helpers.good_run_file import GOOD, PLAIN, TEXT, as_toml, parsed, refusal, text


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


def test_an_unknown_key_steers_no_terminal_and_fills_none() -> None:
    hostile = f'[run]\n"\\u001b[31m\\n\\u202e" = 1\n"{"x" * 5000}" = 2\n'
    fault = refusal(hostile)
    assert fault.isprintable()
    assert "run.?[31m??=1: unknown key" in fault
    assert len(fault) < 2000


def test_an_unknown_section_is_refused() -> None:
    assert "typo: unknown key" in refusal(text() + "\n[typo]\n")


@pytest.mark.parametrize("section", ["run", "data", "model", "algorithm"])
def test_a_missing_section_is_refused(section: str) -> None:
    assert f"{section}: Field required" in refusal(_sections(section))


def _sections(without: str) -> str:
    return as_toml({name: keys for name, keys in GOOD.items() if name != without})


def test_an_empty_file_says_everything_that_is_missing() -> None:
    message = refusal("")
    for section in ("run", "data", "model", "algorithm"):
        assert f"{section}: Field required" in message


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
            "needs model.name logistic or linear or svm or mlp or python or graph or additive, "
            "not resnet",
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
        ("privacy.batch", "0"),
        ("model.kernel", "16"),
        ("privacy.pushes", "1" + 400 * "0"),
        ("model.regularization", "1e+308"),
    ],
)
def test_a_value_out_of_range_is_refused(key: str, value: str) -> None:
    message = refusal(text({key: value}))
    assert f"{key}=" in message
    assert value[:80] in message


@pytest.mark.parametrize(
    ("key", "value", "message"),
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
def test_a_value_that_is_not_on_the_list_is_refused(key: str, value: str, message: str) -> None:
    assert message in refusal(text({key: value}))


@pytest.mark.parametrize(
    ("changes", "message"),
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
    changes: dict[str, str | None], message: str
) -> None:
    assert message in refusal(text(changes))


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


# -- what replaces the file ------------------------------------------------------------------------


def test_edges_and_seed_are_replaced() -> None:
    run = parsed(edges=3, seed=9)
    assert (run.edges.count, run.run.seed) == (3, 9)
    assert parsed().edges.count == 2


@pytest.mark.parametrize(
    ("replaced", "message"), [({"edges": 0}, "edges.count=0"), ({"seed": -1}, "run.seed=-1")]
)
def test_what_replaces_is_checked_like_the_file(replaced: dict[str, int], message: str) -> None:
    assert message in refusal(text(), **replaced)


def test_csgd_keeps_its_one_edge_whatever_is_asked() -> None:
    run = parsed({**PLAIN, "algorithm.name": '"csgd"', "edges.count": "1"}, edges=7)
    assert run.edges.count == 1
