"""Fair participation in real processes: who comes first waits, nobody takes more than its share,
nobody is waited for in vain.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from tacit_client import ApiError, Client, Status, Unreachable

from tests.helpers.processes import PATIENCE, Deployment, Service, deployment
from tests.helpers.run_files import ASGD, MAPA, Layer, toml
from tests.helpers.servers import HOST, free_port, mosquitto, wait_for


class Shown:
    """A deployment whose aggregator shows how it stands."""

    def __init__(self, run: Deployment) -> None:
        self.run, self.address = run, f"{HOST}:{free_port()}"

    def begin(self) -> Service:
        """Start the aggregator."""
        return self.run.aggregator(TACIT_HTTP=self.address)

    def wait(self, so: Callable[[Status], bool]) -> Status:
        """Return the first status that meets the condition."""
        statuses: list[Status] = []

        def seen() -> bool:
            self.run.check_services()
            with (
                suppress(Unreachable, ApiError),
                Client(f"http://{self.address}", timeout=5.0) as client,
            ):
                statuses.append(client.status())
            return bool(statuses) and so(statuses[-1])

        wait_for(seen, PATIENCE)
        return statuses[-1]


@contextmanager
def shown(
    folder: Path, updates: int, edges: str, algorithm: Layer = MAPA
) -> Iterator[tuple[Deployment, Shown]]:
    """Yield a run of three edges; nothing is started yet."""
    text = toml(algorithm, {"edges": edges}, run={"updates": updates}, edges={"count": 3})
    with (
        mosquitto(folder) as broker,
        deployment(
            folder, text, f"{HOST}:{broker.port}", f"sqlite:///{folder / 'store.db'}", "shares"
        ) as run,
    ):
        yield run, Shown(run)


def pushes(summary: dict[str, Any]) -> list[int]:
    """Return the releases of each edge, by name."""
    return [edge["pushes"] for _, edge in sorted(summary["privacy"]["edges"].items())]


def test_an_edge_that_is_there_long_before_the_others_waits_and_has_its_share(
    tmp_path: Path,
) -> None:
    with shown(tmp_path, 300, "") as (run, api):
        # Given an edge that has said Hello, and been told nothing,
        api.begin()
        run.edge(0)
        status = api.wait(lambda status: status.to_json()["edges"] == 1)
        assert (status.edges_needed, status.applied, status.state) == (3, 0, "waiting")
        assert run.pushes(0) == 0
        # when the others come, then it is ahead of neither by more than the slack,
        # and a push that was under way when the run ended.
        run.edge(1), run.edge(2)
        had = pushes(run.ended())
    assert had[0] - max(had[1:]) <= 5 + 2
    assert min(had) >= 25  # a third is 100; on a busy machine one may pass for slow
    assert len(had) == 3


@pytest.mark.exhaustive
def test_a_slow_edge_takes_what_turns_it_can_and_the_others_go_on(tmp_path: Path) -> None:
    with shown(tmp_path, 400, "slowdown = [1.0, 1.0, 1000.0]") as (run, api):
        api.begin()
        for number in range(3):
            run.edge(number)
        had = pushes(run.ended())
    assert had[2] < 40  # of 133: nobody has waited for it
    assert min(had[:2]) >= 0.9 * (400 - had[2]) / 2


@pytest.mark.exhaustive
def test_a_run_begins_after_the_wait_with_those_that_are_there_and_a_latecomer_fits_in(
    tmp_path: Path,
) -> None:
    # Without noise: a delay grows while another edge starts, and the edge then passes for slow.
    with shown(tmp_path, 600, "wait = 1.0", ASGD) as (run, api):
        api.begin()
        run.edge(0), run.edge(1)
        api.wait(lambda status: status.applied >= 100)
        run.edge(2)
        before = api.wait(lambda status: status.edges == 3).applied
        had = pushes(run.ended())
    assert had[2] <= (600 - before) / 3 + 2 * 10 + 2  # its share of what was left, and no burst
    assert abs(had[0] - had[1]) <= 10 + 2


@pytest.mark.slow
def test_a_run_that_has_begun_goes_on_at_once_with_one_edge_of_three(tmp_path: Path) -> None:
    with shown(tmp_path, 300, "wait = 100000.0") as (run, api):
        aggregator = api.begin()
        edges = [run.edge(number) for number in range(3)]
        api.wait(lambda status: status.applied >= 20)
        # When all but one edge are killed, and the aggregator, then nobody waits for them.
        aggregator.kill()
        for edge in edges[1:]:
            edge.kill()
            run.services.remove(edge)
        aggregator.start()
        assert run.ended()["applied"] == 300
