"""The picture of `tacit watch`, beside what was drawn by hand."""

from __future__ import annotations

import io
from typing import Any

import pytest
from rich.console import Console
from tacit_client import Edge, Point
from tacit_services.display import watch


def point(version: int, accuracy: float | None, loss: float | None = 1.0) -> Point:
    return Point(version=version, seconds=0.0, accuracy=accuracy, loss=loss, samples=9)


def edge(name: str, **changes: Any) -> Edge:
    fields: dict[str, Any] = {
        "id": name,
        "state": "online",
        "updates": 3,
        "pushes": 3,
        "epsilon_pld": 1.0,
        "epsilon_rdp": 1.1,
        "delta": 1e-5,
        "noise_multiplier": 1.0,
        "sampling_rate": 0.1,
        "clip": 1.0,
        "mechanism": "gaussian",
        "adjacency": "add",
        "budget": 2.0,
    }
    return Edge(**fields | changes)


def test_a_line_that_grows_fills_the_height_from_its_least_to_its_largest_value() -> None:
    assert watch.chart([0.25, 0.5, 0.75], 10) == [
        "     0.75 │  █",
        "          │  █",
        "          │ ▁█",
        "          │ ██",
        "          │ ██",
        "     0.25 │▁██",
    ]


def test_of_many_values_each_column_shows_the_last_of_its_part() -> None:
    lines = watch.chart([float(value) for value in range(1000)], 48)
    assert {len(line) for line in lines} == {len("      999 │") + 48}
    assert lines[0].startswith("      999 │")
    assert lines[0].endswith("█")
    assert lines[-1].startswith("       19 │▁")  # the last of the first 48th


def test_values_that_do_not_move_are_a_flat_line() -> None:
    assert watch.chart([0.5, 0.5], 9)[-1] == "      0.5 │▁▁"
    assert watch.chart([0.5, 0.5], 9)[1].strip() == "│"


@pytest.mark.parametrize(
    ("points", "expected"),
    [
        ([point(1, 0.2), point(2, 0.4)], ("accuracy", [0.2, 0.4])),
        ([point(1, None, 3.0), point(2, None, 2.0)], ("loss", [3.0, 2.0])),
        ([], ("loss", [])),
    ],
)
def test_accuracy_is_drawn_where_there_is_one(
    points: list[Point], expected: tuple[str, list[float]]
) -> None:
    assert watch.measured(points) == expected


def drawn(edges: list[Edge], most: int) -> list[str]:
    """Return the lines of a table of at most so many edges."""
    to = Console(width=120, file=io.StringIO(), markup=False)
    to.print(watch._edges(to, edges, most))
    file = to.file
    assert isinstance(file, io.StringIO)
    return file.getvalue().splitlines()


def test_who_should_be_looked_at_comes_first_then_who_has_spent_most() -> None:
    lines = drawn(
        [
            edge("edge-0"),
            edge("edge-1", epsilon_pld=1.5),
            edge("edge-2", state="refusing", refusal="clip above 1"),
            edge("edge-3", epsilon_pld=None, budget=None),
        ],
        3,
    )
    assert lines[1].split()[:2] == ["edge-2", "refusing"]
    assert "clip above 1" in lines[1]
    assert f"{'█' * 15}{'░' * 5} 1.5 of 2" in lines[2]
    assert f"{'█' * 10}{'░' * 10} 1 of 2" in lines[3]
    assert lines[4].strip() == "and 1 more: tacit ledger"
