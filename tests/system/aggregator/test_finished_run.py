"""Whoever starts a run that is over is told so, and what to do: nobody trains, nobody pays."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.helpers.processes import deployment
from tests.helpers.run_files import MAPA, toml
from tests.helpers.servers import HOST, mosquitto


@pytest.mark.slow
def test_a_later_start_says_that_the_run_is_over_and_how_a_new_one_begins(tmp_path: Path) -> None:
    text = toml(MAPA, run={"updates": 4}, edges={"count": 1})
    with (
        mosquitto(tmp_path) as broker,
        deployment(
            tmp_path, text, f"{HOST}:{broker.port}", f"sqlite:///{tmp_path / 'store.db'}", "first"
        ) as run,
    ):
        # Given a run that has ended,
        run.aggregator()
        worked = run.edge(0)
        run.ended()
        paid = run.pushes(0)
        assert paid >= 4
        assert "is over" not in worked.log

        # when both are started again under the same name,
        again = run.aggregator()
        idle = run.edge(0)
        run.ended()

    # then both say so, the edge has paid nothing more, and says which identity it had.
    assert "run 'first' was over before this start" in again.log
    assert "edge-0 released nothing: run 'first' is over" in idle.log
    assert again.log.count("another TACIT_RUN_ID") == idle.log.count("another TACIT_RUN_ID") == 1
    assert run.pushes(0) == paid
    assert f"this process is edge-0: it holds identity {tmp_path}/identities/0" in idle.log
