"""A graph's layers say all that it has, once, and in the order of its work."""

from __future__ import annotations

import math
import random
from functools import cache

import pytest
import torch

from tacit.graphs import graph_folds
from tacit.graphs.graph_check import sketched
from tacit.graphs.graph_facts import GraphFacts, document_of, facts_of, facts_of_checked
from tacit.graphs.graph_file import EXAMPLE, GraphFile, GraphWeight, Node, Of
from tacit.graphs.graph_folds import Repeat, folded
from tacit.graphs.graph_layers import GraphLayer
from tests.helpers.forty_modules import CASES
from tests.helpers.graphs import PLACES, WIDE, WORDS, frozen_case, frozen_transformer, tower


@cache
def facts(name: str) -> GraphFacts:
    return facts_of(frozen_case(name).graph)


def brief(layer: GraphLayer) -> tuple[object, ...]:
    return layer.name, " ".join(layer.operations), layer.sources, layer.shape


@pytest.mark.parametrize("name", CASES)
def test_every_weight_and_every_product_is_in_one_layer(name: str) -> None:
    graph = frozen_case(name).graph
    layers = facts(name).layers
    weights = [weight.name for layer in layers for weight in layer.weights]
    read = {item.of for node in graph.nodes for item in of(node)}
    assert sorted(weights) == sorted(each.name for each in graph.weights if each.name in read)
    assert sum(layer.multiply_adds for layer in layers) == facts(name).multiply_adds
    assert layers[-1].shape[-1] == facts(name).output[-1]
    for number, layer in enumerate(layers, 1):
        assert all(0 <= source < number for source in layer.sources)
        assert layer.operations


def of(node: Node) -> list[Of]:
    values = [*node.args, *node.kwargs.values()]
    lists = [value if isinstance(value, tuple) else (value,) for value in values]
    return [item for value in lists for item in value if isinstance(item, Of)]


@pytest.mark.parametrize("name", CASES)
def test_it_says_without_the_values_what_it_says_with_them(name: str) -> None:
    frozen = frozen_case(name)
    checked = sketched(frozen.graph, frozen.values, torch.zeros(2, dtype=torch.int64))
    assert facts_of_checked(checked) == facts(name)


def test_what_is_trained_is_told_from_what_is_fixed() -> None:
    layers = facts("low rank").layers
    assert [brief(layer) for layer in layers] == [
        ("base", "linear", (0,), (6,)),
        ("down", "matmul", (0,), (2,)),
        ("up", "matmul", (2,), (6,)),
        ("", "add relu", (1, 3), (6,)),
        ("out", "linear", (4,), (3,)),
    ]
    assert [(layer.trained, layer.fixed) for layer in layers] == [
        (0, 42), (12, 0), (12, 0), (0, 0), (21, 0),
    ]  # fmt: skip
    assert layers[3].line.startswith("forty_modules.py:")


def test_a_path_that_leaves_a_layer_ends_it() -> None:
    assert [brief(layer) for layer in facts("residual").layers] == [
        ("0", "linear", (0,), (8,)),
        ("1.inner.0", "linear relu", (1,), (8,)),
        ("", "add", (1, 2), (8,)),
        ("2", "linear", (3,), (3,)),
    ]


def test_a_weight_that_is_read_twice_counts_once() -> None:
    layers = facts("tied").layers
    assert [(layer.name, layer.again, layer.trained) for layer in layers] == [
        ("words", False, 400), ("inner", False, 72), ("words", True, 0),
    ]  # fmt: skip


def test_steps_of_one_cell_are_one_layer() -> None:
    assert [brief(layer) for layer in facts("own recurrence").layers] == [
        ("cell", "gru_cell ×5", (0,), (8,)),
        ("out", "linear", (1,), (3,)),
    ]


def test_blocks_that_repeat_are_rows_once() -> None:
    transformer = facts_of(frozen_transformer(5).graph)
    view = transformer.rows()
    assert view.repeats == (Repeat(3, 10, 5),)
    assert [brief(row.layer) for row in view.rows] == [
        ("words", "embedding", (0,), (PLACES, WIDE)),
        ("places", "embedding add", (1,), (PLACES, WIDE)),
        ("blocks.0.norm1", "layer_norm", (2,), (PLACES, WIDE)),
        ("blocks.0.qkv", "linear scaled_dot_product_attention", (3,), (PLACES, WIDE)),
        ("blocks.0.proj", "linear", (4,), (PLACES, WIDE)),
        ("", "add", (2, 5), (PLACES, WIDE)),
        ("blocks.0.norm2", "layer_norm", (6,), (PLACES, WIDE)),
        ("blocks.0.up", "linear gelu", (7,), (PLACES, 4 * WIDE)),
        ("blocks.0.down", "linear", (8,), (PLACES, WIDE)),
        ("", "add", (6, 9), (PLACES, WIDE)),
        ("norm", "layer_norm", (10,), (PLACES, WIDE)),
        ("words", "linear", (11,), (PLACES, WORDS)),
    ]


