"""A member that does harm below its messages, against a broker with the rules and limits of
compose.yaml: each field, flag and state by itself, with the honest edges' rate and the broker's
memory. Together with all else: test_attack.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.helpers.hostile_packets import PACKET_BEHAVIOURS
from tests.helpers.nightly import nightly
from tests.helpers.servers import MEGABYTE
from tests.helpers.siege import PACKETS_BOUND, Live, running

AGGREGATOR_BOUND = 60 * MEGABYTE
IN_CI = ("never_released",)  # the others take a minute each
LATER = [name for name in PACKET_BEHAVIOURS if name not in IN_CI]
ROUNDS, SECONDS = 2, 6.0  # of calm and attack in turns, and of each in all


@pytest.fixture
def live(tmp_path: Path) -> Iterator[Live]:
    """Yield a run on a broker of its own: one that an attack has filled would stall the next."""
    with running(tmp_path, "below") as live_run:
        yield live_run


@pytest.mark.slow
@pytest.mark.parametrize("behaviour", [*IN_CI, *nightly(*LATER)])
def test_nothing_below_a_message_stops_the_others_or_fills_the_broker(
    live: Live, behaviour: str
) -> None:
    outcome = live.attacked(
        "hostile_packets", (behaviour,), ROUNDS, SECONDS, SECONDS, lambda output: "did " in output
    )
    # The first seconds of an attack, until who floods is shut out, on a busy machine; before, there
    # was nothing left.
    assert outcome.attacked > outcome.usual / 10
    assert outcome.grown[0] < PACKETS_BOUND
    assert outcome.grown[1] < AGGREGATOR_BOUND
    live.goes_on()
