"""The usage examples in the docstrings of the services and of the client do what they show."""

from __future__ import annotations

import doctest
from types import ModuleType

import pytest
import tacit_client.client
from tacit_services.journal import journal_file, store
from tacit_services.journal.store import base
from tacit_services.worker import outbox

MODULES = (journal_file, store, base, outbox, tacit_client.client)


@pytest.mark.parametrize("module", MODULES, ids=lambda module: module.__name__)
def test_the_examples_of_a_module_are_true(module: ModuleType) -> None:
    ended = doctest.testmod(module)
    assert ended.attempted > 0
    assert ended.failed == 0
