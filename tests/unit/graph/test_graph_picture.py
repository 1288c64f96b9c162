"""A graph's picture: whole, bounded, readable, and no name of a file is anything but text."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from itertools import combinations
from xml.etree import ElementTree

import pytest

from tacit.errors import ConfigError
from tacit.graphs import graph_picture
from tacit.graphs.graph_facts import GraphFacts, document_of, facts_of
from tacit.graphs.graph_file import GraphFile, parse_graph
from tacit.graphs.graph_picture import MOST_BOXES, picture
from tests.helpers.graphs import frozen_case, frozen_transformer, tower

SVG = "{http://www.w3.org/2000/svg}"
ELEMENTS = {"svg", "title", "style", "rect", "path", "text"}
HOSTILE = (
    "<script>alert(1)</script>",
    "</text></svg><script>alert(1)</script>",
    "\"'/><image href='https://example.org/x.png' onload='alert(1)'/>",
    "<![CDATA[<a xlink:href='javascript:alert(1)'>]]>",
    "&lt;&#60;&amp;{}",
    "a\x1b[2Jb\x00c\u202edef\u200bg\ud800h",
    "]]><!ENTITY x SYSTEM 'file:///etc/passwd'>",
    "W" * 200,
    "漢" * 200,
)


@cache
def graph(name: str) -> GraphFile:
    if name == "transformer":
        return frozen_transformer().graph
    if name == "tower":
        return tower(300)
    return frozen_case(name).graph


def elements(text: str) -> list[ElementTree.Element]:
    return list(ElementTree.fromstring(text).iter())


def words(text: str) -> list[tuple[float, float, float, float]]:
    """Return the room that each text takes: left, top, right, bottom."""
    rooms = []
    for each in elements(text):
        if each.tag != f"{SVG}text":
            continue
        letters = sum(1 if letter.isascii() or letter in "×…" else 2 for letter in each.text or "")
        # A letter of a monospaced font is 0.602 of its size wide.
        wide = 0.602 * (12 if each.get("class") == "name" else 11) * letters
        x, y = float(each.get("x", 0)), float(each.get("y", 0))
        left = x - wide if each.get("text-anchor") == "end" else x
        rooms.append((left, y - 9, left + wide, y + 3))
    return rooms


def check_readable(text: str) -> None:
    """Check that all words and boxes lie in the picture, and no words on others."""
    width, height = (float(elements(text)[0].get(key, 0)) for key in ("width", "height"))
    rooms = words(text)
    for left, top, right, bottom in rooms:
        assert left >= 0
        assert top >= 0
        assert right <= width
        assert bottom <= height
    for one, other in combinations(rooms, 2):
        apart = one[2] <= other[0] or other[2] <= one[0] or one[3] <= other[1] or other[3] <= one[1]
        assert apart, (one, other)
    for box in elements(text):
        if box.tag == f"{SVG}rect":
            assert float(box.get("x", 0)) + float(box.get("width", 0)) <= width
            assert float(box.get("y", 0)) + float(box.get("height", 0)) <= height


SEVERAL = ("two ways", "padded attention", "own attention", "functions", "residual conv", "encoder")


@pytest.mark.parametrize("name", [*SEVERAL, "transformer", "tower"])
def test_all_words_are_in_it_and_none_lies_on_another(name: str) -> None:
    text = picture(facts_of(graph(name)))
    check_readable(text)
    assert {each.tag.removeprefix(SVG) for each in elements(text)} == ELEMENTS
    assert picture(facts_of(graph(name))) == text


def test_a_residual_path_goes_past_the_column() -> None:
    texts = picture(facts_of(graph("transformer")))
    assert texts.count("Q") == 2 * 2  # two corners of each of two paths
    assert ">5×</text>" in texts
    assert picture(facts_of(graph("mlp"))).count("Q") == 0


def test_a_large_network_has_a_small_picture() -> None:
    text = picture(facts_of(graph("tower")))
    assert text.count('<rect class="box') == MOST_BOXES + 2  # the example, and the output
    assert "… 261 more layers" in text
    assert len(text) < 40_000


def renamed(facts: GraphFacts, name: str) -> GraphFacts:
    """Return facts whose names, lines and operations are all `name`."""
    layers = [
        replace(each, name=name, line=name, operations=(name,) * len(each.operations))
        for each in facts.layers
    ]
    return replace(facts, layers=tuple(layers), example=name)


@pytest.mark.parametrize("name", [*HOSTILE, "x" * 1_000_000])
def test_a_name_is_text_and_takes_no_room_of_others(name: str) -> None:
    text = picture(renamed(facts_of(graph("transformer")), name))
    check_readable(text)
    assert {each.tag.removeprefix(SVG) for each in elements(text)} == ELEMENTS
    for each in elements(text):
        assert not any(key.startswith("on") or "href" in key for key in each.attrib)
    assert "\x1b" not in text
    assert "\u202e" not in text
    assert len(text) < 40_000


@pytest.mark.parametrize("line", HOSTILE[:6])
def test_a_hostile_line_of_a_file_is_text(line: str) -> None:
    nodes = tuple(
        each.model_copy(update={"line": line.replace("\ud800", "")}) for each in graph("mlp").nodes
    )
    hostile = graph("mlp").model_copy(update={"nodes": nodes})
    read = parse_graph(hostile.text().encode(), "net.graph.json")
    text = picture(facts_of(read))
    assert {each.tag.removeprefix(SVG) for each in elements(text)} == ELEMENTS


def test_a_mutant_that_writes_names_as_they_are_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(graph_picture, "escape", lambda words: words)
    with pytest.raises((AssertionError, ElementTree.ParseError)):
        test_a_name_is_text_and_takes_no_room_of_others(HOSTILE[0])


def test_a_mutant_that_cuts_no_words_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(graph_picture, "_cut", lambda words, most: words)
    with pytest.raises(AssertionError):
        test_a_name_is_text_and_takes_no_room_of_others(HOSTILE[-2])


@pytest.mark.parametrize(("key", "place"), [("name", "weights"), ("line", "nodes")])
def test_a_name_of_a_megabyte_is_refused_in_one_line(key: str, place: str) -> None:
    content = graph("mlp").model_dump(mode="json")
    content[place][0][key] = "x" * 1_000_000
    text = GraphFile.model_construct(**content).model_dump_json(warnings=False)
    with pytest.raises(ConfigError) as refused:
        parse_graph(text.encode(), "net.graph.json")
    assert len(str(refused.value)) < 300


def test_a_document_has_names_as_they_are() -> None:
    rows = document_of(renamed(facts_of(graph("mlp")), HOSTILE[0]))["layers"]
    assert [row["name"] for row in rows] == [HOSTILE[0]] * 2
