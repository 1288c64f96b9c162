"""`tacit ask`: real processes, noisy answers, an ε on top of training's, and each answer once."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tacit.privacy.accounting import epsilon_pld
from tacit.privacy.ledger import read_chains
from tests.helpers.clinic import tacit

ROWS = 6_000
FILE = """
run.updates = 30
data.kind = "table"
data.train = "people.csv"
data.target = "sex"
data.columns.age = { low = 0, high = 100, missing = 40 }
data.columns.income = { low = 0, high = 100_000 }
data.columns.sex = { values = ["F", "M"] }
model.name = "logistic"
algorithm.name = "mapa"
edges.count = 3
privacy.epsilon = 1.0
"""
QUESTIONS = (
    "count", "missing age", "mean age", "quantile income 0.5", "counts by sex", "counts by town",
)  # fmt: skip
TOWNS = {"Ulm": 0.6, "Aachen": 0.3999, "Nowhere": 0.0001}  # which nobody has stated


@pytest.fixture
def clinic(tmp_path: Path) -> Path:
    """Return a folder with a table of people, and a run file that trains on it."""
    random = np.random.default_rng(3)
    age = random.normal(45, 15, ROWS).clip(0, 100).round(1)
    income = np.exp(random.normal(10, 0.7, ROWS)).round(2)
    sex = random.choice(["F", "M"], ROWS, p=[0.6, 0.4])
    town = random.choice(list(TOWNS), ROWS, p=list(TOWNS.values()))
    lines = [
        f"{'' if random.random() < 0.1 else years},{earned},{each},{place}"
        for years, earned, each, place in zip(age, income, sex, town, strict=True)
    ]
    folder = tmp_path / "clinic"
    folder.mkdir()
    (folder / "people.csv").write_text("age,income,sex,town\n" + "\n".join(lines) + "\n")
    (folder / "run.toml").write_text(FILE)
    return folder


def asked(clinic: Path, *questions: str, epsilon: str = "0.5") -> list[dict[str, Any]]:
    completed = tacit(clinic, "ask", "run.toml", *questions, "--epsilon", epsilon, "--json")
    assert completed.returncode == 0, completed.stderr
    answers: list[dict[str, Any]] = json.loads(completed.stdout)
    assert answers == json.loads((clinic / "out" / "run.ask" / "answers.json").read_text())
    return answers


def spent(clinic: Path) -> list[float]:
    """Return ε of what each ledger of the present dealing has."""
    ledgers = (clinic.parent / "home").rglob("edge-*.db")
    newest = max(int(path.parent.name) for path in ledgers)
    paths = sorted((clinic.parent / "home").rglob(f"{newest}/edge-*.db"))
    return [epsilon_pld(chain.history(), 1e-5) for path in paths for chain in read_chains(path)]


def test_questions_are_answered_and_come_on_top_of_training(clinic: Path) -> None:
    count, missing, mean, median, sexes, towns = asked(clinic, *QUESTIONS)
    assert count["low"] - 100 <= ROWS <= count["high"] + 100  # five deviations from it
    assert (count["edges"], count["of"], count["unit"], count["epsilon"]) == (3, 3, "row", 0.5)
    assert 500 < missing["value"] < 700
    assert mean["low"] - 1 <= 45 <= mean["high"] + 1
    assert median["low"] < np.exp(10) < median["high"]
    assert [each["label"] for each in sexes["values"]] == ["F", "M", "other", "missing"]
    assert sexes["values"][0]["value"] > sexes["values"][1]["value"]
    assert [each["label"] for each in towns["values"]] == ["Ulm", "Aachen", "other", "missing"]
    assert towns["values"][1]["low"] - 200 <= 0.4 * ROWS <= towns["values"][1]["high"] + 200
    assert spent(clinic) == pytest.approx([0.5] * 3, abs=0.01)

    # Again: another run of questions has a budget of its own, and training has all of its.
    asked(clinic, "count", epsilon="0.2")
    assert max(spent(clinic)) < 0.7
    trained = tacit(clinic, "run", "run.toml", "--json")
    assert trained.returncode == 0, trained.stderr
    summary = json.loads(trained.stdout)
    assert summary["applied"] == 30
    assert 1.0 < summary["privacy"]["epsilon"] < 1.7
    assert max(spent(clinic)) == pytest.approx(summary["privacy"]["epsilon"], rel=1e-6)


def test_what_cannot_be_asked_costs_nothing(clinic: Path) -> None:
    for words, why in (
        (("mean weight", "--epsilon", "0.1"), "'weight' has no public bounds"),
        (("--epsilon", "0.1"), "QUESTIONS: missing"),
    ):
        completed = tacit(clinic, "ask", "run.toml", *words)
        assert completed.returncode == 2
        assert why in completed.stderr
    assert not (clinic.parent / "home").exists()


@pytest.mark.parametrize(
    ("policy", "why"),
    [
        ('questions = ["count", "missing"]', "questions"),
        ("max_epsilon = 0.1", "max_epsilon=0.1"),
        ("lifetime_epsilon = 0.55", "lifetime_epsilon=0.55"),
    ],
)
def test_what_an_owners_policy_forbids_is_refused_before_it_costs(
    clinic: Path, policy: str, why: str
) -> None:
    (clinic / "policy.toml").write_text(policy + "\n")
    words = ("ask", "run.toml", "count", "mean age", "--epsilon", "0.6")
    completed = tacit(clinic, *words, "--policy", "policy.toml")
    assert completed.returncode == 5, completed.stderr
    assert why in completed.stderr
    assert not list(clinic.parent.rglob("edge-*.db"))
    assert not (clinic / "out" / "run.ask" / "answers.json").exists()
