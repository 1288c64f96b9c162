"""The usage examples in docstrings are run, and print what they say."""

from __future__ import annotations

import doctest
import importlib

import pytest

MODULES = (
    "tacit.algorithms.base.edge",
    "tacit.algorithms.base.server",
    "tacit.config.definition",
    "tacit.config.run_file",
    "tacit.datasets.benchmarks.load",
    "tacit.models.building",
    "tacit.privacy.accounting.epsilon",
    "tacit.privacy.ledger.durable",
    "tacit.privacy.noise.mechanisms",
    "tacit.privacy.plan",
    "tacit.privacy.policy",
    "tacit.privacy.release.release",
    "tacit.protocol.envelope",
    "tacit.simulation.client_server",
)


@pytest.mark.parametrize("name", MODULES)
def test_the_examples_of_a_module_print_what_they_say(name: str) -> None:
    result = doctest.testmod(importlib.import_module(name))
    assert result.attempted > 0
    assert result.failed == 0
