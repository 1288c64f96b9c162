"""Words of an edge, a server or a forger are shown as they are, and never obeyed.

They come to a terminal and into a log.
"""

from __future__ import annotations

import io
import logging
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from rich.console import Console, RenderableType
from tacit_services.display import live as display
from tacit_services.display import text_tables
from tacit_services.worker.session import Session
from tacit_services.worker.tasks import nothing_kept

from tacit import config
from tacit.protocol._pb import wire_pb2 as pb

EXPERIMENTS = Path(__file__).parents[3] / "experiments"
WORDS = "[/red] [bold]x[/bold] :smile:"


def rendered(picture: RenderableType, console: Console | None = None) -> str:
    console = console or Console(width=300, file=io.StringIO())
    with console.capture() as capture:
        console.print(picture)
    return capture.get()


def edge() -> Any:
    return SimpleNamespace(
        id="edge-1",
        state="online",
        pushes=1,
        sampling_rate=0.5,
        noise_multiplier=1.0,
        epsilon_pld=1.0,
        epsilon_rdp=1.0,
        delta=1e-5,
        budget=2.0,
        budget_of="data",
        refusals=3,
        refusal=WORDS,
    )


def test_a_refusal_with_markup_is_shown_as_it_is() -> None:
    console = Console(
        width=300, file=io.StringIO()
    )  # markup is on: the table itself must not need it off
    assert f"3 ({WORDS})" in rendered(text_tables.ledger(console, [edge()]), console)


@pytest.mark.parametrize("console", [text_tables.console(), text_tables.console(stderr=True)])
def test_lines_of_the_operators_commands_are_no_markup(console: Console) -> None:
    assert WORDS in rendered(f"halt taken ({WORDS})", console)


def test_the_closing_table_shows_names_as_they_are() -> None:
    row = {
        "pushes": 1,
        "sampling_rate": 0.5,
        "noise_multiplier": 1.0,
        "epsilon_pld": 1.0,
        "epsilon_rdp": 1.0,
        "budget": 2,
    }
    privacy = {
        "epsilon": 1.0,
        "delta": 1e-5,
        "unit": "record",
        "trusted": WORDS,
        "edges": {WORDS: row},
    }
    summary = {
        "algorithm": "mapa",
        "dataset": WORDS,
        "test_accuracy": None,
        "applied": 1,
        "updates_per_s": 1.0,
        "duplicates": 0,
        "stale": 0,
        "rejected": 0,
        "stages": 1,
        "schedule": {"clip": 1.0},
        "model_sha256": "x",
        "duration_s": 1.0,
        "privacy": privacy,
        "staleness": {"mean": 0.0, "p95": 0, "max": 0},
    }
    text = rendered(display.closing(summary, Path("[/red]"), 1.0))
    assert text.count(WORDS) == 3
    assert "results in [/red]/" in text


def test_a_forged_receipt_writes_one_plain_line_of_log(caplog: pytest.LogCaptureFixture) -> None:
    outbox: Any = SimpleNamespace(
        oldest=lambda: (7, b""), done=lambda seq, accepted: None, next_seq=lambda: 8
    )
    ledger = SimpleNamespace(charged=lambda: SimpleNamespace(count=0))
    role: Any = SimpleNamespace(edge="edge-1", releaser=SimpleNamespace(ledger=ledger))
    settings: Any = SimpleNamespace(patience=1.0, size=1)  # what else there is is not asked for
    connection: Any = None  # nor is this
    session = Session(role, outbox, settings, connection, lambda state: None, nothing_kept)
    caplog.set_level(logging.WARNING)
    session._receipt(7, pb.Receipt(status=pb.Receipt.REJECTED, reason="\x1b[2J\nfake" + "x" * 300))
    (record,) = caplog.records
    assert record.getMessage() == "message 7 was refused: ?[2J?fake" + "x" * 191


def terminal() -> Console:
    return Console(
        width=80, file=io.StringIO(), force_terminal=True, color_system=None, legacy_windows=False
    )


def test_a_ledger_of_honest_edges_is_whole_in_eighty_columns() -> None:
    entry = edge()
    entry.id, entry.state, entry.pushes, entry.refusals = "edge-12", "retired", 12345, 0
    entry.epsilon_pld, entry.budget, entry.sampling_rate, entry.noise_multiplier = (
        1.936543,
        2.0,
        0.0341333,
        1.123456,
    )
    text = rendered(text_tables.ledger(terminal(), [entry]), terminal())
    (row,) = [line for line in text.splitlines() if "edge-12" in line]
    assert all(len(line) <= 80 for line in text.splitlines())
    for cell in ("retired", "12345", "0.03413", "1.123", "1.937", "0.06345"):  # no more is left
        assert f" {cell} " in row
    assert "…" not in text
    assert text.rstrip().endswith("δ = 1e-05")
    live = rendered(text_tables.ledger(terminal(), [entry], live=True), terminal())
    assert " ".join(live.split()).endswith(
        "δ = 1e-05; while training is on, ε is that of up to an eighth more releases"
    )
    assert all(len(line) <= 80 for line in live.splitlines())
    entry.refusals, other = 2, edge()
    other.delta = 1e-6
    wide = rendered(
        text_tables.ledger(text_tables.console(), [entry, other]), text_tables.console()
    )
    assert all(f" {word} " in wide for word in ("ε (RDP)", "1e-05", "1e-06", "refused"))


