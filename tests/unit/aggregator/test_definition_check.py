"""An edge takes part by the run's own definition; one that differs is told in which key."""

from __future__ import annotations

from typing import Any

import pytest
from tacit_services.aggregator.ingest.definition_check import DefinitionCheck

from tacit import config
from tacit.digests import canonical
from tacit.errors import WireError
from tacit.protocol._pb import wire_pb2 as pb

RUN = """
run.updates = 5
run.seed = {seed}
data.dataset = "digits"
model.name = "{model}"
model.hidden = {hidden}
algorithm.name = "mapa"
edges.count = 2
"""


def stated(
    seed: int = 3, model: str = "mlp", hidden: str = "[8]", more: str = ""
) -> dict[str, Any]:
    text = RUN.format(seed=seed, model=model, hidden=hidden) + more
    return config.parse(text, "test").agreed()


def hello(definition: str) -> pb.Meta:
    return pb.Meta(hello=pb.Hello(definition=definition))


def test_the_same_definition_is_taken() -> None:
    here = DefinitionCheck(stated())
    here.check(hello(canonical(stated())))
    # What only an aggregator reads is its own business.
    here.check(hello(canonical(stated(more='edges.min = 1\nevaluation.every = 3\nrun.name = "x"'))))
    here.check(pb.Meta(update=pb.Update()))


@pytest.mark.parametrize(
    ("theirs", "message"),
    [
        (stated(seed=4), "definition: run.seed=4, here 3"),
        (stated(seed=1), "definition: run.seed=left out, here 3"),
        (stated(hidden="[16]"), "definition: model.hidden=[16], here [8]"),
        (stated(model="cnn"), 'definition: model.name="cnn", here "mlp"'),
    ],
)
def test_another_is_refused_with_the_key_that_differs(theirs: dict[str, Any], message: str) -> None:
    with pytest.raises(WireError) as refused:
        DefinitionCheck(stated()).check(hello(canonical(theirs)))
    assert str(refused.value) == message
    assert refused.value.reason == "definition"


def test_a_hello_without_one_is_refused() -> None:
    with pytest.raises(WireError) as refused:
        DefinitionCheck(stated()).check(hello(""))
    assert str(refused.value) == "definition: the Hello has none"


@pytest.mark.parametrize(
    "text", ["{", "[" * 100_000, "x" * (1 << 19), '{"\\u0000\\n": 1}', "5", "null"]
)
def test_what_is_no_definition_is_refused_in_one_short_line(text: str) -> None:
    with pytest.raises(WireError) as refused:
        DefinitionCheck(stated()).check(hello(text))
    assert len(str(refused.value)) < 200
    assert str(refused.value).isprintable()
