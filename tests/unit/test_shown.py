"""Words of an edge, a server or a forger, on a terminal and in a log: shown as they are, never obeyed."""

from __future__ import annotations

import io
import logging
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from rich.console import Console, RenderableType

from services import display, tables
from services.edge.loop import EdgeLoop
from tacit._pb import wire_pb2 as pb

WORDS = "[/red] [bold]x[/bold] :smile:"


def shown(picture: RenderableType, console: Console | None = None) -> str:
    console = console or Console(width=300, file=io.StringIO())
    with console.capture() as capture:
        console.print(picture)
    return capture.get()


def edge() -> Any:
    return SimpleNamespace(
        id="edge-1", state="online", pushes=1, sampling_rate=0.5, noise_multiplier=1.0, epsilon_pld=1.0,
        epsilon_rdp=1.0, delta=1e-5, budget=2.0, refusals=3, refusal=WORDS,
    )  # fmt: skip


def test_a_refusal_with_markup_is_shown_as_it_is() -> None:
    console = Console(width=300, file=io.StringIO())  # markup is on: the table itself must not need it off
    assert f"3 ({WORDS})" in shown(tables.ledger(console, [edge()]), console)


@pytest.mark.parametrize("console", [tables.console(), display.console(to_stderr=False)])
def test_lines_of_the_operators_commands_are_no_markup(console: Console) -> None:
    assert WORDS in shown(f"halt taken ({WORDS})", console)


def test_the_closing_table_shows_names_as_they_are() -> None:
    row = {
        "pushes": 1, "sampling_rate": 0.5, "noise_multiplier": 1.0, "epsilon_pld": 1.0, "epsilon_rdp": 1.0, "budget": 2
    }  # fmt: skip
    privacy = {"epsilon": 1.0, "delta": 1e-5, "unit": "record", "trusted": WORDS, "edges": {WORDS: row}}
    summary = {
        "algorithm": "mapa", "dataset": WORDS, "test_accuracy": None, "applied": 1, "updates_per_s": 1.0,
        "duplicates": 0, "stale": 0, "rejected": 0, "stages": 1, "schedule": {"clip": 1.0}, "model_sha256": "x",
        "duration_s": 1.0, "privacy": privacy, "staleness": {"mean": 0.0, "p95": 0, "max": 0},
    }  # fmt: skip
    text = shown(display.closing(summary, Path("[/red]"), 1.0))
    assert text.count(WORDS) == 3
    assert "results in [/red]/" in text


def test_a_forged_receipt_writes_one_plain_line_of_log(caplog: pytest.LogCaptureFixture) -> None:
    outbox: Any = SimpleNamespace(oldest=lambda: (7, b""), done=lambda seq: None, next_seq=lambda: 8)
    ledger = SimpleNamespace(charged=lambda: SimpleNamespace(count=0))
    role: Any = SimpleNamespace(edge="edge-1", releaser=SimpleNamespace(ledger=ledger))
    loop = EdgeLoop(role, outbox, SimpleNamespace(patience=1.0, size=1))  # type: ignore[arg-type]  # its other terms are not asked for
    caplog.set_level(logging.WARNING)
    loop._receipt(7, pb.Receipt(status=pb.Receipt.REJECTED, reason="\x1b[2J\nfake" + "x" * 300))
    (record,) = caplog.records
    assert record.getMessage() == "message 7 was refused: ?[2J?fake" + "x" * 191
