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

from tacit.algorithms import mapa
from tacit.algorithms.base.server import STALENESS_WINDOW
from tacit.algorithms.mapa import MapaServer
from tacit.config import RunFile
from tacit.config.algorithms import Mapa
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
    """Two edges; what one push's noise adds to the variance is 0.01 C²."""
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
    made = MapaServer(run_file(**changes).define(), MODEL)
    for edge in edges or (hello("a"), hello("b")):
        made.on_message(edge)
    return made


def update(edge: str, version: int, value: float = 1.0) -> Update:
    return Update(edge, version, torch.full((SIZE,), value), 1.0, (Spend(0.1, 1.0, 1),))


def one(outgoing: list[Any]) -> Any:
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


def applied(made: MapaServer, count: int) -> MapaServer:
    for _ in range(count):
        made.on_message(update("a", made.version))
    return made


def test_table_2_csgd() -> None:
    made = server(name="csgd", mechanism="none", count=1)
    for t in (1, 2, 50):
        applied(made, t - 1 - made.version)
        inverse = 10.0 + math.sqrt(t + 1) * 10.0 / (2.0 * math.sqrt(64.0))
        assert made.learning_rate() == pytest.approx(1 / inverse)


def test_table_2_asgd() -> None:
    made = server(name="asgd", mechanism="none")
    applied(made, 5)
    made.on_message(update("b", 1))  # τ = 4
    assert made.tau_max == 4
    inverse = 10.0 * 5**2 + math.sqrt(7 + 1) * 10.0 / (2.0 * math.sqrt(64.0))
    assert made.learning_rate() == pytest.approx(1 / inverse)


def test_table_2_audp() -> None:
    made = applied(server(name="audp"), 3)
    made.on_message(update("b", 1))  # τ = 2
    variance = 10.0**2 / 64 + 0.01 * 10.0**2
    assert made.learning_rate() == pytest.approx(mapa.audp_rate(5, 2, variance, made.algorithm))
    assert (made.clip, made.stage) == (10.0, 1)  # its ΔS stays


def test_table_2_mapa() -> None:
    made = server()
    made.on_message(update("a", 0))
    made.on_message(update("b", 0))  # τ = 1
    variance = 10.0**2 / 64 + 0.01 * 10.0**2
    p = max(8 * variance / (2 * 64**2 * (2 * 10.0 / 64) ** 2 * 0.25), 1)
    assert made.learning_rate() == pytest.approx(1 / (2 * p * 10.0 * 2))


# -- Algorithm 1, cloud side -----------------------------------------------------------------------


def test_cloud_lines_1_and_2_the_noisiest_edge_rules_delta_0() -> None:
    run = run_file()
    privacy = run.privacy.model_copy(update={"noise_multiplier": None, "pushes": 100})
    calibrated = run.model_copy(
        update={"edges": Edges(count=3, epsilon=(8.0, 0.5)), "privacy": privacy}
    )
    strict = calibrated.plan(1)
    assert strict.epsilon == 0.5
    made = MapaServer(calibrated.define(), MODEL)
    assert (
        made.noise_variance == strict.noise_variance(SIZE) > calibrated.plan(0).noise_variance(SIZE)
    )
    assert made.variance == pytest.approx(10.0**2 / 64 + strict.noise_variance(SIZE) * 10.0**2)


@pytest.mark.parametrize("name", ["mapa", "audp"])
@pytest.mark.parametrize("edge", ["edge-0", "edge-1", "a stranger"])
@pytest.mark.parametrize("noise", [0.0, 5e-324, 1.0, 1e300, 1e308])
def test_nothing_that_an_edge_says_of_its_noise_moves_the_schedule(
    name: str, edge: str, noise: float
) -> None:
    made, quiet = server(name=name), server(name=name)
    made.on_message(hello(edge, noise))
    for one_of_both in (made, quiet):
        applied(one_of_both, 5)
        one_of_both.on_message(update("b", 2))
    assert made.schedule() == quiet.schedule()
    assert made.stage_length() == quiet.stage_length()
    assert torch.equal(made.params, quiet.params)


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
    made = server()
    assert (made.version, made.clip) == (0, 10.0)
    assert torch.equal(made.params, MODEL.init(1))
    by_12 = server(clip=None, clip_max=1e6, deviation=30.0)
    assert by_12.clip == mapa.first_clip(30.0, 1e-3)