def test_the_facts_of_a_run_stand_under_its_bar() -> None:
    console, run = (
        terminal(),
        config.load(Path(__file__).parents[3] / "experiments" / "mapa-digits.toml"),
    )
    schedule = SimpleNamespace(delta_s=0.5, clip=1.0, mixing=None, disagreement=None, asked=None)
    status: Any = SimpleNamespace(
        edges_needed=0,
        applied=40,
        updates_per_s=10.0,
        state="training",
        over=False,
        test_accuracy=0.915,
        judged=None,
        stages=2,
        schedule=schedule,
        staleness=SimpleNamespace(mean=3.5),
        privacy=SimpleNamespace(epsilon=1.25),
        slowest=SimpleNamespace(id="edge-3", releases=7),
    )
    with display.RunProgress(console, run.run.updates) as progress:
        progress.show(status)
    assert isinstance(console.file, io.StringIO)
    last = console.file.getvalue().rpartition("40/")
    bar, *facts = [line.strip() for line in "".join(last[1:]).splitlines()]
    assert bar.startswith(f"40/{run.run.updates}")
    assert "ε ≤ 1.25 · slowest edge-3 (7 releases)" in " ".join(facts)


def test_accuracy_stands_beside_that_of_always_the_same_answer() -> None:
    summary: dict[str, Any] = {
        "test_accuracy": 0.918,
        "constant": {"accuracy": 0.564, "log_loss": 0.685, "brier": 0.49},
    }
    [(name, words)] = display._measured(summary)
    assert (name, words) == ("test accuracy", "91.80 % (always the same answer: 56.40 %)")


def test_no_time_is_left_to_say_where_no_update_comes() -> None:
    progress = display.RunProgress(terminal(), 600)
    status: Any = SimpleNamespace(edges_needed=0, applied=369, updates_per_s=40.0)
    assert "left" in progress._time_left(status)
    progress._printed_applied = 369  # budgets are spent: nothing came since
    assert progress._time_left(status) == ""


@pytest.mark.parametrize(
    ("auc", "phrase"),
    [
        (0.71, "tells the classes apart (AUC 0.710)"),
        (0.52, "no better than always"),
        (None, "no better"),
    ],
)
def test_a_model_that_ranks_a_rare_class_is_not_called_useless(
    auc: float | None, phrase: str
) -> None:
    summary = {
        "constant": {"accuracy": 0.78, "loss": None, "error": 0.01},
        "test_accuracy": 0.781,
        "test_loss": 0.5,
        "metrics": {"auc": auc},
    }
    [line] = display._no_better(summary)
    assert phrase in line.plain


@pytest.mark.parametrize(
    ("accuracy", "better", "phrase"),
    [
        (0.9, True, None),
        (0.9, False, "are not to be believed: log loss 0.884, of the classes' shares alone 0.691"),
        (0.781, True, "its probabilities say more"),
        (0.781, False, "no better than always the same answer"),
    ],
)
def test_probabilities_are_looked_at_beside_the_accuracy(
    accuracy: float, better: bool, phrase: str | None
) -> None:
    summary = {
        "constant": {
            "accuracy": 0.78,
            "loss": None,
            "error": 0.01,
            "log_loss": 0.691,
            "brier": 0.25,
        },
        "calibration": {"log_loss": 0.884, "log_loss_better": better},
        "test_accuracy": accuracy,
        "test_loss": 0.884,
    }
    lines = [line.plain for line in display._no_better(summary)]
    assert len(lines) == (phrase is not None)
    assert phrase is None or phrase in lines[0]


def test_errors_of_a_number_stand_beside_those_of_a_constant() -> None:
    summary = {
        "test_accuracy": None,
        "test_loss": 0.01,
        "metrics": {"rmse": 8.5, "mae": 6.25, "own": 2.0},
        "constant_errors": {"rmse": 12.0, "mae": 10.0},
    }
    shown = dict(display._measured(summary))
    assert shown["rmse"] == "8.5 (always the same answer: 12)"
    assert shown["mae"] == "6.25 (always the same answer: 10)"
    assert shown["own"] == "2"


def test_an_early_end_says_what_it_has_saved() -> None:
    [line] = display._stopped({"unspent": {"edge-0": 1.5, "edge-1": 2.25}})
    assert "each edge keeps ε = 1.50 to 2.25 of its budget" in line.plain
    assert display._stopped({}) == []


def test_a_run_is_a_row_whatever_its_reason_is_and_a_date_that_is_none_is_shown() -> None:
    run = SimpleNamespace(
        name="retina", state="stopped", why="no\n│ retina2 │ ended\x1b[31m", applied=1, updates=2,
        members=[], refused=[], researcher="ada",
    )  # fmt: skip
    console = Console(width=300, file=io.StringIO())
    plain = rendered(text_tables.runs(console, [run]), console)  # type: ignore[list-item]
    run.why = "no"
    assert plain.count("\n") == rendered(text_tables.runs(console, [run]), console).count("\n")  # type: ignore[list-item]
    content = {"members": [], "tokens": [{"name": "t", "left": None, "until": 1e308}]}
    assert "until no date" in rendered(text_tables.members(console, content), console)
