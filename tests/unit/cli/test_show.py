"""`tacit show`: a frozen network as a reviewer reads it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.helpers.graphs import frozen_case, frozen_transformer
from tests.system.cli.test_main import Captured, tacit


def written(folder: Path, text: str) -> str:
    place = folder / "net.graph.json"
    place.write_text(text, encoding="utf-8")
    return str(place)


def test_it_prints_layers_in_order_with_what_is_trained(tmp_path: Path, capsys: Captured) -> None:
    file = written(tmp_path, frozen_case("low rank").graph.text())
    assert tacit("show", file) == 0
    output = capsys.readouterr().out
    words = " ".join(output.split())
    assert "takes 6 numbers (float32)" in words
    assert "gives 3 numbers" in words
    assert "trained 45 numbers in 4 of 6 weights" in words
    assert "fixed 42 numbers" in words
    assert "a row costs 78 multiply-adds, forward" in words
    rows = [line.split() for line in output.splitlines()]
    assert ["1", "base", "linear", "0", "6", "42", "36"] in rows
    assert ["2", "down", "matmul", "0", "2", "12", "12"] in rows
    assert ["5", "out", "linear", "4", "3", "21", "18"] in rows


def test_a_block_that_repeats_stands_there_once(tmp_path: Path, capsys: Captured) -> None:
    file = written(tmp_path, frozen_transformer().graph.text())
    assert tacit("show", file) == 0
    output = capsys.readouterr().out
    assert "blocks.0.norm1  (3 to 10: 5 times)" in output
    assert "blocks.1" not in output
    assert tacit("show", file, "--nodes") == 0
    assert "blocks.4.down.weight  8×32  float32, trained" in capsys.readouterr().out


def test_its_json_has_the_same(tmp_path: Path, capsys: Captured) -> None:
    graph = frozen_transformer().graph
    assert tacit("show", written(tmp_path, graph.text()), "--json") == 0
    document = json.loads(capsys.readouterr().out)
    assert document["sha256"] == graph.digest()
    assert document["repeats"] == [{"first": 3, "last": 10, "times": 5}]
    assert document["layers"][5]["reads"] == [2, 5]
    assert document["output"] == [6, 60]


def test_a_picture_of_it_is_written(tmp_path: Path, capsys: Captured) -> None:
    file = written(tmp_path, frozen_case("encoder").graph.text())
    pictures = [tmp_path / "one.svg", tmp_path / "two.svg"]
    for place in pictures:
        assert tacit("show", file, "--svg", str(place)) == 0
    assert pictures[0].read_bytes() == pictures[1].read_bytes()
    assert pictures[0].read_text(encoding="utf-8").startswith("<svg ")
    assert f"{pictures[0]}: " in capsys.readouterr().out


@pytest.mark.parametrize("option", [(), ("--json",), ("--nodes",)])
def test_what_a_terminal_would_obey_is_not_printed(
    option: tuple[str, ...], tmp_path: Path, capsys: Captured
) -> None:
    graph = frozen_case("mlp").graph
    line = "\x1b]0;owned\x07<script>[bold red]\u202e"
    nodes = tuple(node.model_copy(update={"line": line}) for node in graph.nodes)
    weights = tuple(each.model_copy(update={"dtype": "float32"}) for each in graph.weights)
    hostile = graph.model_copy(update={"nodes": nodes, "weights": weights})
    assert tacit("show", written(tmp_path, hostile.text()), *option) == 0
    output = capsys.readouterr().out
    assert not set(output) & {"\x1b", "\x07", "\u202e"}
    if option:
        assert "[bold red]" in output


def test_a_picture_that_cannot_be_written_is_one_line(tmp_path: Path, capsys: Captured) -> None:
    file = written(tmp_path, frozen_case("mlp").graph.text())
    assert tacit("show", file, "--svg", str(tmp_path / "none" / "net.svg")) != 0
    assert len(capsys.readouterr().err.splitlines()) == 1
