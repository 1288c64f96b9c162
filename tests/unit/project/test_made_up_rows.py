"""Rows that are made up from answers agree with them, and `tacit tune` finds settings on them."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tacit_services.cli.main import main
from tacit_services.project.made_up_rows import MadeUpRows

from tacit import config
from tacit.errors import ConfigError

RUN = """
data.kind = "table"
data.train = "private.csv"
data.target = "ill"
data.rows = 4000
model.name = "logistic"
algorithm.name = "mapa"
run.updates = 60
edges.count = 2
[data.columns]
age = { low = 0, high = 100 }
dose = { low = 0, high = 10 }
sex = { values = ["F", "M"] }
ill = { values = ["0", "1"] }
"""


def answer(question: str, *values: tuple[str, float | None]) -> dict[str, Any]:
    figures = [
        {"label": label, "value": value, "low": value, "high": value, "suppressed": value is None}
        for label, value in values
    ]
    rest = {"edges": 2, "of": 2, "epsilon": 0.5, "delta": 1e-5}
    if len(figures) == 1:
        return {"question": question, **figures[0], **rest}
    return {"question": question, "values": figures, **rest}


ANSWERS = [
    answer("count", ("", 8_000.0)),
    answer("quantile age 0.25 0.5 0.75", ("0.25", 30.0), ("0.5", 50.0), ("0.75", 60.0)),
    answer("counts by ill", ("0", 6_000.0), ("1", 2_000.0), ("other", None), ("missing", None)),
    answer("correlation age ill", ("", 0.6)),
    answer(
        "crosstab sex ill",
        ("F, 0", 4_500.0), ("F, 1", 200.0), ("M, 0", 1_500.0), ("M, 1", 1_800.0),
    ),
]  # fmt: skip


def written(tmp_path: Path, answers: list[dict[str, Any]], seed: int = 1) -> dict[str, Any]:
    """Return the columns of the rows that are made up."""
    run = config.parse(RUN, "test")
    MadeUpRows(run, answers).write(tmp_path / "rows.csv", seed)
    with (tmp_path / "rows.csv").open() as file:
        rows = list(csv.DictReader(file))
    return {name: np.array([row[name] for row in rows]) for name in rows[0]}


def test_columns_and_pairs_are_as_the_answers_say(tmp_path: Path) -> None:
    columns = written(tmp_path, ANSWERS)
    assert list(columns) == ["age", "dose", "sex", "ill"]
    age, ill = columns["age"].astype(float), columns["ill"].astype(float)
    assert len(age) == 4_000
    assert np.quantile(age, [0.25, 0.5, 0.75]) == pytest.approx([30, 50, 60], abs=1.5)
    assert ill.mean() == pytest.approx(0.25, abs=0.03)
    assert np.corrcoef(age, ill)[0, 1] == pytest.approx(0.6, abs=0.12)
    men = columns["sex"] == "M"
    assert men[ill == 1].mean() == pytest.approx(0.9, abs=0.03)
    assert men[ill == 0].mean() == pytest.approx(0.25, abs=0.03)
    dose = columns["dose"].astype(float)  # of which nothing was asked: even within its bounds
    assert (dose.mean(), dose.min() >= 0, dose.max() <= 10) == (
        pytest.approx(5, abs=0.2),
        True,
        True,
    )


def test_a_correlation_the_other_way_falls(tmp_path: Path) -> None:
    answers = [*ANSWERS[:3], answer("correlation ill age", ("", -0.5))]
    columns = written(tmp_path, answers)
    age, ill = columns["age"].astype(float), columns["ill"].astype(float)
    assert np.corrcoef(age, ill)[0, 1] == pytest.approx(-0.5, abs=0.12)


def test_the_same_seed_makes_the_same_rows(tmp_path: Path) -> None:
    first, again, other = (written(tmp_path, ANSWERS, seed) for seed in (1, 1, 2))
    assert (first["age"] == again["age"]).all()
    assert (first["age"] != other["age"]).any()


def test_answers_without_a_pair_are_refused_as_nothing_tells_of_the_target(tmp_path: Path) -> None:
    with pytest.raises(
        ConfigError, match=r'no pair with the target was asked.*"crosstab COLUMN ill'
    ):
        written(tmp_path, ANSWERS[:3])


def tuned(tmp_path: Path, *words: str) -> int | str | None:
    with pytest.raises(SystemExit) as ended:
        main(["tune", str(tmp_path / "run.toml"), "--trials", "2", *words])
    return ended.value.code


def test_settings_are_found_without_a_public_row(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "run.toml").write_text(RUN)
    answers = tmp_path / "answers.json"
    answers.write_text(json.dumps(ANSWERS))
    assert tuned(tmp_path, "--answers", str(answers)) == 0
    output = capsys.readouterr().out
    assert "best auc on made-up rows: 0." in output
    assert "agree with the answers and with nothing else" in output
    assert tuned(tmp_path) == 2
    assert "--public, --answers: name one of them" in capsys.readouterr().err
