"""A run begun from answers: bounds from quantiles, categories that stand out, and no sample."""

from __future__ import annotations

import hashlib
import json
import math
from pathlib import Path
from typing import Any

import pytest
from tacit_services.cli.main import main

from tacit import config
from tacit.config.own_table import TableData

STANDING = {"edges": 4, "of": 5, "epsilon": 0.2, "delta": 1e-5, "unit": "row"}


def figures(value: float | None) -> dict[str, Any]:
    return {"value": value, "low": 0.0, "high": 9.0, "suppressed": value is None, "sampling": 0.0}


def one(question: str, value: float | None) -> dict[str, Any]:
    return {"question": question, **figures(value), **STANDING}


def several(question: str, values: dict[str, float | None]) -> dict[str, Any]:
    labelled = [{"label": label, **figures(value)} for label, value in values.items()]
    return {"question": question, "values": labelled, **STANDING}


ANSWERS = [
    one("count", 8_000.0),
    several("quantile age 0.01 0.25 0.5 0.75 0.99", {
        "0.01": 18.0, "0.25": 35.0, "0.5": 45.0, "0.75": 55.0, "0.99": 90.0,
    }),
    several("quantile income 0.01 0.99", {"0.01": 900.0, "0.99": 98_000.0}),
    one("mean income", 25_000.0),
    one("std income", 20_000.0),
    one("missing age", 600.0),
    several("counts by job", {"nurse": 500.0, "baker": None, "other": 70.0, "missing": None}),
    several("counts by sex", {"F": 5_000.0, "M": 3_000.0, "other": None, "missing": None}),
    several("quantile weight 0.5 0.9", {"0.5": None, "0.9": None}),
]  # fmt: skip


@pytest.fixture
def answers(tmp_path: Path) -> Path:
    path = tmp_path / "answers.json"
    path.write_text(json.dumps(ANSWERS))
    return path


def new(tmp_path: Path, *words: str) -> str:
    with pytest.raises(SystemExit) as ended:
        main(["new", str(tmp_path / "clinic"), *words])
    return str(ended.value.code)


