"""Graphs that somebody has damaged, or made to harm: each is refused in one line, or runs."""

from __future__ import annotations

import copy
import json
import random
from collections.abc import Callable
from functools import cache
from typing import Any

import pytest
import torch
from torch import Tensor

from tacit.errors import ConfigError
from tacit.graphs.graph_check import CheckedGraph, checked
from tacit.graphs.graph_facts import facts_of_checked
from tacit.graphs.graph_file import MOST_NODES, parse_graph
from tacit.graphs.graph_picture import picture
from tacit.graphs.operations import ITEM, OPERATIONS
from tests.unit.graph.test_freezing import built

SOURCES = ("mlp", "conv2d", "padded attention", "lstm", "words and places", "functions")
_NUMBERS = (0, 1, -1, 2, 7, 1 << 31, 1 << 40, -(1 << 40), 1 << 62, 1 << 70, 1e300, -1e-300)
_WORDS = ("", "$x", "$y", "%linear", "__class__", "add.Tensor", "item", "../x", "nan", "\u2028")


@cache
def document(name: str) -> str:
    _, _, frozen = built(name)
    return frozen.graph.text()


def read(content: Any, name: str) -> CheckedGraph:
    _, _, frozen = built(name)
    graph = parse_graph(json.dumps(content).encode(), "model.file=net.graph.json")
    return checked(graph, frozen.values, torch.tensor([0, 2]))


def read_or_refusal(content: Any, name: str) -> tuple[CheckedGraph | None, str]:
    try:
        return read(content, name), ""
    except ConfigError as error:
        return None, str(error)


def places(content: Any) -> list[tuple[Any, Any]]:
    """Return every (container, key) of a document."""
    if isinstance(content, dict):
        keys = list(content)
    elif isinstance(content, list):
        keys = list(range(len(content)))
    else:
        return []
    inside = [place for key in keys for place in places(content[key])]
    return [(content, key) for key in keys] + inside


def damage(content: Any, chance: random.Random) -> None:
    """Change one place of a document, in place."""
    container, key = chance.choice(places(content))
    value = container[key]
    match chance.randrange(8):
        case 0:
            container[key] = chance.choice(_NUMBERS)
        case 1:
            container[key] = chance.choice(_WORDS)
        case 2:
            container[key] = chance.choice((None, True, [], {}, [[[[1]]]], {"of": "$x"}))
        case 3:
            del container[key]
        case 4 if isinstance(value, int | float) and not isinstance(value, bool):
            container[key] = value * chance.choice((-1, 2, 1000))
        case 5 if isinstance(container, dict) and key == "op":
            container[key] = chance.choice([*OPERATIONS, ITEM, "system.default"])
        case 6 if isinstance(container, dict) and key == "of":
            container[key] = chance.choice(content["nodes"])["name"]
        case _ if isinstance(container, list):
            container.insert(key, copy.deepcopy(chance.choice(container)))


def tried(seed: int) -> bool:
    """Damage a graph, read it, and run it if it is accepted; return whether it is."""
    chance = random.Random(seed)
    name = SOURCES[seed % len(SOURCES)]
    content = json.loads(document(name))
    for _ in range(chance.randint(1, 3)):
        damage(content, chance)
    network, refusal = read_or_refusal(content, name)
    if network is None:
        assert "\n" not in refusal
        assert len(refusal) < 700
        return False
    example = network.graph.example
    x: Tensor = torch.zeros((1, *example.shape), dtype=getattr(torch, example.dtype))
    _, _, frozen = built(name)
    network.network.run(frozen.values, x)
    facts = facts_of_checked(network)
    assert sum(layer.multiply_adds for layer in facts.layers) <= network.multiply_adds
    assert len(picture(facts)) < 40_000
    if network.loss is not None:
        network.loss.run({}, torch.zeros(network.output[1:]), torch.tensor(0))
    return True


def test_a_damaged_graph_is_refused_or_runs() -> None:
    accepted = sum(tried(seed) for seed in range(600))
    assert 0 < accepted < 300


@pytest.mark.exhaustive
def test_ten_thousand_damaged_graphs_are_refused_or_run() -> None:
    for seed in range(600, 10_600):
        tried(seed)


def node(op: str, *args: Any, **more: Any) -> dict[str, Any]:
    return {"name": "%bad", "op": op, "args": list(args), **more}


X, WEIGHT = {"of": "$x"}, {"of": "0.weight"}


