"""`tacit demo inversion` on a real broker: who is recognised, who is not, and what it costs."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
import torch
from tacit_lab.papers.demo import inversion_demo
from tacit_services.children import processes

from tests.helpers.servers import need
from tests.system.cli.test_main import Captured, one_line, tacit

PUSHES = ("--pushes", "1", "--pushes", "40")
COSINE_BY_CHANCE = 0.2  # 784 pixels of 10 × 784 noise: standard deviation 0.036, five of them


@pytest.fixture(autouse=True)
def clean_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("TACIT_")]:
        monkeypatch.delenv(name)


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Path:
    need("mosquitto")
    out = tmp_path_factory.mktemp("demo")
    with (
        pytest.MonkeyPatch.context() as patch
    ):  # `make` exports TACIT_DATA; this fixture comes before the one above
        patch.delenv("TACIT_DATA", raising=False)
        assert (
            tacit(
                "demo",
                "inversion",
                "--out",
                str(out),
                "--victims",
                "2",
                "--seed",
                "3",
                *PUSHES,
                "--json",
            )
            == 0
        )
    return out


@pytest.fixture(scope="module")
def outcomes(demo: Path) -> dict[tuple[str, int], dict[str, Any]]:
    content = json.loads((demo / "inversion.json").read_text(encoding="utf-8"))
    assert (content["broker"], content["victims"], content["dataset"]) == (
        "mosquitto",
        2,
        "digits/train",
    )
    return {(row["condition"], row["pushes"]): row for row in content["outcomes"]}


def test_without_noise_the_subscriber_has_the_image(
    outcomes: dict[tuple[str, int], dict[str, Any]],
) -> None:
    for pushes in (1, 40):
        row = outcomes["none", pushes]
        assert row["cosine"] == 1
        assert row["psnr_db"] > 90
        assert row["label_rate"] == 1
        assert row["true_epsilon"] is None
    assert outcomes["none-12", 1]["cosine"] > 0.8


def test_the_papers_noise_averages_out_and_its_true_epsilon_is_infinite(
    outcomes: dict[tuple[str, int], dict[str, Any]],
) -> None:
    assert outcomes["paper-1", 40]["cosine"] > 0.9
    assert outcomes["paper-1", 40]["label_rate"] == 1
    assert outcomes["paper-0.1-12", 40]["cosine"] > 0.7
    for (condition, _), row in outcomes.items():
        if condition.startswith("paper"):
            assert row["true_epsilon"] is None
            assert row["claimed_per_push"]
            assert row["noise_multiplier"] == 0


def test_tacits_noise_does_not_and_the_ledger_on_the_wire_says_what_was_spent(
    outcomes: dict[tuple[str, int], dict[str, Any]],
) -> None:
    for total in (8, 2):
        once, often = outcomes[f"tacit-{total}", 1], outcomes[f"tacit-{total}", 40]
        assert abs(once["cosine"]) < COSINE_BY_CHANCE
        assert abs(often["cosine"]) < COSINE_BY_CHANCE
        assert 0 < once["true_epsilon"] < 0.2 * total
        assert 0.98 * total < often["true_epsilon"] <= total
        assert often["psnr_db"] < 12


def test_the_picture_shows_every_condition_under_200_kb(demo: Path) -> None:
    from matplotlib import image

    file = demo / "inversion.png"
    assert file.stat().st_size < 200_000
    picture = image.imread(file)
    assert picture.shape[1] > 600
    red_less_blue = picture[..., 0] - picture[..., 2]
    orange, blue = int((red_less_blue > 0.4).sum()), int((red_less_blue < -0.4).sum())
    assert orange > 500
    assert blue > 500
    assert list(demo.glob("*.tmp*")) == []


def test_without_mosquitto_the_fallback_broker_serves(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "_which", lambda name: None)
    monkeypatch.setattr(inversion_demo, "conditions", lambda pushes: REAL_CONDITIONS(pushes)[:1])
    demonstration = inversion_demo.run(inversion_demo.load(None), (1,), 1, 0, lambda line: None)
    assert demonstration.broker.startswith("amqtt")
    (outcome,) = demonstration.outcomes
    assert outcome.cosine > 0.9999
    assert torch.allclose(outcome.images[0], demonstration.originals[0].double(), atol=1e-4)


REAL_CONDITIONS = inversion_demo.conditions


def test_victims_are_different_digits_and_the_seed_chooses_them() -> None:
    table = inversion_demo.load(None)
    assert table.x.shape[1:] == (1, 28, 28)
    chosen = inversion_demo.pick(table, 6, 0)
    assert len({int(rows.y[0]) for rows in chosen}) == 6
    assert all(bool((rows.y == rows.y[0]).all()) and len(rows) == 12 for rows in chosen)
    again, other = inversion_demo.pick(table, 6, 0), inversion_demo.pick(table, 6, 1)
    assert all(torch.equal(a.x, b.x) for a, b in zip(chosen, again, strict=True))
    assert not all(torch.equal(a.x, b.x) for a, b in zip(chosen, other, strict=True))


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (("--pushes", "0"), 2, "--pushes 0: expected 1 to 10000"),
        (("--victims", "0"), 2, "--victims"),
        (("--out", "/dev/null/x"), 2, "--out /dev/null/x"),
        (("--data", "/nowhere"), 3, "/nowhere"),
    ],
)
def test_bad_input_is_one_line(
    arguments: tuple[str, ...], code: int, message: str, capsys: Captured
) -> None:
    assert tacit("demo", "inversion", *arguments) == code
    assert message in one_line(capsys)


@pytest.mark.parametrize("obstacle", [None, "inversion.png", "inversion.json"])
def test_a_place_that_cannot_be_written_is_said_before_any_work(
    obstacle: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    monkeypatch.setattr(inversion_demo, "load", lambda data: pytest.fail("worked"))
    if obstacle is not None:
        (tmp_path / obstacle).mkdir()
    out = Path("/proc") if obstacle is None else tmp_path  # even root writes nothing into /proc
    assert tacit("demo", "inversion", "--out", str(out)) == 2
    assert f"--out {out}: " in one_line(capsys)
