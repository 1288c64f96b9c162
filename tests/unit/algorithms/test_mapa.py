"""MAPA against its paper: one test per equation, line of Algorithm 1 and row of Table II.

Figures without a number of the paper were computed by hand from its formulas.
"""

from __future__ import annotations

import json
import math
from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tacit.algorithms.base.server import STALENESS_WINDOW
from tacit.algorithms.mapa import mapa
from tacit.algorithms.mapa.mapa import MapaServer
from tacit.algorithms.mapa.mapa_settings import Mapa
from tacit.config import RunFile
from tacit.config.sections import Edges
from tacit.models import build
from tacit.privacy.accounting import Spend
from tacit.privacy.ledger import Charged
from tacit.privacy.release import Plan
from tacit.protocol.messages import EVERYONE, Halt, Hello, Retired, Update
from tests.helpers import run_files
from tests.helpers.run_files import Layer

MODEL = build("logistic", (1, 1, 3), 2)
SIZE = MODEL.size  # 8
FILE: Layer = {"algorithm": {"smoothness": 10.0, "radius": 2.0, "max_staleness": 20}}


def run_file(
    *,
    updates: int = 1000,
    name: str = "mapa",
    deviation: float = 10.0,
    gap: float = 2.3,
    mechanism: str = "gaussian",
    batch: float = 64.0,
    clip: float | None = 10.0,
    clip_min: float = 0.1,
    clip_max: float | None = None,
    z: float = 64.0 * math.sqrt(0.01 / SIZE),
    count: int = 2,
) -> RunFile:
    """Return a run of two edges, in which one push's noise adds 0.01 C² to the variance."""
    return run_files.run_file(
        FILE,
        run={"updates": updates},
        algorithm={"name": name, "deviation": deviation, "initial_gap": gap},
        privacy={
            "mechanism": mechanism,
            "batch": batch,
            "clip": clip,
            "clip_min": clip_min,
            "clip_max": clip_max,
            "noise_multiplier": z,
        },
        edges={"count": count},
    )


def hello(edge: str, noise: float = 0.01) -> Hello:
    return Hello(edge, 2.0, 1e-5, "gaussian", noise, 0.1, 100.0, ())


def server(*edges: Hello, **changes: Any) -> MapaServer:
    cloud = MapaServer(run_file(**changes).define(), MODEL)
    for edge in edges or (hello("a"), hello("b")):
        cloud.on_message(edge)
    return cloud


def update(edge: str, version: int, value: float = 1.0) -> Update:
    return Update(edge, version, torch.full((SIZE,), value), 1.0, (Spend(0.1, 1.0, 1),))


def single(outgoing: list[Any]) -> Any:
    (only,) = outgoing
    return only


# -- the equations ---------------------------------------------------------------------------------


def test_eq_6_as_printed_puts_the_noise_on_the_norm() -> None:
    plan = Plan("paper", 0.5, 12.0, 0.0, 0.1, 100.0, 2.0, 1e-5, paper_epsilon=0.5)
    sensitivity = 2 * 1.0 / 12  # ΔS = 2C/b at C = 1
    assert plan.noise_variance(7850) == pytest.approx(
        2 * sensitivity**2 / 0.5**2
    )  # (9), whatever d is


def test_eq_9_delta_b_is_sampling_variance_plus_noise_variance() -> None:
    assert mapa.delta_b(30.0, 12.0, 5.0) == 30.0**2 / 12 + 5.0


def test_eq_10_the_rate_of_audp() -> None:
    a = run_file(name="audp").algorithm
    assert isinstance(a, Mapa)
    for t, tau, variance in ((1, 0, 0.0), (7, 4, 3.5), (1000, 20, 100.0)):
        inverse = (
            10.0 * (tau + 1) + math.sqrt(variance + 1) * math.sqrt(t) / 2.0
        )  # the paper's R is 1, ours 2
        assert mapa.audp_rate(t, tau, variance, a) == pytest.approx(1 / inverse)


def test_eq_12_the_first_clip_norm_at_equality() -> None:
    clip = mapa.first_clip(30.0, 1e-3)
    sensitivity = 2 * clip / 12
    assert clip == pytest.approx(1341, abs=1)
    assert sensitivity == pytest.approx(223.6, abs=0.1)
    assert (1 - 4 * 30.0**2 / (12 * sensitivity) ** 2) ** 2 == pytest.approx(1 - 1e-3, abs=1e-12)


