"""[evaluation] at = "edges": what follows, and what is refused before it costs ε."""

from __future__ import annotations

from typing import Any

import pytest

from tacit.errors import ConfigError
from tacit.privacy.accounting import Spend, epsilon_pld
from tests.helpers.run_files import MAPA, run_file

AT_EDGES = {"at": "edges"}
BASE = {"run": {"updates": 100}, "edges": {"count": 3}}


def test_the_looks_are_spread_evenly_and_the_last_is_at_the_end() -> None:
    judging = run_file(MAPA, BASE, evaluation=AT_EDGES).define().judging
    assert judging is not None
    assert judging.moments == (20, 40, 60, 80, 100)
    assert (judging.held_out, judging.epsilon) == (0.2, 0.3)
    odd = run_file(MAPA, BASE, evaluation=AT_EDGES | {"looks": 3}).define().judging
    assert odd is not None
    assert odd.moments == (34, 67, 100)


def test_all_looks_together_keep_their_budget() -> None:
    judging = run_file(MAPA, BASE, evaluation=AT_EDGES).define().judging
    assert judging is not None
    plan = judging.plan(1000)
    assert plan.pushes_left(()) == 5
    looks = Spend(1.0, plan.noise_multiplier, 5, plan.mechanism)
    assert 0.29 < epsilon_pld([looks], plan.delta) <= 0.3


def test_training_counts_on_the_rows_that_are_left() -> None:
    plain = run_file(MAPA, BASE).plans()
    judged = run_file(MAPA, BASE, evaluation=AT_EDGES | {"held_out": 0.5}).plans()
    assert judged.rows == pytest.approx(plain.rows / 2, abs=1)
    assert judged.default.sampling_rate == pytest.approx(2 * plain.default.sampling_rate, rel=0.01)


def test_edges_agree_on_looks_and_on_nothing_else_of_evaluation() -> None:
    judged = run_file(MAPA, BASE, evaluation=AT_EDGES | {"every": 7, "epsilon": 0.5})
    assert judged.agreed()["evaluation"] == {"at": "edges", "epsilon": 0.5}
    plain = run_file(MAPA, BASE, evaluation={"every": 7})
    assert "evaluation" not in plain.agreed()
    assert plain.define().judging is None


def test_every_key_of_looks_is_a_part_of_the_runs_name_and_of_what_edges_agree_on() -> None:
    base = run_file(MAPA, BASE, evaluation=AT_EDGES)
    changes = {"held_out": 0.3, "epsilon": 0.4, "looks": 6, "largest_error": 2.0}
    for key, value in changes.items():
        changed = run_file(MAPA, BASE, evaluation=AT_EDGES | {key: value})
        assert changed.fingerprint() != base.fingerprint()
        assert changed.agreed() != base.agreed()
    assert run_file(MAPA, BASE).fingerprint() != base.fingerprint()


@pytest.mark.parametrize(
    ("sections", "why"),
    [
        ({"evaluation": {"looks": 3}}, 'evaluation: looks=3: is for at = "edges"'),
        ({"evaluation": {"epsilon": 1.0}}, 'evaluation: epsilon=1.0: is for at = "edges"'),
        ({"evaluation": AT_EDGES | {"looks": 51}}, "evaluation.looks=51: Input should be less"),
        (
            {"evaluation": AT_EDGES | {"looks": 21}, "run": {"updates": 20}},
            "evaluation.looks=21: above run.updates=20",
        ),
        ({"evaluation": AT_EDGES | {"held_out": 1.0}}, "evaluation.held_out=1.0"),
        ({"evaluation": AT_EDGES | {"epsilon": 0.0}}, "evaluation.epsilon=0.0"),
        (
            {
                "evaluation": AT_EDGES,
                "algorithm": {"name": "asgd", "smoothness": 1.0, "deviation": 1.0},
                "privacy": {"mechanism": "none"},
            },
            "privacy.mechanism=none at the edge; looks need one of gaussian",
        ),
        (
            {"evaluation": AT_EDGES, "privacy": {"mechanism": "knorm"}},
            "privacy.mechanism=knorm at the edge",
        ),
        ({"evaluation": AT_EDGES, "network": {"staleness": 3}}, "network.staleness has no time"),
        (
            {"evaluation": AT_EDGES, "algorithm": {"name": "adp2sgd", "learning_rate": 0.1}},
            "is for algorithms whose server has the whole model, which adp2sgd has not",
        ),
    ],
)
def test_what_cannot_work_is_refused_in_one_line(sections: dict[str, Any], why: str) -> None:
    layers: list[Any] = [] if "algorithm" in sections else [MAPA]
    with pytest.raises(ConfigError) as refused:
        run_file(*layers, BASE, **sections)
    assert why in str(refused.value)
    assert "\n" not in str(refused.value)
