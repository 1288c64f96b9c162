"""`tacit plan privacy`: three questions, a table, a picture, and one line for every bad input."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tacit_services.cli import privacy_budget

from tacit.privacy.accounting import Spend, epsilon_pld, epsilon_rdp
from tacit.privacy.plan import padded_size
from tests.system.cli.test_main import Captured, one_line, tacit


def answer(capsys: Captured, *arguments: str) -> dict[str, Any]:
    assert tacit("plan", "privacy", *arguments, "--json") == 0
    document: dict[str, Any] = json.loads(capsys.readouterr().out)
    return document


class TestQuestions:
    def test_noise_from_epsilon_and_pushes(self, capsys: Captured) -> None:
        document = answer(
            capsys, "--epsilon", "2", "--pushes", "3000", "--batch", "256", "--records", "12000"
        )
        assert document["noise_multiplier"] == pytest.approx(2.463)
        assert (document["pushes"], document["batch"], document["padded_batch"]) == (
            3000,
            256,
            padded_size(12000, 256 / 12000),
        )
        spend = Spend(256 / 12000, document["noise_multiplier"], 3000, "discrete_gaussian")
        assert (
            document["epsilon_pld"]
            == epsilon_pld([spend], 1e-5)
            <= 2
            < document["epsilon_rdp"]
            == epsilon_rdp([spend], 1e-5)
        )
        assert 0 < document["delta_set_aside"] < 1e-9

    def test_pushes_from_epsilon_and_noise(self, capsys: Captured) -> None:
        document = answer(
            capsys, "--epsilon", "2", "--noise-multiplier", "0.8", "--sampling-rate", "0.004"
        )
        assert document["pushes"] == 3080  # privacy.md 3.2 d
        assert document["padded_batch"] is None

    def test_epsilon_from_noise_and_pushes(self, capsys: Captured) -> None:
        document = answer(
            capsys, "--noise-multiplier", "0.8", "--pushes", "3000", "--sampling-rate", "0.004"
        )
        assert document["epsilon_pld"] == pytest.approx(1.975, abs=0.005)
        assert document["budget"] is None

    @pytest.mark.parametrize("mechanism", privacy_budget.MECHANISMS)
    def test_every_mechanism(self, mechanism: str, capsys: Captured) -> None:
        fixed = ("--pushes", "50", "--sampling-rate", "0.1", "--mechanism", mechanism)
        noise = answer(capsys, "--epsilon", "1", *fixed)["noise_multiplier"]
        assert 0.99 < answer(capsys, "--noise-multiplier", str(noise), *fixed)["epsilon_pld"] <= 1
        assert answer(capsys, "--noise-multiplier", str(noise - 0.002), *fixed)["epsilon_pld"] > 1

    def test_no_guarantee_is_null(self, capsys: Captured) -> None:
        fixed = ("--noise-multiplier", "0.0005", "--pushes", "1", "--sampling-rate", "1")
        assert answer(capsys, *fixed)["epsilon_pld"] is None
        assert tacit("plan", "privacy", *fixed) == 0
        output = capsys.readouterr().out
        assert output.count("∞ (not private)") == 2
        assert "no guarantee" in output


def test_the_table_says_what_was_asked(capsys: Captured) -> None:
    assert (
        tacit(
            "plan",
            "privacy",
            "--epsilon",
            "2",
            "--pushes",
            "100",
            "--batch",
            "32",
            "--records",
            "300000",
        )
        == 0
    )
    output = capsys.readouterr().out
    for phrase in (
        "gaussian",
        "ε (PLD)",
        "of 2",
        "ε (RDP)",
        "b = 32 of 300000 records",
        "padded batch",
    ):
        assert phrase in output
    assert f"{padded_size(300_000, 32 / 300_000)} rows" in output
    assert "δ is above 1/records" in output


def test_the_picture_is_a_png_with_something_in_it(tmp_path: Path, capsys: Captured) -> None:
    file = tmp_path / "plan.png"
    answer(
        capsys, "--epsilon", "1", "--pushes", "20", "--sampling-rate", "0.1", "--plot", str(file)
    )
    from matplotlib import image

    picture = image.imread(file)
    assert picture.shape[:2] == (528, 840)
    green = abs(picture[..., :3] - [0.0, 0x9E / 255, 0x73 / 255]).max(-1) < 0.02
    assert green.sum() > 300  # the plan's own curve


RATE = ("--sampling-rate", "0.1")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--epsilon", "-1", "--pushes", "5", *RATE), "--epsilon -1.0: expected a number above 0"),
        (("--epsilon", "nan", "--pushes", "5", *RATE), "--epsilon nan"),
        (("--epsilon", "inf", "--pushes", "5", *RATE), "--epsilon inf"),
        (("--epsilon", "1", "--pushes", "0", *RATE), "--pushes 0"),
        (
            ("--epsilon", "1", "--pushes", "5", "--delta", "1", *RATE),
            "--delta 1.0: expected a number above 0 and",
        ),
        (("--epsilon", "1", "--pushes", "5", "--sampling-rate", "1.5"), "--sampling-rate 1.5"),
        (
            ("--epsilon", "1", "--pushes", "5"),
            "--sampling-rate is needed, or --batch and --records",
        ),
        (("--epsilon", "1", "--pushes", "5", "--batch", "9"), "--sampling-rate is needed"),
        (
            ("--epsilon", "1", "--pushes", "5", "--batch", "9", "--records", "8"),
            "--batch 9: is above --records 8",
        ),
        (
            ("--epsilon", "1", "--pushes", "5", "--batch", "9", *RATE),
            "--batch 9: --sampling-rate 0.1 says it",
        ),
        (
            ("--epsilon", "1", *RATE),
            "two of --epsilon, --pushes and --noise-multiplier are needed (given",
        ),
        (
            ("--epsilon", "1", "--pushes", "5", "--noise-multiplier", "1", *RATE),
            "--noise-multiplier 1.0)",
        ),
        (
            ("--epsilon", "0.01", "--noise-multiplier", "1", "--sampling-rate", "1"),
            "--epsilon 0.01: not one push",
        ),
        (
            ("--epsilon", "1e-6", "--delta", "1e-12", "--pushes", "1000000", *RATE),
            "--epsilon=1e-06: no noise reaches",
        ),
        (
            ("--epsilon", "1", "--pushes", "5", "--mechanism", "laplace", *RATE),
            "--mechanism 'laplace': expected one",
        ),
        (
            ("--epsilon", "1", "--pushes", "5", "--plot", "x.pdf", *RATE),
            "--plot x.pdf: expected FILE.png",
        ),
        (
            ("--epsilon", "1", "--pushes", "5", "--plot", "/nowhere/x.png", *RATE),
            "--plot /nowhere/x.png: No such file",
        ),
        (("--epsilon", "1", "--pushes", "five", *RATE), "--pushes"),
    ],
)
def test_bad_input_is_one_line(arguments: tuple[str, ...], message: str, capsys: Captured) -> None:
    assert tacit("plan", "privacy", *arguments) == 2
    assert message in one_line(capsys)


def test_without_a_command_the_group_shows_its_help(capsys: Captured) -> None:
    tacit("plan")
    captured = capsys.readouterr()
    assert "privacy" in captured.out + captured.err
