"""The server driver where things go wrong, over a real broker: every run comes to its end."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.golden.harness import sha256
from tests.helpers.processes import Caller
from tests.helpers.rig import STATUS, Rig, hello_meta, inbound, run_file, take, update_meta


@pytest.mark.parametrize("run_id", ["presence", "model", "down", "up", "control"])
def test_a_run_may_have_any_name(address: str, tmp_path: Path, run_id: str) -> None:
    rig = Rig(run_file(updates=5), address, run_id)
    rig.serve()
    rig.edge(0, tmp_path)
    assert rig.finished().version == 5


@pytest.mark.parametrize(
    ("updates", "third"), [(1, STATUS.STALE), (2, STATUS.ACCEPTED), (9, STATUS.ACCEPTED)]
)
def test_receipts_say_accepted_only_for_what_is_in_the_model(
    address: str, updates: int, third: int
) -> None:
    # Given a run that allows a staleness of 1, and an edge with three updates of version 0 in one
    # batch,
    rig = Rig(run_file(updates=updates, max_staleness=1), address, f"batch-{updates}")
    rig.driver.recover()
    connection = rig.connect()
    caller = Caller(address, rig.run_id, "edge-0")
    take(rig.pipeline, inbound(rig, [hello_meta(rig.run)]))
    # when they are all screened before the first of them is folded,
    take(rig.pipeline, inbound(rig, [update_meta(0)] * 3, 2))
    # then those that came after the last, or became stale, are told that they are not in the model.
    statuses = [caller.receive("receipt").meta.receipt.status for _ in range(4)]
    assert statuses == [STATUS.ACCEPTED, STATUS.ACCEPTED, third, STATUS.STALE]
    assert rig.live.role.version == statuses.count(STATUS.ACCEPTED) - 1
    again = rig.assembled(rig.store)
    again.driver.recover()
    assert sha256(again.run.role) == sha256(rig.live.role)
    caller.connection.stop()
    connection.stop()
