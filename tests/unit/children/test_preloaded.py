"""The forkserver has imported what every service needs: no child waits for it."""

from __future__ import annotations

import subprocess
import sys

IMPORTED_LATER = """
import importlib, sys
from tacit_services.children import preload

for name in preload._IMPORTED:
    importlib.import_module(name)
before = set(sys.modules)

from tacit.privacy.accounting import RunningRdp, Spend, epsilon_pld
from tacit.privacy.plan import padded_size

spend = Spend(0.1, 1.0, 3, "gaussian")
running = RunningRdp()
running.add(spend)
assert 0 < epsilon_pld((spend,), 1e-5) < running.epsilon(1e-5)
assert padded_size(100, 0.1) > 0
later = {name.partition(".")[0] for name in set(sys.modules) - before}
print(*sorted(later & {"dp_accounting", "scipy"}))
"""


def test_what_an_epsilon_needs_is_there_before_the_first_child() -> None:
    completed = subprocess.run(
        [sys.executable, "-c", IMPORTED_LATER], capture_output=True, text=True, check=True
    )
    assert completed.stdout.split() == []
