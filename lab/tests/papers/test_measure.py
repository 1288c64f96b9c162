"""`tacit plan measure`: the two equations, what it refuses, and a real pair of runs."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Any

import pytest
from tacit_lab.papers.round_cost import BrokerTap, RoundCost, as_toml, solve

from tacit import config
from tacit.errors import ServiceError
from tests.conftest import ROOT
from tests.system.cli.test_main import Captured, one_line, tacit

FILE = """
[run]
updates = 7
[data]
dataset = "digits"
[model]
name = "logistic"
regularization = 0.01
[algorithm]
name = "dp-pasgd"
tau = 5
[privacy]
epsilon = 50.0
pushes = 100
batch = 96
noise_multiplier = 2.0
clip = 1.0
[edges]
count = 8
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "small.toml"
    path.write_text(FILE, encoding="utf-8")
    return path


def test_eq_8_is_solved_for_both_costs() -> None:
    c1, c2 = 3.0, 0.25
    measured = [RoundCost(tau, 9, c1 + c2 * tau, 700.0) for tau in (1, 20)]
    seconds, octets, joules = solve(measured, 4.0)
    assert [each.unit for each in (seconds, octets, joules)] == ["seconds", "bytes", "joules"]
    assert [seconds.c1, seconds.c2] == pytest.approx([3, 0.25])
    assert (octets.c1, octets.c2) == (700, 0)
    assert [joules.c1, joules.c2] == pytest.approx([12, 1])
    assert len(solve(measured, None)) == 2


def test_noise_around_zero_is_zero() -> None:
    (seconds, _) = solve([RoundCost(1, 9, 1.0, 1.0), RoundCost(20, 9, 0.9, 1.0)], None)
    assert (seconds.c1, seconds.c2) == (1.0, 0.0)
    (seconds, _) = solve([RoundCost(1, 9, 1.0, 1.0), RoundCost(20, 9, 40.0, 1.0)], None)
    assert seconds.c1 == 0.0
    assert seconds.c2 == pytest.approx(39 / 19)


def test_no_round_is_an_error() -> None:
    with pytest.raises(ServiceError, match="without a whole round"):
        BrokerTap().round(1)


@pytest.mark.parametrize(
    "path", sorted((ROOT / "experiments").glob("*.toml")), ids=lambda path: path.stem
)
def test_a_run_file_written_again_is_the_same(path: Path) -> None:
    content = tomllib.loads(path.read_text(encoding="utf-8"))
    assert config.parse(as_toml(content), "again").fingerprint() == config.load(path).fingerprint()


@pytest.mark.parametrize(
    ("changes", "more", "message"),
    [
        (
            {'"dp-pasgd"\ntau = 5': '"asgd"', "clip = 1.0": 'mechanism = "none"'},
            (),
            "algorithm.name='asgd': expected",
        ),
        ({"50.0": "0.5"}, (), "measuring takes 400; fewer --rounds, or more noise"),
        ({}, ("--watts", "-3"), "--watts -3.0: expected a number above 0"),
        ({}, ("--rounds", "2"), "--rounds"),
        ({}, ("--edges", "0"), "--edges"),
        ({"tau = 5": "tau = 0"}, (), "small.toml: algorithm.tau=0"),
    ],
)
def test_bad_input_is_one_line(
    changes: dict[str, str], more: tuple[str, ...], message: str, file: Path, capsys: Captured
) -> None:
    text = FILE
    for old, new in changes.items():
        text = text.replace(old, new)
    file.write_text(text, encoding="utf-8")
    assert tacit("plan", "measure", str(file), *more) == 2
    assert message in one_line(capsys)


def test_a_lasting_ledger_is_not_spent_on_measuring(
    file: Path, capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TACIT_LEDGER", "/data/{n}.db")
    assert tacit("plan", "measure", str(file)) == 2
    assert "TACIT_LEDGER=/data/{n}.db: measuring would be paid from it" in one_line(capsys)


@pytest.mark.slow
def test_two_real_runs_give_both_costs(file: Path, capsys: Captured) -> None:
    assert tacit("plan", "measure", str(file), "--rounds", "5", "--watts", "2", "--json") == 0
    document: dict[str, Any] = json.loads(capsys.readouterr().out)
    assert [run["tau"] for run in document["runs"]] == [1, 20]
    assert all(run["rounds"] == 4 for run in document["runs"])
    vectors = 2 * 4 * 650  # a model down, a model up
    assert vectors < document["bytes"]["c1"] < vectors + 1000
    assert document["bytes"]["c2"] < 10
    # How much longer 20 steps take than one is this machine's to say, and on a busy one it may be
    # nothing: what is asked is that both costs are the solution of what was measured.
    short, long = (run["seconds"] for run in document["runs"])
    c2 = max(long - short, 0) / 19
    assert document["seconds"] == pytest.approx({"c1": max(short - c2, 0), "c2": c2})
    assert document["joules"] == {
        name: pytest.approx(2 * document["seconds"][name]) for name in ("c1", "c2")
    }