def test_cloud_line_1_an_edge_is_answered_with_the_newest_model() -> None:
    made = applied(server(), 3)
    reply = one(made.on_message(hello("joiner")))
    assert reply.to == "joiner"
    assert (reply.message.version, reply.message.clip) == (3, made.clip)
    assert torch.equal(reply.message.params, made.params)


def test_cloud_line_11_the_model_moves_against_the_update() -> None:
    made = server()
    before = made.params.clone()
    for value in (1.0, -3.0):
        gradient = update("a", made.version, value)
        made.note_staleness(0)  # the rate is that of the staleness with this update
        rate = made.learning_rate()
        made.on_message(gradient)
        assert torch.allclose(made.params, before - rate * gradient.vector)
        assert not torch.equal(made.params, before)
        before = made.params.clone()


def test_cloud_line_12_the_updating_edge_gets_the_new_model() -> None:
    made = server()
    reply = one(made.on_message(update("b", 0)))
    assert (reply.to, reply.message.version) == ("b", 1)
    assert torch.equal(reply.message.params, made.params)


def test_staleness_is_measured_from_the_version_that_was_sent() -> None:
    made = applied(server(), 5)
    made.on_message(update("b", 2))
    assert made.staleness == {0: 5, 3: 1}
    assert made.tau_max == 3


def test_tau_max_forgets_what_was_long_ago() -> None:
    made = applied(server(), 5)
    made.on_message(update("b", 0))
    assert applied(made, STALENESS_WINDOW - 1).tau_max == 5
    assert applied(made, 1).tau_max == 0


def test_cloud_lines_10_and_13_a_stage_ends_after_t_s_updates() -> None:
    made = server()
    length = math.ceil(made.stage_length())
    assert 1 < length < 100
    applied(made, length - 1)
    assert (made.stage, made.stage_step, made.clip) == (1, length - 1, 10.0)
    applied(made, 1)
    assert (made.stage, made.stage_step, made.clip, made.version) == (2, 0, 5.0, length)


def test_the_c_of_an_update_is_that_of_its_model_also_just_after_a_stage() -> None:
    """By which the guard bounds it: 0.1 took the widest C of the last two stages."""
    made = server()
    length = math.ceil(made.stage_length())
    applied(made, length)
    assert [made.clip_at(version) for version in (0, length - 1, length, length + 9)] == [
        10.0,
        10.0,
        5.0,
        5.0,
    ]
    again = server()
    again.restore(*made.state())
    assert (again.clip_at(length - 1), again.clip_at(length)) == (10.0, 5.0)


def test_cloud_lines_15_and_16_the_next_stage_plans_with_theta_times_the_clip() -> None:
    made = server()
    first = made.variance
    applied(made, math.ceil(made.stage_length()))
    assert made.variance == pytest.approx(10.0**2 / 64 + 0.01 * 5.0**2) != first
    assert one(made.on_message(update("a", made.version))).message.clip == 5.0


def test_the_clip_norm_never_falls_below_clip_min() -> None:
    made = server(clip=1.0, clip_min=0.4, gap=1e-4)
    applied(made, 300)
    assert (made.clip, made.stage) == (0.4, 3)  # 1, 0.5, 0.4
    assert made.stage_step > 0


def test_without_any_variance_the_first_stage_never_ends() -> None:
    made = server(deviation=0.0)
    made.noise_variance = 0.0
    assert made.stage_length() == math.inf
    assert applied(made, 20).stage == 1


def test_cloud_line_18_halt_goes_to_everyone_at_t() -> None:
    made = applied(server(updates=4), 3)
    assert not made.halted
    halt = one(made.on_message(update("a", 3)))
    assert (halt.to, halt.message.version) == (EVERYONE, 4)
    assert isinstance(halt.message, Halt)