@pytest.mark.parametrize("failure", [1e-17, 1e-300, 0.5, 1 - 1e-12])
def test_eq_12_holds_for_any_probability(failure: float) -> None:
    clip = mapa.first_clip(30.0, failure)
    x = (30.0 / clip) ** 2
    assert 2 * x - x * x == pytest.approx(
        failure, rel=1e-3
    )  # 1 - (1 - x)², without the cancellation


@pytest.mark.parametrize("p", [1.0, 1.5, 1e6])
@pytest.mark.parametrize("tau", [0, 4, 100])
def test_eq_13_is_satisfied_by_the_rate_of_a_stage(p: float, tau: int) -> None:
    assert 1 / mapa.stage_rate(p, 10.0, tau) >= 2 * 10.0 * (tau + 1) * (1 - 1e-12)
    assert 1 / mapa.stage_rate(p, 10.0, tau) == pytest.approx(2 * p * 10.0 * (tau + 1))


def test_eq_15_the_length_makes_the_two_terms_of_eq_14_equal() -> None:
    p, smoothness, tau, gap, variance = 1.7, 10.0, 4, 2.3, 3.2
    length = mapa.stage_length(p, smoothness, tau, gap, variance)
    assert length == pytest.approx(4 * p**2 * smoothness * (tau + 1) ** 2 * gap / variance)
    gamma = mapa.stage_rate(p, smoothness, tau)
    assert 2 * gap / (length * gamma) == pytest.approx(2 * variance * smoothness * gamma)  # (14)


@pytest.mark.parametrize("variance", [0.1, 3.2, 1e6])
def test_eq_16_is_the_same_in_c_and_in_delta_s(variance: float) -> None:
    tau, batch, theta, clip = 4, 256.0, 0.5, 10.0
    sensitivity = 2 * clip / batch
    printed = 8 * variance / ((tau + 1) * batch**2 * sensitivity**2 * theta**2)
    assert mapa.coefficient(variance, tau, clip, theta) == pytest.approx(max(1.0, printed))
    assert mapa.coefficient(variance, tau, clip, theta) >= 1


def test_eq_16_lets_the_gradient_bound_fall_to_theta_c() -> None:
    p = mapa.coefficient(1e4, 4, 10.0, 0.5)
    assert p > 1
    assert math.sqrt(2 * 1e4 / (p * 5)) == pytest.approx(0.5 * 10.0)  # sqrt(2Δ_b / (P(τ+1))) = θC


# -- the measured example: eps = 2, d = 7850, L = 10, F0 = 2.3, tau = 4, theta = .5, sigma = 10 ----


def stage_of(clip: float, batch: float, z: float) -> tuple[float, float]:
    noise = Plan("gaussian", 0.1, batch, z, 0.1, 100.0, 2.0, 1e-5).noise_variance(7850) * clip**2
    variance = mapa.delta_b(10.0, batch, noise)
    p = mapa.coefficient(variance, 4, clip, 0.5)
    return p, mapa.stage_length(p, 10.0, 4, 2.3, variance)


@pytest.mark.parametrize(
    ("batch", "z", "clip", "p", "length"),
    [
        (256, 2.46, 10.0, 1.17, 44),
        (256, 2.46, 5.0, 1.19, 175),
        (256, 2.46, 2.5, 1.26, 744),
        (256, 2.46, 1.25, 1.56, 3681),
        (256, 2.46, 0.625, 2.76, 26027),
        (12, 0.589, 10.0, 30.4, 1119),
        (12, 0.589, 5.0, 30.8, 4533),
        (12, 0.589, 2.5, 32.4, 19073),
    ],
)
def test_the_stages_of_the_measured_example(
    batch: float, z: float, clip: float, p: float, length: float
) -> None:
    found_p, found_length = stage_of(clip, batch, z)
    assert found_p == pytest.approx(p, rel=0.006)
    assert found_length == pytest.approx(
        length, rel=0.012, abs=1.1
    )  # the figures are whole updates


def test_a_stage_is_one_over_theta_squared_longer_than_the_last_where_noise_rules() -> None:
    p, length = stage_of(10.0, 12, 20.0)
    assert p == pytest.approx(2 * 7850 * 20**2 / (5 * 12**2 * 0.25), rel=1e-3)
    assert stage_of(5.0, 12, 20.0)[1] / length == pytest.approx(4, rel=1e-3)


# -- Table II --------------------------------------------------------------------------------------


def applied(cloud: MapaServer, count: int) -> MapaServer:
    for _ in range(count):
        cloud.on_message(update("a", cloud.version))
    return cloud