def test_blocks_that_read_the_example_itself_repeat_too() -> None:
    assert facts("encoder").rows().repeats == (Repeat(1, 8, 2),)


@pytest.mark.parametrize("most", [3, 4, 17, 40, 200])
def test_a_long_network_has_few_rows_and_all_of_its_numbers(most: int) -> None:
    high = facts_of(tower(300))
    view = high.rows(most)
    assert len(view.rows) == most
    assert sum(row.layers for row in view.rows) == len(high.layers)
    assert sum(row.layer.trained for row in view.rows) == high.trained
    assert sum(row.layer.multiply_adds for row in view.rows) == high.multiply_adds
    for number, row in enumerate(view.rows, 1):
        assert row.layer.sources == (number - 1,)


def drawn(seed: int) -> list[GraphLayer]:
    """Return layers of a network with parts that repeat, drawn by the seed."""
    draw = random.Random(seed)
    layers: list[GraphLayer] = []
    while len(layers) < 120:
        part = [(draw.randrange(4), draw.randrange(1, 9)) for _ in range(draw.randrange(1, 7))]
        for kind, width in part * draw.choice((1, 1, 2, 5, 9)):
            here = len(layers)
            sources = {here, *([max(0, here - 3)] if kind == 3 else ())}
            weight = GraphWeight(
                name=f"w{here}", shape=(width, kind + 1), dtype="float32", trained=kind != 1
            )
            layers.append(
                GraphLayer(
                    f"m{here}", "", (f"op{kind}",), tuple(sorted(sources)), (width,),
                    () if kind == 3 else (weight,), again=False, multiply_adds=width,
                )
            )  # fmt: skip
    return layers


@pytest.mark.parametrize("seed", range(20))
def test_few_rows_add_up_to_all_layers(seed: int) -> None:
    check_sums(drawn(seed))


def check_sums(layers: list[GraphLayer]) -> None:
    for most in (3, 10, 31, 1000):
        view = folded(layers, most)
        times = [1] * len(view.rows)
        for repeat in view.repeats:
            for place in range(repeat.first, repeat.last + 1):
                times[place - 1] = repeat.times
        rows = list(zip(view.rows, times, strict=True))
        assert len(rows) <= most
        assert sum(row.layers * count for row, count in rows) == len(layers)
        for part in ("trained", "fixed", "multiply_adds"):
            total = sum(getattr(row.layer, part) * count for row, count in rows)
            assert total == sum(getattr(layer, part) for layer in layers)
        for number, row in enumerate(view.rows, 1):
            assert row.layer.sources
            assert all(0 <= source < number for source in row.layer.sources)


def test_a_mutant_that_cuts_through_what_repeats_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    cut = graph_folds._gap
    monkeypatch.setattr(graph_folds, "_gap", lambda rows, repeats, most: cut(rows, [], most))
    caught = 0
    for seed in range(20):
        try:
            check_sums(drawn(seed))
        except (AssertionError, KeyError):
            caught += 1
    assert caught > 0


def test_an_output_that_no_operation_made_has_no_layers() -> None:
    graph = frozen_case("linear").graph
    for output in (EXAMPLE, "weight"):
        empty = GraphFile.model_validate(graph.model_copy(update={"output": output, "nodes": ()}))
        assert facts_of(empty).layers == ()
        assert document_of(facts_of(empty))["layers"] == []


def test_what_the_output_does_not_need_is_in_no_layer() -> None:
    graph = frozen_case("mlp").graph
    short = graph.model_copy(update={"output": "%linear"})
    assert [brief(layer) for layer in facts_of(short).layers] == [("0", "linear", (0,), (8,))]


def test_a_document_of_a_large_network_is_small() -> None:
    high = document_of(facts_of(tower(300)))
    assert len(high["layers"]) == 200
    assert sum(row["layers"] for row in high["layers"]) == 300
    assert math.isclose(sum(row["trained"] for row in high["layers"]), high["trained"])