def test_after_halt_nothing_moves_and_hello_is_answered_with_halt() -> None:
    made = applied(server(updates=2), 2)
    params = made.params.clone()
    assert made.on_message(update("b", 2)) == []
    assert made.on_message(Halt(2, "again")) == []
    assert torch.equal(made.params, params)
    assert made.version == 2
    reply = one(made.on_message(hello("late")))
    assert (reply.to, reply.message) == ("late", Halt(2, made.halt_reason))
    assert made.screen(update("a", 2)) == "halted"


def test_an_update_that_came_with_the_last_one_moves_nothing_and_is_counted_as_spent() -> None:
    made = applied(server(updates=2), 2)
    params, spent = made.params.clone(), (Spend(0.1, 1.0, 3, "discrete_gaussian"),)
    charged = Charged(3, b"head")
    assert made.on_message(replace(update("a", 1), spent=spent, charged=charged)) == []
    assert torch.equal(made.params, params)
    assert made.version == 2
    assert (made.edges["a"].spent, made.edges["a"].charged) == (spent, charged)


def test_an_operators_halt_ends_the_run_whatever_its_reason() -> None:
    made = server()
    assert one(made.on_message(Halt(0, ""))).message.reason == "halted"
    assert made.halt_reason == "halted"


def test_unknown_and_impossible_updates_are_refused() -> None:
    made = applied(server(), 25)
    assert made.screen(update("a", 5)) is None
    assert (
        made.screen(update("a", 4)) is None
    )  # too old, but its edge has paid for it: the fold must know
    assert made.screen(update("stranger", 25)) == "unknown"
    assert made.screen(update("a", 26)) == "version"


def test_an_update_that_aged_on_its_way_is_not_applied_but_answered() -> None:
    made = applied(server(), 25)
    params = made.params.clone()
    made.edges["b"] = replace(made.edges["b"], spent=())
    reply = one(made.on_message(update("b", 4)))
    assert made.edges["b"].spent == update("b", 4).spent
    assert (reply.to, reply.message.version, made.stale, made.version) == ("b", 25, 1, 25)
    assert torch.equal(made.params, params)


def test_what_edges_spent_and_that_they_retired_is_kept() -> None:
    made = server()
    made.on_message(update("a", 0))
    assert (made.edges["a"].updates, made.edges["a"].spent) == (1, (Spend(0.1, 1.0, 1),))
    assert made.on_message(Retired("a", "budget", (Spend(0.1, 1.0, 9),))) == []
    assert (made.edges["a"].retired, made.edges["a"].spent) == ("budget", (Spend(0.1, 1.0, 9),))
    assert made.on_message(Retired("stranger", "budget", ())) == []
    made.on_message(hello("a"))  # a new budget
    assert made.edges["a"].retired == ""


def test_paper_mode_survives_any_number_of_stages() -> None:
    made = applied(server(mechanism="paper", gap=1e-300, updates=3000), 1500)
    assert 0 < made.clip < 1e-8
    assert bool(torch.isfinite(made.params).all())


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


def fed(made: MapaServer, sequence: list[Any]) -> MapaServer:
    for message in sequence:
        if isinstance(message, tuple):
            edge, back, value = message
            message = update(edge, max(0, made.version - back), value)
            if made.screen(message) is not None:
                continue
        made.on_message(message)
    return made


@settings(derandomize=True, deadline=None, max_examples=40)
@given(messages, st.integers(0, 60), st.sampled_from(["mapa", "audp"]))
def test_a_restored_server_ends_in_the_same_bits(sequence: list[Any], cut: int, name: str) -> None:
    made = fed(server(name=name, updates=30, gap=0.01), sequence[:cut])
    tensors, values = made.state()
    again = server(
        hello("z"), name=name, updates=30, gap=0.01
    )  # not fresh: all of it must be replaced
    again.on_message(update("z", 0))
    again.restore(
        {key: tensor.clone() for key, tensor in tensors.items()}, json.loads(json.dumps(values))
    )
    fed(made, sequence[cut:])
    fed(again, sequence[cut:])
    assert again.params.numpy().tobytes() == made.params.numpy().tobytes()
    assert json.dumps(again.state()[1]) == json.dumps(made.state()[1])
    assert again.tau_max == made.tau_max
    assert again.learning_rate() == made.learning_rate()