def test_table_2_csgd() -> None:
    cloud = server(name="csgd", mechanism="none", count=1)
    for t in (1, 2, 50):
        applied(cloud, t - 1 - cloud.version)
        inverse = 10.0 + math.sqrt(t + 1) * 10.0 / (2.0 * math.sqrt(64.0))
        assert cloud.learning_rate() == pytest.approx(1 / inverse)


def test_table_2_asgd() -> None:
    cloud = server(name="asgd", mechanism="none")
    applied(cloud, 5)
    cloud.on_message(update("b", 1))  # τ = 4
    assert cloud.tau_max == 4
    inverse = 10.0 * 5**2 + math.sqrt(7 + 1) * 10.0 / (2.0 * math.sqrt(64.0))
    assert cloud.learning_rate() == pytest.approx(1 / inverse)


def test_table_2_audp() -> None:
    cloud = applied(server(name="audp"), 3)
    cloud.on_message(update("b", 1))  # τ = 2
    variance = 10.0**2 / 64 + 0.01 * 10.0**2
    assert cloud.learning_rate() == pytest.approx(mapa.audp_rate(5, 2, variance, cloud.algorithm))
    assert (cloud.clip, cloud.stage) == (10.0, 1)  # its ΔS stays


def test_table_2_mapa() -> None:
    cloud = server()
    cloud.on_message(update("a", 0))
    cloud.on_message(update("b", 0))  # τ = 1
    variance = 10.0**2 / 64 + 0.01 * 10.0**2
    p = max(8 * variance / (2 * 64**2 * (2 * 10.0 / 64) ** 2 * 0.25), 1)
    assert cloud.learning_rate() == pytest.approx(1 / (2 * p * 10.0 * 2))


# -- Algorithm 1, cloud side -----------------------------------------------------------------------


def test_cloud_lines_1_and_2_the_noisiest_edge_rules_delta_0() -> None:
    run = run_file()
    privacy = run.privacy.model_copy(update={"noise_multiplier": None, "pushes": 100})
    calibrated = run.model_copy(
        update={"edges": Edges(count=3, epsilon=(8.0, 0.5)), "privacy": privacy}
    )
    strict = calibrated.plan(1)
    assert strict.epsilon == 0.5
    cloud = MapaServer(calibrated.define(), MODEL)
    assert (
        cloud.noise_variance
        == strict.noise_variance(SIZE)
        > calibrated.plan(0).noise_variance(SIZE)
    )
    assert cloud.variance == pytest.approx(10.0**2 / 64 + strict.noise_variance(SIZE) * 10.0**2)


@pytest.mark.parametrize("name", ["mapa", "audp"])
@pytest.mark.parametrize("edge", ["edge-0", "edge-1", "a stranger"])
@pytest.mark.parametrize("noise", [0.0, 5e-324, 1.0, 1e300, 1e308])
def test_nothing_that_an_edge_says_of_its_noise_moves_the_schedule(
    name: str, edge: str, noise: float
) -> None:
    cloud, quiet = server(name=name), server(name=name)
    cloud.on_message(hello(edge, noise))
    for one_of_both in (cloud, quiet):
        applied(one_of_both, 5)
        one_of_both.on_message(update("b", 2))
    assert cloud.schedule() == quiet.schedule()
    assert cloud.stage_length() == quiet.stage_length()
    assert torch.equal(cloud.params, quiet.params)


def test_cloud_line_2_the_smallest_epsilon_is_the_noisiest_edge() -> None:
    plans = [
        Plan.calibrated(
            epsilon=e,
            delta=1e-5,
            pushes=100,
            sampling_rate=0.1,
            batch=64.0,
            clip_min=0.1,
            clip_max=10.0,
        ).noise_variance(SIZE)
        for e in (0.5, 1.0, 4.0)
    ]
    assert plans == sorted(plans, reverse=True)


def test_cloud_line_4_the_first_model_and_clip_norm() -> None:
    cloud = server()
    assert (cloud.version, cloud.clip) == (0, 10.0)
    assert torch.equal(cloud.params, MODEL.init(1))
    by_12 = server(clip=None, clip_max=1e6, deviation=30.0)
    assert by_12.clip == mapa.first_clip(30.0, 1e-3)


def test_cloud_line_1_an_edge_is_answered_with_the_newest_model() -> None:
    cloud = applied(server(), 3)
    reply = single(cloud.on_message(hello("joiner")))
    assert reply.to == "joiner"
    assert (reply.message.version, reply.message.clip) == (3, cloud.clip)
    assert torch.equal(reply.message.params, cloud.params)


