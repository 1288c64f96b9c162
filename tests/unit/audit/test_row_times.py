"""The time of a row in the compiled loops does not tell its numbers, and a branch is noticed."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tacit.audit.row_times import MODELS, STRANGE, row_times, slowest
from tacit.audit.statistics import Finding
from tacit.kernels.loading import library
from tacit.models import Model

compiled = pytest.mark.skipif(
    library() is None and not os.environ.get("CI"), reason="numba is not installed"
)


@compiled
@pytest.mark.parametrize(("name", "model"), MODELS.items())
def test_no_kind_of_rows_takes_longer_than_another(name: str, model: Model) -> None:
    findings = row_times({name: model})
    assert [finding.verdict for finding in findings] == ["passes"] * 2, findings


@compiled
def test_the_tanh_of_a_library_is_noticed() -> None:
    """Compile the tanh that the loops had before: it takes a shorter way for some numbers."""
    import math

    import numba

    @numba.njit(error_model="numpy")  # type: ignore[untyped-decorator]
    def tanh(z: Any) -> None:
        for j in range(len(z)):
            z[j] = np.float32(math.tanh(z[j]))

    def on(number: float) -> Callable[[], None]:
        numbers, row = np.full(8000, number, dtype=np.float32), np.empty(8000, dtype=np.float32)

        def work() -> None:
            row[:] = numbers
            tanh(row)

        work()
        return work

    ratio = slowest([on(number) for number in STRANGE.values()])
    alarm = Finding("time, strange rows", "libm", "ratio", 1.25, ratio, ratio > 1.25, honest=False)
    assert alarm.verdict == "caught", ratio
