"""What is said of a run before it costs any ε."""

from __future__ import annotations

from pathlib import Path

import pytest

from tacit import config
from tacit.config.preflight import warnings

EXPERIMENTS = Path(__file__).parents[3] / "experiments"


def warnings_text(text: str) -> str:
    """Return all warnings about a run file, in one line."""
    run = config.parse(text, "test")
    return "; ".join(warnings(run.define(), run.build_model().size))


@pytest.mark.parametrize(
    ("file", "changed", "expected"),
    [
        ("fedavg-cifar10-cnn", "buffer = 7\nmixing = 0.9", "fedavg does not use buffer, mixing"),
        ("fedbuff-cifar10-cnn", "clients = 2", "fedbuff does not use clients"),
    ],
)
def test_keys_that_an_algorithm_does_not_read_are_named(
    file: str, changed: str, expected: str
) -> None:
    source = (EXPERIMENTS / f"{file}.toml").read_text(encoding="utf-8")
    assert not warnings_text(source)
    assert warnings_text(source.replace("[algorithm]", f"[algorithm]\n{changed}")) == expected


def test_a_delta_that_allows_to_give_a_record_away_is_named() -> None:
    source = (EXPERIMENTS / "mapa-digits.toml").read_text(encoding="utf-8")
    assert "above 1/" not in warnings_text(source)
    assert "δ = 0.01 is above 1/" in warnings_text(
        source.replace("[privacy]", "[privacy]\ndelta = 0.01")
    )


def test_the_largest_epsilon_that_pays_for_less_than_the_run_is_named() -> None:
    source = (EXPERIMENTS / "mapa-digits.toml").read_text(encoding="utf-8")
    pays = "the budgets pay for"
    assert pays not in warnings_text(source)
    assert pays in warnings_text(source.replace("updates = ", "updates = 1"))


@pytest.mark.parametrize(("epsilon", "hidden"), [(2.0, True), (8.0, True), (10_000.0, False)])
def test_embeddings_that_noise_hides_are_named(epsilon: float, hidden: bool) -> None:
    text = f"""
[run]
updates = 100
[data]
dataset = "digits"
[model]
name = "logistic"
[algorithm]
name = "vafl"
[privacy]
mechanism = "gaussian"
epsilon = {epsilon}
"""
    assert ("noise hides what a record's embedding says" in warnings_text(text)) is hidden


TABLE = """
[run]
updates = {updates}
stop = "no better"
[data]
kind = "table"
train = "train.csv"
{test}
target = "t"
rows = 200
[data.columns]
age = {{ low = 0, high = 100 }}
t = {{ values = [0, 1] }}
[model]
name = "logistic"
[algorithm]
name = "audp"
[privacy]
pushes = {pushes}
[evaluation]
every = {every}
"""


@pytest.mark.parametrize(
    ("updates", "every", "pushes", "test", "expected"),
    [
        (1000, 10, 250, True, ""),
        (1000, 25, 250, True, ""),
        (1000, 10, 250, False, "there is none (data.test)"),
        (1000, 250, 250, True, "gives 4 evaluations in 1000 updates"),
        (1000, 5000, 250, True, "gives 0 evaluations in 1000 updates"),
        (60, 10, 30, True, "gives 6 evaluations in 60 updates"),
        (1000, 10, 10, True, "gives 5 evaluations in 50 updates"),
        (100_000, 10, 200, True, "set run.updates = 1000"),
    ],
)
def test_a_stop_that_can_end_nothing_is_named(
    updates: int, every: int, pushes: int, test: bool, expected: str
) -> None:
    """Before it costs ε: nobody looks where there is no test set, or too few evaluations."""
    public = 'test = "public.csv"' if test else ""
    told = warnings_text(TABLE.format(updates=updates, every=every, pushes=pushes, test=public))
    assert ("run.stop" in told) is bool(expected)
    assert expected in told
    without = TABLE.replace('stop = "no better"', "").format(
        updates=updates, every=every, pushes=pushes, test=public
    )
    assert "run.stop" not in warnings_text(without)


@pytest.mark.parametrize(("pushes", "few"), [(200, True), (209, True), (210, False)])
def test_looks_that_few_edges_are_left_for_are_named(pushes: int, few: bool) -> None:
    text = TABLE.replace('stop = "no better"', "").format(
        updates=1000, every=10, pushes=pushes, test=""
    )
    told = warnings_text(f'{text}at = "edges"\nheld_out = 0.2\nepsilon = 0.5\nlooks = 5\n')
    assert ("judges no more: the last looks are of few edges" in told) is few
    assert ("privacy.pushes = 210" in told) is few