def test_cloud_line_11_the_model_moves_against_the_update() -> None:
    cloud = server()
    before = cloud.params.clone()
    for value in (1.0, -3.0):
        gradient = update("a", cloud.version, value)
        cloud.note_staleness(0)  # the rate is that of the staleness with this update
        rate = cloud.learning_rate()
        cloud.on_message(gradient)
        assert torch.allclose(cloud.params, before - rate * gradient.vector)
        assert not torch.equal(cloud.params, before)
        before = cloud.params.clone()


def test_cloud_line_12_the_updating_edge_gets_the_new_model() -> None:
    cloud = server()
    reply = single(cloud.on_message(update("b", 0)))
    assert (reply.to, reply.message.version) == ("b", 1)
    assert torch.equal(reply.message.params, cloud.params)


def test_staleness_is_measured_from_the_version_that_was_sent() -> None:
    cloud = applied(server(), 5)
    cloud.on_message(update("b", 2))
    assert cloud.staleness == {0: 5, 3: 1}
    assert cloud.tau_max == 3


def test_tau_max_forgets_what_was_long_ago() -> None:
    cloud = applied(server(), 5)
    cloud.on_message(update("b", 0))
    assert applied(cloud, STALENESS_WINDOW - 1).tau_max == 5
    assert applied(cloud, 1).tau_max == 0


def test_cloud_lines_10_and_13_a_stage_ends_after_t_s_updates() -> None:
    cloud = server()
    length = math.ceil(cloud.stage_length())
    assert 1 < length < 100
    applied(cloud, length - 1)
    assert (cloud.stage, cloud.stage_step, cloud.clip) == (1, length - 1, 10.0)
    applied(cloud, 1)
    assert (cloud.stage, cloud.stage_step, cloud.clip, cloud.version) == (2, 0, 5.0, length)


def test_the_c_of_an_update_is_that_of_its_model_also_just_after_a_stage() -> None:
    """By which the guard bounds it: 0.1 took the widest C of the last two stages."""
    cloud = server()
    length = math.ceil(cloud.stage_length())
    applied(cloud, length)
    assert [cloud.clip_at(version) for version in (0, length - 1, length, length + 9)] == [
        10.0,
        10.0,
        5.0,
        5.0,
    ]
    again = server()
    again.restore(*cloud.state())
    assert (again.clip_at(length - 1), again.clip_at(length)) == (10.0, 5.0)


def test_cloud_lines_15_and_16_the_next_stage_plans_with_theta_times_the_clip() -> None:
    cloud = server()
    first = cloud.variance
    applied(cloud, math.ceil(cloud.stage_length()))
    assert cloud.variance == pytest.approx(10.0**2 / 64 + 0.01 * 5.0**2) != first
    assert single(cloud.on_message(update("a", cloud.version))).message.clip == 5.0


def test_the_clip_norm_never_falls_below_clip_min() -> None:
    cloud = server(clip=1.0, clip_min=0.4, gap=1e-4)
    applied(cloud, 300)
    assert (cloud.clip, cloud.stage) == (0.4, 3)  # 1, 0.5, 0.4
    assert cloud.stage_step > 0


def test_without_any_variance_the_first_stage_never_ends() -> None:
    cloud = server(deviation=0.0)
    cloud.noise_variance = 0.0
    assert cloud.stage_length() == math.inf
    assert applied(cloud, 20).stage == 1


def test_cloud_line_18_halt_goes_to_everyone_at_t() -> None:
    cloud = applied(server(updates=4), 3)
    assert not cloud.halted
    halt = single(cloud.on_message(update("a", 3)))
    assert (halt.to, halt.message.version) == (EVERYONE, 4)
    assert isinstance(halt.message, Halt)


def test_after_halt_nothing_moves_and_hello_is_answered_with_halt() -> None:
    cloud = applied(server(updates=2), 2)
    params = cloud.params.clone()
    assert cloud.on_message(update("b", 2)) == []
    assert cloud.on_message(Halt(2, "again")) == []
    assert torch.equal(cloud.params, params)
    assert cloud.version == 2
    reply = single(cloud.on_message(hello("late")))
    assert (reply.to, reply.message) == ("late", Halt(2, cloud.halt_reason))
    assert cloud.screen(update("a", 2)) == "halted"


