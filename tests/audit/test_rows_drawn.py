"""Over a real broker, no time of a push tells how many rows were drawn; without the delay it does.

An edge that computes drawn rows alone takes longer for more of them, and their number is secret.
"""

from __future__ import annotations

import os

import pytest
from tacit_services.cli.audit_rows_drawn import seconds_and_rows

from tacit.audit.times import counted
from tacit.audit.whole import PUSHES
from tacit.kernels.loading import library

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        library() is None and not os.environ.get("CI"), reason="numba is not installed"
    ),
]


def test_the_time_of_a_push_that_is_held_back_does_not_tell_how_many_rows_were_drawn() -> None:
    found = counted(seconds_and_rows, PUSHES["counted"], held=True)
    assert found.honest
    assert found.verdict == "passes", found


def test_the_time_of_a_push_that_is_not_held_back_tells_it() -> None:
    found = counted(seconds_and_rows, PUSHES["counted"], held=False)
    assert not found.honest
    assert found.verdict == "caught", found