def test_columns_come_of_the_answers_and_each_edge_has_its_part_of_the_rows(
    tmp_path: Path, answers: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code = new(tmp_path, "--answers", str(answers), "--target", "sex", "--sites", "4")
    output = capsys.readouterr().out
    assert code == "0", output
    assert "answers of 4 of 5 edges, at ε = 0.2" in output
    assert "not read, as the answers tell too little of it: job, weight" in output
    data = config.load(tmp_path / "clinic" / "run.toml").data
    assert isinstance(data, TableData)
    assert data.rows == 2_000
    assert list(data.columns) == ["age", "income", "sex"]
    age, income, sex = data.columns.values()
    assert (age.low, age.high, age.center, age.missing) == (18.0, 90.0, 45.0, 45.0)
    assert age.scale == pytest.approx(20 / 1.349, rel=0.05)
    assert (income.low, income.high, income.center, income.scale) == (900, 98_000, 25_000, 20_000)
    assert sex.values == ("F", "M")


def test_the_run_file_offers_to_judge_at_the_edges_and_says_that_rows_were_counted(
    tmp_path: Path, answers: Path
) -> None:
    words = ("--answers", str(answers), "--target", "sex", "--sites", "4", "--unit", "person")
    assert new(tmp_path, *words) == "0"
    file = tmp_path / "clinic" / "run.toml"
    text = file.read_text(encoding="utf-8")
    assert "rows = 2000  # public: units of an edge, by a noisy count of rows; write" in text
    assert config.load(file).define().judging is None
    for key in ("stop", "at", "epsilon"):
        text = text.replace(f"\n# {key} = ", f"\n{key} = ")
    file.write_text(text, encoding="utf-8")
    judging = config.load(file).define().judging
    assert judging is not None
    assert judging.epsilon == 0.3


def test_the_run_file_states_which_answers_its_columns_come_of(
    tmp_path: Path, answers: Path
) -> None:
    assert new(tmp_path, "--answers", str(answers), "--target", "sex", "--sites", "4") == "0"
    run = config.load(tmp_path / "clinic" / "run.toml")
    assert isinstance(run.data, TableData)
    learnt = run.data.learnt
    assert learnt is not None
    assert learnt.answers == hashlib.sha256(answers.read_bytes()).hexdigest()
    assert (learnt.questions, learnt.edges, learnt.epsilon, learnt.delta) == (9, 4, 0.2, 1e-5)
    assert learnt.words == (
        "columns and bounds come of the answers of 4 edges to 9 questions, at ε = 0.2 and "
        "δ = 1e-05 together"
    )
    # It is part of what all who take part agree on: a run that states other answers is another.
    assert run.agreed()["data"]["learnt"] == learnt.model_dump()
    other = run.data.model_copy(update={"learnt": learnt.model_copy(update={"epsilon": 0.1})})
    none = run.data.model_copy(update={"learnt": None})
    names = {
        run.model_copy(update={"data": data}).fingerprint() for data in (run.data, other, none)
    }
    assert len(names) == 3


@pytest.mark.parametrize("damage", [{"epsilon": 0}, {"epsilon": "x"}, {"delta": 2}, {"edges": "4"}])
def test_answers_that_state_no_epsilon_begin_no_run(
    tmp_path: Path, answers: Path, damage: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    content = json.loads(answers.read_text())
    content[0] |= damage
    answers.write_text(json.dumps(content))
    assert new(tmp_path, "--answers", str(answers), "--target", "sex", "--sites", "4") == "2"
    assert "--answers" in capsys.readouterr().err


def test_a_category_has_the_values_that_noise_does_not_hide(
    tmp_path: Path, answers: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    content = json.loads(answers.read_text())
    content[6]["values"].insert(0, {"label": "miner", **figures(400.0)})
    answers.write_text(json.dumps(content))
    assert new(tmp_path, "--answers", str(answers), "--target", "sex", "--sites", "4") == "0"
    data = config.load(tmp_path / "clinic" / "run.toml").data
    assert isinstance(data, TableData)
    assert (data.columns["job"].values, data.columns["job"].missing) == (
        ("miner", "nurse"),
        "other",
    )


def test_where_values_were_not_public_those_that_stand_out_are_categories(
    tmp_path: Path, answers: Path
) -> None:
    content = json.loads(answers.read_text())
    jobs = several("counts by job", {
        "nurse": 900.0, "miner": 500.0, "a job whose name is cut t…": 300.0, "other": None,
        "missing": None,
    })  # fmt: skip
    jobs["values"][-2] |= {"low": None, "high": None}
    content[6] = jobs
    answers.write_text(json.dumps(content))
    assert new(tmp_path, "--answers", str(answers), "--target", "sex", "--sites", "4") == "0"
    data = config.load(tmp_path / "clinic" / "run.toml").data
    assert isinstance(data, TableData)
    job = data.columns["job"]
    assert (job.values, job.missing) == (("nurse", "miner"), "other")


@pytest.mark.parametrize(
    ("content", "target", "why"),
    [
        (ANSWERS, None, "--target: missing"),
        (ANSWERS, "weight", "does not tell its values, or its bounds"),
        (ANSWERS, "height", "does not tell its values"),
        ([], "sex", "has no answer"),
        ([{"question": "count"}], "sex", "is no answers.json"),
        ({"question": "count"}, "sex", "is no answers.json"),
        ("{", "sex", "is no answers.json"),
        ([one("count", 9.0) | {"question": 5}], "sex", "question '5'"),
        ([one("counts by sex", 9.0)], "sex", "is no answers.json"),
        ([one("quantile sex 0.1 0.9", 9.0)], "sex", "is no answers.json"),
        ([one("count", math.inf)], "sex", "is no answers.json"),
        ([one("count", 9.0) | {"value": "many"}], "sex", "is no answers.json"),
    ],
)
def test_what_is_no_start_is_refused_in_one_line(
    tmp_path: Path,
    content: object,
    target: str | None,
    why: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    path = tmp_path / "answers.json"
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    more = () if target is None else ("--target", target)
    assert new(tmp_path, "--answers", str(path), *more) == "2"
    assert why in capsys.readouterr().err
    assert not (tmp_path / "clinic").exists()
