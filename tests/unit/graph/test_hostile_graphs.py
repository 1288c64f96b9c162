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
from tacit.graphs.graph_values import tensors_in
from tacit.graphs.interpreter import Program
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
WHOLE = {"dtype": {"dtype": "int64"}}
BIG = {**node("expand.default", {"of": "0.weight"}, [1 << 20, 8, 6]), "name": "%big"}
NARROW = {"dtype": {"dtype": "int32"}}


def named(name: str, op: str, *args: Any, **more: Any) -> dict[str, Any]:
    return {"name": name, "op": op, "args": list(args), **more}


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
        (
            [
                named("%n", "zeros.default", [4], kwargs=WHOLE),
                node("remainder.Scalar", {"of": "%n"}, -1),
            ],
            "divides whole numbers by -1",
        ),
        ([node("div.Scalar_mode", X, -1, kwargs={"rounding_mode": "trunc"})], "by -1"),
        ([node("div.Scalar_mode", X, 3.0, kwargs={"rounding_mode": "floor"})], "use torch.floor"),
        ([node("fmod.Scalar", X, 3.0)], "use a - b"),
        ([node("remainder.Scalar", X, 3)], "use a - b"),
        ([node("floor_divide.default", X, X)], "use torch.floor"),
        (
            [node("instance_norm.default", X, None, None, X, X, True, 0.1, 1e-5, False)],
            "statistics",
        ),
        ([node("embedding.default", WEIGHT, X, -1, False, True)], "sparse"),
        ([node("logcumsumexp.default", X, 0)], "takes a time that numbers tell"),
        ([node("index.Tensor", X, [0])], "where a tensor is needed"),
        (
            [BIG, *(named(f"%sum{n}", "sum.default", {"of": "%big"}) for n in range(90))],
            "reads over",
        ),
        (
            [
                named("%far", "zeros.default", [1 << 14]),
                node("einsum.default", "a,b,c->", [{"of": "%far"}] * 3),
            ],
            "products|may hold",
        ),
        (
            [named(f"%far{n}", "zeros.default", [1 << 27], kwargs=WHOLE) for n in range(3)],
            "bytes in all",
        ),
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


@pytest.mark.parametrize("name", ["layer.weight_hh_l0", "layer.bias_ih_l1", "layer.weight_ih_l1"])
def test_a_recurrent_layer_with_a_smaller_weight_is_refused(name: str) -> None:
    # Without the check its result has numbers of this process's memory.
    content = json.loads(document("lstm"))
    small = named("%small", "narrow.default", {"of": name}, 0, 0, 4)
    content["nodes"].insert(0, small)
    [layer] = [each for each in content["nodes"] if each["op"] == "lstm.input"]
    layer["args"][2] = [
        {"of": "%small"} if each["of"] == name else each for each in layer["args"][2]
    ]
    with pytest.raises(ConfigError, match="has a weight of"):
        read(content, "lstm")


CELLS = {
    "lstm": "lstm_cell.default",
    "gru": "gru_cell.default",
    "rnn_tanh": "rnn_tanh_cell.default",
}


@pytest.mark.parametrize("cell", CELLS)
def test_a_cell_with_smaller_weights_is_refused(cell: str) -> None:
    content = json.loads(document("mlp"))
    states = [{"of": "%state"}] * (2 if cell == "lstm" else 1)
    content["nodes"] = [
        named("%state", "zeros.default", [1, 64]),
        named("%in", "zeros.default", [4, 6]),
        named("%own", "zeros.default", [4, 64]),
        node(
            CELLS[cell],
            X, states if cell == "lstm" else states[0], {"of": "%in"}, {"of": "%own"},
        ),
        *content["nodes"],
    ]  # fmt: skip
    with pytest.raises(ConfigError, match="has a weight of"):
        read(content, "mlp")