def test_an_update_that_came_with_the_last_one_moves_nothing_and_is_counted_as_spent() -> None:
    cloud = applied(server(updates=2), 2)
    params, spent = cloud.params.clone(), (Spend(0.1, 1.0, 3, "discrete_gaussian"),)
    charged = Charged(3, b"head")
    assert cloud.on_message(replace(update("a", 1), spent=spent, charged=charged)) == []
    assert torch.equal(cloud.params, params)
    assert cloud.version == 2
    assert (cloud.edges["a"].spent, cloud.edges["a"].charged) == (spent, charged)


def test_an_operators_halt_ends_the_run_whatever_its_reason() -> None:
    cloud = server()
    assert single(cloud.on_message(Halt(0, ""))).message.reason == "halted"
    assert cloud.halt_reason == "halted"


def test_unknown_and_impossible_updates_are_refused() -> None:
    cloud = applied(server(), 25)
    assert cloud.screen(update("a", 5)) is None
    assert (
        cloud.screen(update("a", 4)) is None
    )  # too old, but its edge has paid for it: the fold must know
    assert cloud.screen(update("stranger", 25)) == "unknown"
    assert cloud.screen(update("a", 26)) == "version"


def test_an_update_that_aged_on_its_way_is_not_applied_but_answered() -> None:
    cloud = applied(server(), 25)
    params = cloud.params.clone()
    cloud.edges["b"] = replace(cloud.edges["b"], spent=())
    reply = single(cloud.on_message(update("b", 4)))
    assert cloud.edges["b"].spent == update("b", 4).spent
    assert (reply.to, reply.message.version, cloud.stale, cloud.version) == ("b", 25, 1, 25)
    assert torch.equal(cloud.params, params)


def test_what_edges_spent_and_that_they_retired_is_kept() -> None:
    cloud = server()
    cloud.on_message(update("a", 0))
    assert (cloud.edges["a"].updates, cloud.edges["a"].spent) == (1, (Spend(0.1, 1.0, 1),))
    assert cloud.on_message(Retired("a", "budget", (Spend(0.1, 1.0, 9),))) == []
    assert (cloud.edges["a"].retired, cloud.edges["a"].spent) == ("budget", (Spend(0.1, 1.0, 9),))
    assert cloud.on_message(Retired("stranger", "budget", ())) == []
    cloud.on_message(hello("a"))  # a new budget
    assert cloud.edges["a"].retired == ""


def test_paper_mode_survives_any_number_of_stages() -> None:
    cloud = applied(server(mechanism="paper", gap=1e-300, updates=3000), 1500)
    assert 0 < cloud.clip < 1e-8
    assert bool(torch.isfinite(cloud.params).all())


# -- state -----------------------------------------------------------------------------------------

names = st.sampled_from(["a", "b", "c"])
messages = st.lists(
    st.one_of(
        st.builds(hello, names, st.floats(0, 10)),
        st.builds(
            lambda e, back, v: (e, back, v), names, st.integers(0, 30), st.floats(-5, 5, width=32)
        ),
        st.builds(Retired, names, st.just("budget"), st.just((Spend(0.1, 0.3, 4),))),
    ),
    max_size=60,
)


def fed(cloud: MapaServer, sequence: list[Any]) -> MapaServer:
    for message in sequence:
        if isinstance(message, tuple):
            edge, back, value = message
            message = update(edge, max(0, cloud.version - back), value)
            if cloud.screen(message) is not None:
                continue
        cloud.on_message(message)
    return cloud


@settings(derandomize=True, deadline=None, max_examples=40)
@given(messages, st.integers(0, 60), st.sampled_from(["mapa", "audp"]))
def test_a_restored_server_ends_in_the_same_bits(sequence: list[Any], cut: int, name: str) -> None:
    cloud = fed(server(name=name, updates=30, gap=0.01), sequence[:cut])
    tensors, values = cloud.state()
    again = server(
        hello("z"), name=name, updates=30, gap=0.01
    )  # not fresh: all of it must be replaced
    again.on_message(update("z", 0))
    again.restore(
        {key: tensor.clone() for key, tensor in tensors.items()}, json.loads(json.dumps(values))
    )
    fed(cloud, sequence[cut:])
    fed(again, sequence[cut:])
    assert again.params.numpy().tobytes() == cloud.params.numpy().tobytes()
    assert json.dumps(again.state()[1]) == json.dumps(cloud.state()[1])
    assert again.tau_max == cloud.tau_max
    assert again.learning_rate() == cloud.learning_rate()
