"""`tacit plan dp-pasgd`: JSON, table, picture, run file, and one line for every bad input."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tacit import config
from tacit.algorithms.dp_pasgd.pasgd_settings import DpPasgd
from tacit.rounding import up
from tests.system.cli.test_main import Captured, one_line, tacit

WORKED = {
    "epsilon": "10",
    "delta": "1e-4",
    "devices": "16",
    "batch": "256",
    "lipschitz": "1",
    "dim": "103",
    "smoothness": "0.25",
    "strong-convexity": "0.01",
    "lr": "0.1",
    "c1": "100",
    "c2": "1",
    "resource": "1000",
}


def arguments(*more: str, **changes: str) -> list[str]:
    flags = WORKED | {name.replace("_", "-"): value for name, value in changes.items()}
    return [
        "plan",
        "dp-pasgd",
        *(part for name, value in flags.items() for part in (f"--{name}", value)),
        *more,
    ]


def answer(capsys: Captured, *more: str, **changes: str) -> dict[str, Any]:
    assert tacit(*arguments("--json", *more, **changes)) == 0
    document: dict[str, Any] = json.loads(capsys.readouterr().out)
    return document


def test_json_of_the_worked_example(capsys: Captured) -> None:
    document = answer(capsys)
    assert (document["K"], document["tau"], document["rounds"], document["resource"]) == (
        176,
        22,
        8,
        976,
    )
    assert document["sigma"] == pytest.approx(0.0544, abs=5e-5)
    assert document["sigmas"] == [document["sigma"]]
    assert document["noise_multiplier"] == pytest.approx(document["sigma"] * 256)
    assert document["predicted_loss"] == pytest.approx(0.618, abs=5e-4)
    assert 9.999 < document["epsilon"] <= 10
    assert (document["planner"], document["sampling_rate"]) == ("corrected", None)


def test_the_gap_and_the_variance_may_be_given(capsys: Captured) -> None:
    usual = answer(capsys)
    assert answer(capsys, gap="0.6931471805599453", variance=str(1 / 256)) == usual
    assert answer(capsys, gap="2")["K"] > usual["K"]
    assert answer(capsys, variance="1")["predicted_loss"] > usual["predicted_loss"]


def test_one_batch_per_device(capsys: Captured) -> None:
    document = answer(capsys, devices="2", batch="64,256")
    assert document["sigmas"][0] == pytest.approx(4 * document["sigmas"][1])
    assert document["sigma"] ** 2 == pytest.approx(
        sum(sigma**2 for sigma in document["sigmas"]) / 2
    )


def test_the_papers_planner_says_what_it_really_costs(capsys: Captured) -> None:
    costs = answer(capsys, planner="paper")["epsilon"]
    assert costs == pytest.approx(100.0, abs=0.05)
    assert tacit(*arguments(planner="paper")) == 0
    output = capsys.readouterr().out
    for phrase in (
        f"{up(costs)} of 10",
        "which is false",
        "these K steps cost ε = 100, not 10",
        "K = 105.3, τ = 11.8",
    ):
        assert phrase in output


def test_the_table_says_what_was_found_and_what_bounds_it(capsys: Captured) -> None:
    assert tacit(*arguments()) == 0
    output = capsys.readouterr().out
    for phrase in (
        "176 local steps",
        "22 steps between",
        "0.0543635",
        "976 of 1000",
        "10 of 10",
        "0.6178 above",
    ):
        assert phrase in output
    assert "note" not in output
    assert tacit(*arguments(epsilon="0.01", resource="150", variance="0")) == 0
    assert "training is not worth its noise" in capsys.readouterr().out
    assert tacit(*arguments(epsilon="1000", resource="150")) == 0
    assert "the longest that (21e) allows at η = 0.1" in capsys.readouterr().out


def test_the_picture_marks_the_plan(tmp_path: Path, capsys: Captured) -> None:
    file = tmp_path / "plan.png"
    answer(capsys, "--plot", str(file))
    from matplotlib import image

    picture = image.imread(file)
    assert picture.shape[:2] == (528, 840)
    curve, mark = (
        (abs(picture[..., :3] - [part / 255 for part in colour]).max(-1) < 0.02).sum()
        for colour in ((0x00, 0x72, 0xB2), (0xE6, 0x9F, 0x00))
    )
    assert curve > 300
    assert 50 < mark < 300


def test_the_run_file_is_one_and_is_the_plan(tmp_path: Path, capsys: Captured) -> None:
    file = tmp_path / "plan.toml"
    document = answer(capsys, "--run-file", str(file))
    run = config.load(file)
    run.build_model()
    a, p = run.algorithm, run.privacy
    assert isinstance(a, DpPasgd)
    assert (a.tau, a.learning_rate) == (document["tau"], 0.1)
    assert (run.run.updates, run.edges.count, run.model.regularization) == (8, 16, 0.01)
    assert (p.pushes, p.batch, p.noise_multiplier, p.clip) == (
        176,
        256.0,
        document["noise_multiplier"],
        1.0,
    )
    assert (p.clip_min, p.clip_max, p.epsilon, p.delta) == (1.0, 1.0, 10.0, 1e-4)
    pushes_left = run.plan(0).pushes_left(())
    assert pushes_left is not None
    assert pushes_left > 176 * 10  # the corrected σ does not count on sampling; the ledger does


def test_a_run_file_of_another_size_than_the_plan_is_noted(
    tmp_path: Path, capsys: Captured
) -> None:
    for dim, noted in (("103", True), ("206", False)):
        assert tacit(*arguments("--run-file", str(tmp_path / "plan.toml"), dim=dim)) == 0
        output = " ".join(capsys.readouterr().out.split())
        assert (
            "note: logistic on adult has 206 parameters here; the plan is of --dim 103" in output
        ) == noted


def test_the_poisson_planner_uses_up_the_ledger_of_its_run_file(
    tmp_path: Path, capsys: Captured
) -> None:
    file = tmp_path / "plan.toml"
    more = ("--planner", "poisson", "--run-file", str(file), "--dataset", "digits")
    document = answer(
        capsys, *more, sampling_rate="0.5", devices="4", batch="179.5", resource="110", epsilon="2"
    )
    run = config.load(file)
    assert run.sampling_rate() == 0.5
    pushes_left = run.plan(0).pushes_left(())
    assert pushes_left is not None
    assert document["K"] <= pushes_left <= document["K"] + 1
    assert document["epsilon"] <= 2


def test_a_run_file_that_its_ledgers_would_end_early_is_refused(
    tmp_path: Path, capsys: Captured
) -> None:
    file = tmp_path / "plan.toml"
    more = (
        "--planner",
        "poisson",
        "--sampling-rate",
        "0.4",
        "--run-file",
        str(file),
        "--dataset",
        "digits",
    )
    assert tacit(*arguments(*more, resource="110", epsilon="2", devices="4", batch="300")) == 2
    error = one_line(capsys)
    assert "its devices draw batches at q = 0.8357, where only" in error
    assert "of 10 steps are within ε" in error
    assert not file.exists()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"epsilon": "-1"}, "--epsilon -1.0: expected a number above 0"),
        ({"epsilon": "nan"}, "--epsilon nan: expected"),
        ({"delta": "0"}, "--delta 0.0: expected a number above 0 and below 1"),
        (
            {"delta": "5e-324"},
            "--delta 5e-324: expected a number above 0 and below 1 (and at least 1e-300)",
        ),
        ({"devices": "0"}, "--devices 0: expected a number of at least 1"),
        ({"devices": "many"}, "--devices"),
        ({"batch": "large"}, "--batch large: expected a number, or one per device"),
        ({"batch": "5,6"}, "--batch 5,6: 2 sizes for devices=16"),
        ({"lr": "5"}, "--lr 5.0: times smoothness=0.25 is 1.25, above 1"),
        ({"strong_convexity": "0.3"}, "--strong-convexity 0.3: is above smoothness=0.25"),
        ({"resource": "100"}, "--resource 100.0: one step and one average cost 101: no plan"),
        ({"resource": "1e15"}, "--resource 1000000000000000.0: pays for more than 2000000 pairs"),
        ({"planner": "guess"}, "--planner"),
        ({"planner": "poisson"}, "--sampling-rate None: planner poisson needs a number above 0"),
        (
            {"planner": "poisson", "sampling_rate": "2"},
            "--sampling-rate 2.0: planner poisson needs",
        ),
        ({"plot": "x.pdf"}, "--plot x.pdf: expected FILE.png"),
        ({"plot": "/nowhere/x.png"}, "--plot /nowhere/x.png: No such file"),
        ({"run_file": "/nowhere/x.toml"}, "--run-file /nowhere/x.toml: No such file"),
        (
            {"run_file": "x.toml", "devices": "2", "batch": "5,6"},
            "--run-file: a run file has one privacy.batch",
        ),
        ({"run_file": "x.toml", "dataset": "adlut"}, "--run-file x.toml: data.dataset"),
        ({"run_file": "x.toml", "batch": "9999"}, "--run-file x.toml: privacy.batch=9999 is above"),
    ],
)
def test_bad_input_is_one_line(changes: dict[str, str], message: str, capsys: Captured) -> None:
    assert tacit(*arguments(**changes)) == 2
    assert message in one_line(capsys)
    assert not Path("x.toml").exists()


def test_every_flag_of_the_problem_is_needed(capsys: Captured) -> None:
    for name in WORKED:
        flags = [
            part for flag, value in WORKED.items() if flag != name for part in (f"--{flag}", value)
        ]
        assert tacit("plan", "dp-pasgd", *flags) == 2
        assert f"Missing option '--{name}'" in one_line(capsys)