@pytest.mark.parametrize("place", range(4))
def test_a_norm_with_fewer_numbers_than_channels_is_refused(place: int) -> None:
    content = json.loads(document("mlp"))
    weights = [{"of": "%whole"}] * 4
    weights[place] = {"of": "%less"}
    content["nodes"] = [
        named("%whole", "ones.default", [6]),
        named("%less", "ones.default", [1]),
        node("_native_batch_norm_legit_no_training.default", X, *weights, 0.1, 1e-5),
        *content["nodes"],
    ]
    with pytest.raises(ConfigError, match=r"has a weight of \[1\] where \[6\] is needed"):
        read(content, "mlp")


@pytest.mark.parametrize(
    "nodes",
    [
        # What is written into another tensor counts, too.
        [
            named("%far", "mul.Scalar", {"of": "%word"}, 1000),
            named("%some", "zeros.default", [1, 2], kwargs=WHOLE),
            named("%place", "select_scatter.default", {"of": "%some"}, {"of": "%far"}, 1, 0),
        ],
        # A tensor of least numbers may raise what it bounds.
        [
            named("%few", "remainder.Scalar", {"of": "$x"}, 4),
            named("%far", "full_like.default", {"of": "%few"}, 999),
            named("%place", "clamp.Tensor", {"of": "%few"}, {"of": "%far"}),
        ],
        # 2**31 of int32 is -2**31.
        [
            named("%narrow", "to.dtype", {"of": "$x"}, {"dtype": "int32"}),
            named("%edge", "add.Scalar", {"of": "%narrow"}, (1 << 31) - 1),
            named("%last", "full_like.default", {"of": "%edge"}, (1 << 31) - 1),
            named("%least", "minimum.default", {"of": "%edge"}, {"of": "%last"}),
            named("%place", "sub.Scalar", {"of": "%least"}, (1 << 31) - 1),
        ],
    ],
)
def test_a_place_that_could_be_outside_is_refused(nodes: list[dict[str, Any]]) -> None:
    content = json.loads(document("words and places"))
    word = named("%word", "select.int", {"of": "$x"}, 1, 0)
    embedding = node("embedding.default", {"of": "words.weight"}, {"of": "%place"})
    content["nodes"] = [word, *nodes, embedding, *content["nodes"]]
    with pytest.raises(ConfigError, match="could have an index outside"):
        read(content, "words and places")


def test_a_graph_that_writes_to_a_weight_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    _, _, frozen = built("mlp")
    values = {name: value.clone() for name, value in frozen.values.items()}
    right = Program.run

    def writes(self: Program, given: dict[str, Tensor], *inputs: Tensor) -> Tensor:
        given["0.bias"].add_(1.0)
        return right(self, given, *inputs)

    monkeypatch.setattr(Program, "run", writes)
    with pytest.raises(ConfigError, match=r"writes to 0\.bias"):
        checked(frozen.graph, values, torch.tensor([0, 2]))


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
        (lambda text: text.replace('"shape":[6]', f'"shape":{[1 << 40] * 3}'), "has over"),
        (lambda text: text.replace('"shape":[8,6]', f'"shape":{[1 << 40] * 3}'), "has over"),
        (lambda text: text.replace('"name":"2.bias"', '"name":"0.bias"', 1), "stands there twice"),
        (lambda text: text.replace('"args":[', '"args":[NaN,', 1), "no number"),
        (lambda text: text.replace('"args":[', '"args":[1e999,', 1), "no number"),
        (
            lambda text: text.replace(
                '"dtype":"float32","name":"0.bias"', '"dtype":"int64","name":"0.bias"'
            ),
            "no gradient",
        ),
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


def safetensors_of(kind: str, content: bytes) -> bytes:
    """Return a file of one tensor, whose type the library may not know."""
    size = len(content) * (2 if kind == "F4" else 1)
    header = {"a": {"dtype": kind, "shape": [size], "data_offsets": [0, len(content)]}}
    text = json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + content


@pytest.mark.parametrize("kind", ["F4", "F8_E8M0"])
def test_numbers_of_a_type_that_torch_has_not_are_refused(kind: str) -> None:
    with pytest.raises(ConfigError, match="not a safetensors file"):
        tensors_in(safetensors_of(kind, bytes(8)), "net.safetensors")
