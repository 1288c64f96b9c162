"""What a terminal says of looks at held-out rows: intervals, and never a zero for what is hidden."""

from __future__ import annotations

import io
from typing import Any

import pytest
from rich.console import Console
from tacit_client import Status
from tacit_services.display import judged_lines, live, text_tables

ACCURACY = {"value": 0.8312, "low": 0.8, "high": 0.8625}
JUDGED: dict[str, Any] = {
    "look": 2,
    "looks": 5,
    "version": 40,
    "edges": 3,
    "of": 4,
    "suppressed": False,
    "metrics": {"accuracy": ACCURACY, "auc": {"value": 0.9, "low": 0.85, "high": 0.95}},
    "best": 1,
    "epsilon": 0.3,
}
HIDDEN = JUDGED | {"suppressed": True, "metrics": {}, "best": None}


def status(judged: dict[str, Any] | None, accuracy: float | None = None) -> Status:
    return Status.model_validate(
        {
            "state": "training", "edges_online": 3, "target": 100, "algorithm": "fedasync",
            "dataset": "clinic", "model": "logistic", "parameters": 3, "seed": 0, "edges": 3,
            "applied": 40, "duplicates": 0, "rejected": 0, "duration_s": 1.0, "updates_per_s": 1.0,
            "test_accuracy": accuracy, "test_loss": None, "model_version": 40,
            "model_sha256": "0" * 64, "stages": 1,
            "staleness": {"mean": 1.0, "p95": 1, "max": 1},
            "schedule": {"clip": 1.0, "learning_rate": 1.0},
            "privacy": {"guarantee": "g", "delta": 1e-5, "epsilon": 1.0},
            **({} if judged is None else {"judged": judged}),
        }
    )  # fmt: skip


def table(run: Status) -> str:
    console = Console(width=300, file=io.StringIO())
    with console.capture() as capture:
        console.print(text_tables.status(console, run))
    return capture.get()


def test_the_live_line_has_the_first_figure_with_its_interval() -> None:
    line = live.facts(status(JUDGED))
    assert line.startswith("judged accuracy 0.8312 (0.8 to 0.8625) (look 2 of 5) · ")
    assert text_tables.line(status(JUDGED), as_json=False).startswith(
        "training 40/100 judged accuracy 0.8312 (0.8 to 0.8625) (look 2 of 5) edges 3"
    )


def test_a_public_test_set_goes_first_in_the_live_line() -> None:
    assert live.facts(status(JUDGED, 0.9)).startswith("accuracy 90.0 % · ")
    assert live.facts(status(None)).startswith("accuracy - · ")


@pytest.mark.parametrize("say", [live.facts, lambda run: text_tables.line(run, as_json=False)])
def test_what_the_noise_hides_is_no_number(say: Any) -> None:
    line = say(status(HIDDEN))
    assert "judged: hidden by noise (look 2 of 5)" in line
    assert "accuracy" not in line


def test_a_status_says_of_how_many_edges_a_look_is_and_which_is_the_best() -> None:
    shown = " ".join(table(status(JUDGED)).split())
    assert (
        "accuracy 0.8312 (0.8 to 0.8625), auc 0.9 (0.85 to 0.95); 95 % intervals of the noise; "
        "look 2 of 5, at version 40, by 3 of 4 edges; the best so far is that of look 1"
    ) in shown
    hidden = " ".join(table(status(HIDDEN)).split())
    assert "look 2 of 5, at version 40, by 3 of 4 edges: the noise hides all figures" in hidden
    assert "judged" not in table(status(None))


def test_the_end_says_what_judging_may_have_cost() -> None:
    look = JUDGED | {"beyond_constant": {"value": 0.2, "low": 0.1, "high": 0.3}}
    summary: dict[str, Any] = {"looks": [look]}
    (name, words), *figures = judged_lines.rows(summary)
    assert name == "judged at edges"
    assert "3 of 4 edges" in words
    assert "ε 0.3 of the units held out, for all looks" in words
    assert figures[0] == ("accuracy", "0.8312 (0.8 to 0.8625)")
    assert judged_lines.rows({"looks": [HIDDEN]}) == [
        ("judged at edges", "look 2 of 5, 3 of 4 edges: the noise hides all figures")
    ]