@pytest.mark.parametrize(
    ("nodes", "why"),
    [
        ([node("zeros.default", [10**12, 10**12])], "does not fit"),
        ([node("zeros.default", [10**6, 10**6])], "gives 1,000,000,000,000 numbers"),
        ([node("repeat.default", X, [10**9, 10**3])], "gives"),
        ([node("system.default", "id")], "is not an operation that tacit knows"),
        ([node("__class__", X)], "is not an operation that tacit knows"),
        ([node("empty.memory_format", [9])], "reads memory that nobody has written"),
        ([node("add.Tensor", X)], "other is missing"),
        ([node("add.Tensor", X, {"of": "%later"})], "reads %later"),
        ([node("add.Tensor", X, "text")], "other is no tensor"),
        ([node("add.Tensor", X, X, out=1)], "out"),
        ([node("relu.default", X, kwargs={"device": "cuda"})], "has no argument device"),
        ([node("mm.default", X, X)], "does not fit"),
        ([node("embedding.default", WEIGHT, X)], "mask as an index|index outside"),
        ([node("item", X, 0)], r"\$x has no result 0"),
        ([node("relu.default", X), node("relu.default", X)], "stands there twice"),
        ([{**node("relu.default", X), "name": "0.weight"}], "stands there twice"),
        ([{**node("relu.default", X), "name": "a b"}], "name"),
        ([node("relu.default", X)] * (MOST_NODES + 1), "at most"),
    ],
)
def test_what_harms_is_refused_by_its_name(nodes: list[dict[str, Any]], why: str) -> None:
    content = json.loads(document("mlp"))
    content["nodes"] = nodes + content["nodes"]
    with pytest.raises(ConfigError, match=why):
        read(content, "mlp")


def recurrent(change: Callable[[list[Any]], None]) -> Any:
    content = json.loads(document("lstm"))
    [layer] = [node for node in content["nodes"] if node["op"] == "lstm.input"]
    change(layer["args"])
    return content


def without_a_weight(arguments: list[Any]) -> None:
    arguments[2].pop()


def without_a_state(arguments: list[Any]) -> None:
    arguments[1].pop()


def with_more_layers(arguments: list[Any]) -> None:
    arguments[2] += arguments[2]
    arguments[4] *= 2


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (without_a_weight, "has 7 weights, and its layers have 8"),
        (without_a_state, "has 1 states, not 2"),
        (with_more_layers, "states of another shape"),
    ],
)
def test_a_recurrent_layer_that_torch_would_read_past_is_refused(
    change: Callable[[list[Any]], None], why: str
) -> None:
    # Without the check torch ends the process: it reads memory that is not the layer's.
    with pytest.raises(ConfigError, match=why):
        read(recurrent(change), "lstm")


def test_a_constant_that_only_numbers_refuse_is_refused() -> None:
    content = json.loads(document("conv2d"))
    [convolution] = [node for node in content["nodes"] if node["op"].startswith("conv2d")]
    convolution["args"] = [*convolution["args"][:3], [1, 1, 1], *convolution["args"][4:]]
    with pytest.raises(ConfigError, match="fails on an example of zeros"):
        read(content, "conv2d")


def test_a_row_that_would_take_forever_is_refused() -> None:
    content = json.loads(document("mlp"))
    large = [{**node("zeros.default", [8192, 8192]), "name": "%big"}]
    powers = [
        {**node("mm.default", {"of": "%big"}, {"of": "%big"}), "name": f"%power{number}"}
        for number in range(12)
    ]
    content["nodes"] = large + powers + content["nodes"]
    with pytest.raises(ConfigError, match="products"):
        read(content, "mlp")


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda text: text[:-40], "is no JSON"),
        (lambda text: "[" * 100_000, "is no JSON|deeper"),
        (lambda text: text.replace('"format":1', '"format":2'), "a newer one has written it"),
        (lambda text: text.replace('"format":1', '"format":1,"code":"print()"'), "code"),
        (lambda text: text.replace('"op":', '"call":', 1), "nodes.0"),
        (lambda text: " " * (1 << 24) + text, "has over"),
    ],
)
def test_a_file_that_is_no_graph_is_refused(change: Callable[[str], str], why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        parse_graph(change(document("mlp")).encode(), "model.file=net.graph.json")


def test_weights_of_another_shape_or_type_are_refused() -> None:
    _, _, frozen = built("mlp")
    for value in (torch.zeros(3, 3), torch.zeros(8, 6, dtype=torch.float64)):
        with pytest.raises(ConfigError, match=r"0\.weight is"):
            checked(frozen.graph, {**frozen.values, "0.weight": value}, torch.tensor([0, 2]))
