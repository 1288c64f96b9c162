"""A definition is the sections of its run file, and what follows from them."""

from __future__ import annotations

from dataclasses import fields

import pytest
from pydantic import BaseModel

from tacit import config
from tacit.config import RunFile
from tacit.config.asked import AskSection
from tacit.config.definition import Definition

FILE = """
[run]
updates = 10
[data]
dataset = "digits"
[model]
name = "logistic"
[algorithm]
name = "{name}"
[edges]
count = 4
slowdown = [3.0, 2.0]
"""


def run_file(more: str = "", name: str = "mapa") -> RunFile:
    return config.parse(FILE.format(name=name) + more, "test")


def test_a_definition_has_the_sections_of_its_run_file_under_the_same_names() -> None:
    run = run_file()
    definition = run.define()
    for name in RunFile.model_fields:
        assert getattr(definition, name) is getattr(run, name)


def test_what_follows_from_the_sections_takes_the_name_of_no_key() -> None:
    run = run_file()
    kinds: list[type[BaseModel]] = [
        AskSection,
        *(type(getattr(run, name)) for name in RunFile.model_fields.keys() - {"ask"}),
    ]
    keys = {key for kind in kinds for key in kind.model_fields}
    assert not keys & ({field.name for field in fields(Definition)} - RunFile.model_fields.keys())


@pytest.mark.parametrize(("more", "needed"), [("", 4), ("min = 2", 2)])
def test_a_run_begins_with_edges_min_or_all(more: str, needed: int) -> None:
    assert run_file(more).define().edges.needed_to_start == needed


def test_an_edge_without_a_slowdown_computes_as_fast_as_others() -> None:
    edges = run_file().define().edges
    assert [edges.slowdown_of(number) for number in range(4)] == [3.0, 2.0, 1.0, 1.0]


@pytest.mark.parametrize(("more", "clip"), [("", 1.0), ("clip = 2.5", 2.5)])
def test_c_is_one_where_none_is_given_and_nothing_is_clipped(more: str, clip: float) -> None:
    run = run_file(f'[privacy]\nmechanism = "none"\n{more}', "asgd")
    assert run.define().privacy.constant_clip == clip


@pytest.mark.parametrize(
    ("more", "name", "enforced"),
    [("", "mapa", True), ('share = "any"', "mapa", False), ("", "fedavg", False)],
)
def test_shares_are_enforced_where_a_server_answers_its_edges_one_by_one(
    more: str, name: str, enforced: bool
) -> None:
    assert run_file(more, name).define().enforces_share is enforced
