"""A member that does all it can in its messages, against a broker with the rules and limits of
compose.yaml: the others train on, and nobody's memory leaves its bound. In packets:
test_attack_packets.

Twelve seconds of attack with `make test-all`; `make chaos` runs the five minutes.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.helpers.hostile import HARMLESS_TO_THE_MODEL
from tests.helpers.servers import MEGABYTE
from tests.helpers.siege import running

ROUNDS = 3  # of calm and attack
# What the aggregator's queue and its unfinished messages may take in a run of three small edges:
# 8 MiB of queue each, a message of 1 MiB each that is put together twice over, and the heap's holes.
AGGREGATOR_BOUND = 100 * MEGABYTE
# An edge's retained messages (two topics of a megabyte), its queue to the aggregator (in flight, and
# 2,000 messages), and what one connection is sending.
BROKER_BOUND = 256 * MEGABYTE


@pytest.mark.parametrize(
    "seconds",
    [
        pytest.param(12.0, marks=pytest.mark.slow),
        pytest.param(300.0, marks=[pytest.mark.exhaustive, pytest.mark.alone]),
    ],
)
def test_the_others_train_on_and_memory_stays_in_its_bounds(tmp_path: Path, seconds: float) -> None:
    with running(tmp_path, "attacked") as live:
        outcome = live.attacked("hostile", HARMLESS_TO_THE_MODEL, ROUNDS, seconds / 2, seconds)
        assert outcome.attacked > outcome.usual / 2
        if seconds > 100:  # alone on the machine, it does all it can
            assert outcome.effort > seconds / 2
        assert outcome.grown[0] < BROKER_BOUND
        assert outcome.grown[1] < AGGREGATOR_BOUND
        live.goes_on()
