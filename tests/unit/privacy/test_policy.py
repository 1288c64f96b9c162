"""The owner's policy: what it forbids, how it says so, and that a server's word loosens nothing."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import pytest
import torch

from tacit import config, datasets
from tacit.algorithms.base.gradient_edge import GradientEdge
from tacit.errors import ConfigError, PolicyForbids, PrivacyError
from tacit.models import build
from tacit.privacy import model_refusal, policy
from tacit.privacy.ledger import Ledger
from tacit.privacy.noise.randomness import Random
from tacit.privacy.policy import OfferTerms, Terms
from tacit.privacy.release import Plan, Releaser
from tacit.protocol.messages import GlobalModel, Hello, Push
from tests.helpers.private_sums import sum_of

INF, NAN = math.inf, math.nan
PLAN = Plan("gaussian", 0.25, 40.0, 1.5, 0.2, 5.0, 2.0, 1e-5)
TERMS = Terms("gaussian", 0.25, 1.5)


def check(text: str, plan: Plan = PLAN, algorithm: str = "mapa", model: str = "cnn") -> None:
    policy.parse(text, "policy").check(plan, algorithm, model)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "max_epsilon = 2.0",
        "max_delta = 1e-5",
        "min_noise_multiplier = 1.5",
        "clip_min = 0.2",
        "clip_max = 5.0",
        'mechanisms = ["gaussian"]',
        'algorithms = ["mapa"]',
        'models = ["cnn", "svm"]',
        'noise_at = ["edge"]',
    ],
)
def test_a_plan_at_the_bound_is_allowed(text: str) -> None:
    check(text)


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("max_epsilon = 1.9", r"policy max_epsilon=1\.9: the run file says privacy\.epsilon=2\.0"),
        ("max_delta = 9e-6", r"policy max_delta=9e-06: the run file says privacy\.delta=1e-05"),
        (
            "min_noise_multiplier = 1.6",
            r"policy min_noise_multiplier=1\.6: .* noise_multiplier=1\.5",
        ),
        ("clip_min = 0.3", r"policy clip_min=0\.3: .* privacy\.clip_min=0\.2"),
        ("clip_max = 4.0", r"policy clip_max=4\.0: .* privacy\.clip_max=5\.0"),
        (
            'mechanisms = ["knorm"]',
            r"policy mechanisms=\['knorm'\]: .* privacy\.mechanism=gaussian",
        ),
        ('algorithms = ["audp"]', r"policy algorithms=\['audp'\]: .* algorithm\.name=mapa"),
        ("models = []", r"policy models=\[\]: .* model\.name=cnn"),
        ('noise_at = ["server"]', r"policy noise_at=\['server'\]: .* privacy\.noise_at=edge"),
    ],
)
def test_a_plan_beyond_the_bound_is_refused_with_both_values(text: str, line: str) -> None:
    with pytest.raises(PrivacyError, match=line) as refused:
        check(text)
    assert refused.value.exit_code == 5
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("text", ["max_epsilon = 100.0", "min_noise_multiplier = 0.1"])
@pytest.mark.parametrize("mechanism", ["none", "paper", "paper:density"])
def test_what_has_no_guarantee_passes_no_bound_on_it(text: str, mechanism: Any) -> None:
    with pytest.raises(PrivacyError):
        check(text, dataclasses.replace(PLAN, mechanism=mechanism, noise_multiplier=9.0))


def test_trusting_the_server_must_be_allowed_by_name() -> None:
    trusting = dataclasses.replace(PLAN, noise_at="server")
    with pytest.raises(PrivacyError, match=r"noise_at=\['edge'\]: .* privacy\.noise_at=server"):
        check("", trusting)
    check('noise_at = ["edge", "server"]', trusting)


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("epsilon = 1.0", r"p\.toml: epsilon=1\.0: unknown key"),
        ("max_epsilon = 0.0", r"p\.toml: max_epsilon=0\.0: "),
        ("max_epsilon = nan", r"p\.toml: max_epsilon=nan: "),
        ('max_epsilon = "2"', r"p\.toml: max_epsilon='2': "),
        ("max_delta = 1.0", r"p\.toml: max_delta=1\.0: "),
        ('mechanisms = ["laplace"]', r"p\.toml: mechanisms\.0='laplace': "),
        ("clip_min = 2.0\nclip_max = 1.0", r"p\.toml: clip_min=2\.0 is above clip_max=1\.0"),
        ("max_epsilon = ", r"p\.toml: not TOML: "),
        ('accept = "always"', r"p\.toml: accept='always': "),
        ("lifetime_epsilon = 0.0", r"p\.toml: lifetime_epsilon=0\.0: "),
        ("lifetime_epsilon = 0.001", r"p\.toml: lifetime_epsilon=0\.001: pays for no release"),
        ("lifetime_delta = 0.0", r"p\.toml: lifetime_delta=0\.0: "),
        ('code = "always"', r"p\.toml: code='always': "),
        ('code = ["aa"]', r"p\.toml: code\.0='aa': "),
        ('researchers = "Eve"', r"p\.toml: researchers='Eve': "),
        ("columns = [1]", r"p\.toml: columns\.0=1: "),
        ('hours = "20-6"', r"p\.toml: hours='20-6': expected HH:MM-HH:MM"),
        ('hours = "24:00-06:00"', r"p\.toml: hours='24:00-06:00': expected HH:MM-HH:MM"),
        ('hours = "06:00-06:00"', r"p\.toml: hours='06:00-06:00': ends when it begins"),
    ],
)
def test_a_wrong_policy_is_one_line_with_the_field_and_the_value(text: str, line: str) -> None:
    with pytest.raises(ConfigError, match=line) as refused:
        policy.parse(text, "p.toml")
    assert "\n" not in str(refused.value)


SHA = "ab" * 32
FOR_MEMBERS = f"""
accept = "within"
lifetime_epsilon = 4.0
researchers = ["Ada", "Grace"]
code = ["{SHA}"]
columns = ["p", "q", "y"]
hours = "20:00-06:00"
"""
OFFER = OfferTerms(PLAN, "mapa", "cnn", "Ada", (SHA,), ("p", "y"))


def test_an_offer_within_the_policy_is_allowed() -> None:
    policy.parse(FOR_MEMBERS, "policy").check_offer(OFFER)
    policy.parse("", "policy").check_offer(dataclasses.replace(OFFER, code=()))


@pytest.mark.parametrize(
    ("change", "key", "line"),
    [
        ({"researcher": "Eve"}, "researchers", r"\['Ada', 'Grace'\]: .* researcher\.name=Eve;"),
        ({"researcher": "*"}, "researchers", r"researcher\.name=\*"),
        ({"code": (SHA, "cd" * 32)}, "code", "SHA-256 cdcd"),
        ({"columns": ("p", "z")}, "columns", r"\['p', 'q', 'y'\]: .* it reads column z"),
        ({"plan": dataclasses.replace(PLAN, noise_at="server")}, "noise_at", "noise_at"),
    ],
)
def test_an_offer_beyond_the_policy_is_refused_by_its_key(
    change: dict[str, Any], key: str, line: str
) -> None:
    offer = dataclasses.replace(OFFER, **change)
    with pytest.raises(PolicyForbids, match=line) as refused:
        policy.parse(FOR_MEMBERS, "policy").check_offer(offer)
    assert refused.value.key == key
    assert "\n" not in str(refused.value)


def test_no_code_is_allowed_unless_its_hash_is_listed() -> None:
    for text in ("", 'code = "never"', "code = []"):
        with pytest.raises(PolicyForbids, match="policy code=never: "):
            policy.parse(text, "policy").check_offer(OFFER)


@pytest.mark.parametrize(
    ("hours", "allowed"),
    [
        ("20:00-06:00", ["20:00", "23:59", "00:00", "05:59"]),
        ("06:00-20:00", ["06:00", "19:59"]),
        ("00:00-06:00", ["00:00", "05:59"]),
        ("20:00-00:00", ["20:00", "23:59"]),
    ],
)
def test_work_is_allowed_from_the_first_minute_up_to_the_last(
    hours: str, allowed: list[str]
) -> None:
    owners = policy.parse(f'hours = "{hours}"', "policy")
    for now in ("20:00", "23:59", "00:00", "05:59", "06:00", "19:59"):
        assert owners.allows_at(now) == (now in allowed)
        if now not in allowed:
            with pytest.raises(PolicyForbids, match=f"policy hours={hours}: it is {now};"):
                owners.check_hours(now)
    assert policy.parse("", "policy").allows_at("12:00")


def test_outside_of_a_federation_a_policy_with_its_keys_forbids_only_beyond_the_lifetime() -> None:
    # Given a policy with all keys of a federation,
    owners = policy.parse(FOR_MEMBERS, "policy")
    # then outside of one a run is judged as if it had none of them,
    owners.check(PLAN, "mapa", "cnn")
    owners.check_alone(PLAN)
    assert owners.idle_alone == ("accept", "researchers", "code", "columns", "hours")
    assert policy.parse("max_epsilon = 3.0", "policy").idle_alone == ()
    # and no run may spend more there than the data's lifetime.
    for beyond, line in (
        ({"epsilon": 4.5}, "policy lifetime_epsilon=4.0: .* privacy.epsilon=4.5"),
        ({"delta": 1e-4}, "policy lifetime_delta=1e-05: .* privacy.delta=0.0001"),
        ({"mechanism": "none"}, "policy lifetime_epsilon=4.0: .* privacy.epsilon=inf"),
    ):
        with pytest.raises(PolicyForbids, match=line):
            owners.check_alone(dataclasses.replace(PLAN, **beyond))


def refusal(plan: Plan, model: GlobalModel) -> str | None:
    return model_refusal.refusal(plan, model.params, model.clip, model.terms)


def model(clip: float = 1.0, terms: Terms | None = TERMS) -> GlobalModel:
    return GlobalModel(3, torch.zeros(650), clip, terms)


REFUSED = {
    **{f"clip {clip}": (model(clip), f"clip={clip}") for clip in (0.0, -1.0, 0.19, 5.01, INF, NAN)},
    **{
        f"z {z}": (model(terms=Terms("gaussian", 0.25, z)), f"noise_multiplier={z}")
        for z in (0.0, 1.49, 1.51, NAN)
    },
    **{
        f"q {q}": (model(terms=Terms("gaussian", q, 1.5)), f"sampling_rate={q}")
        for q in (0.0, 0.26, 1.0, NAN)
    },
    **{
        name or "nothing": (model(terms=Terms(name, 0.25)), f"mechanism={name}")
        for name in ("none", "paper", "", "gaussian@server")
    },
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_model_on_other_terms_is_refused_counted_and_not_paid_for(case: str) -> None:
    # Given an edge that works on a model of its own terms,
    edge = make_edge()
    (out,) = edge.on_message(model())
    assert isinstance(out.message, Push)
    charged = edge.releaser.ledger.charged()
    # when a model comes on others, then it says nothing, charges nothing, and knows why,
    refused, reason = REFUSED[case]
    assert edge.on_message(refused) == []
    assert edge.releaser.ledger.charged() == charged
    assert edge.refusals == 1
    assert edge.refusal.startswith(reason)
    # tells the server with its next Hello, and takes the next good model.
    (hello,) = edge.start()
    assert isinstance(hello.message, Hello)
    assert (hello.message.refusals, hello.message.refusal) == (1, edge.refusal)
    assert isinstance(edge.on_message(model(terms=Terms("gaussian", 0.25)))[0].message, Push)


@pytest.mark.parametrize("clip", [0.2, 5.0])
@pytest.mark.parametrize("terms", [None, TERMS, Terms("gaussian", 0.25)])
def test_a_model_at_the_bounds_is_accepted(clip: float, terms: Terms | None) -> None:
    assert refusal(PLAN, model(clip, terms)) is None


def with_parameter(value: float) -> GlobalModel:
    good = model()
    return dataclasses.replace(
        good, params=good.params.clone().index_fill_(0, torch.tensor([3]), value)
    )


@pytest.mark.parametrize("value", [1.0001e6, -1e12, 3e38, INF, -INF, NAN])
def test_a_model_with_a_parameter_that_nobody_learnt_is_refused_and_not_paid_for(
    value: float,
) -> None:
    edge = make_edge()
    assert edge.on_message(with_parameter(value)) == []
    assert edge.refusal.startswith("params: ")
    assert edge.releaser.ledger.charged().count == 0
    assert edge.on_message(with_parameter(1e6)) != []


@pytest.mark.parametrize("value", ["1" * 5001, "0x" + "f" * 5000, "[" * 5000 + "]" * 5000, "["])
def test_what_the_toml_parser_cannot_take_is_one_line(value: str) -> None:
    with pytest.raises(ConfigError, match=r"^policy: not TOML: .*$"):
        policy.parse(f"max_epsilon = {value}", "policy")


@pytest.mark.parametrize("mechanism", ["paper", "paper_optimal"])
@pytest.mark.parametrize("clip", [0.0, NAN, INF, -1.0, 2.0**-41])
def test_without_bounds_the_clip_must_still_be_a_length(mechanism: Any, clip: float) -> None:
    plan = dataclasses.replace(PLAN, mechanism=mechanism, noise_multiplier=0.0)
    why = refusal(plan, model(clip, None))
    assert why is not None
    assert why.startswith(f"clip={clip}: ")
    assert refusal(plan, model(2.0**-40, None)) is None
    assert refusal(dataclasses.replace(plan, mechanism="none"), model(clip, None)) is None


def test_no_update_without_noise_goes_to_a_server_that_does_not_say_that_it_adds_it() -> None:
    trusting = dataclasses.replace(PLAN, noise_at="server", sampling_rate=1.0)
    assert refusal(trusting, model(terms=Terms("gaussian@server", 1.0, 1.5))) is None
    for terms in (
        None,
        Terms("gaussian", 1.0, 1.5),
        Terms("gaussian@server", 1.0, 0.0),
        Terms("none", 1.0),
    ):
        assert refusal(trusting, model(terms=terms)) is not None


@pytest.mark.parametrize("noise_at", ["edge", "server"])
@pytest.mark.parametrize("z", [None, 1.5])
def test_the_terms_of_a_run_file_are_those_of_its_own_plan(noise_at: str, z: float | None) -> None:
    text = (
        '[run]\nupdates = 1\n[data]\ndataset = "digits"\n[model]\nname = '
        '"svm"\n[algorithm]\nname = "mapa"\n'
        f'[privacy]\nmechanism = "gaussian"\nnoise_at = "{noise_at}"\nbatch = 32\npushes = 10\n'
    ) + ("" if z is None else f"noise_multiplier = {z}\n")
    run = config.parse(text, "test")
    for plan in (run.plan(0), run.plan(3)):
        assert refusal(plan, GlobalModel(0, torch.zeros(1), 1.0, run.define().terms)) is None


def make_edge() -> GradientEdge:
    rows = datasets.load("digits", "train", None)
    classifier = build("logistic", (1, 8, 8), 10)
    releaser = Releaser(PLAN, Ledger(":memory:", "x"), Random(1))
    summed = sum_of(rows.take(torch.arange(160)), classifier, releaser)
    return GradientEdge("edge-0", classifier, releaser, summed)
