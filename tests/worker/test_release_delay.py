"""A push leaves a fixed time after its model came, however long its rows took."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest
from tacit_services.worker import release_delay
from tacit_services.worker.cpu_turns import CpuTurns
from tacit_services.worker.release_delay import ReleaseDelay

from tacit import config
from tacit.algorithms import registry
from tacit.algorithms.base.edge import EdgeRole
from tacit.kernels.loading import library
from tacit.privacy.ledger import Ledger
from tacit.privacy.release import Releaser
from tacit.privacy.sampling import Random

RUN = """
run.updates = 10
data.dataset = "digits"
model.name = "logistic"
algorithm.name = "mapa"
edges.count = 2
privacy = { batch = 32, noise_multiplier = 1.0, epsilon = 50.0 }
"""


class Clock:
    """A clock that stands where it is put."""

    now = 100.0

    def __call__(self) -> float:
        return self.now


def leaves_after(took: float, steps: int = 1) -> tuple[float, int]:
    """When a push that took so long leaves, after its model came; and how many were late."""
    clock = Clock()
    delay = ReleaseDelay(lambda: 0.020, clock=clock)
    clock.now += took
    return round(took + delay.left(100.0, steps), 6), delay.late


@pytest.mark.parametrize("took", [0.0, 0.001, 0.012, 0.0199])
def test_a_push_that_is_ready_waits_until_the_delay(took: float) -> None:
    assert leaves_after(took) == (0.020, 0)


@pytest.mark.parametrize(("took", "leaves"), [(0.021, 0.025), (0.0249, 0.025), (0.0251, 0.030)])
def test_a_late_push_leaves_at_the_next_quarter_and_is_counted(took: float, leaves: float) -> None:
    assert leaves_after(took) == (leaves, 1)


def after(lates: str) -> float:
    """D after pushes that were late (1) or not (0), in milliseconds; it was 20."""
    clock = Clock()
    delay = ReleaseDelay(lambda: 0.020, clock=clock)
    for late in lates:
        came = clock.now
        clock.now += 1.3 * delay.seconds if late == "1" else 0.001
        delay.left(came, 1)
    return round(1000 * delay.seconds, 6)


@pytest.mark.parametrize(
    ("lates", "milliseconds"),
    [("111", 20), ("0101010", 20), ("1111", 30), ("10" * 4, 30), ("1111" * 2, 45)],
)
def test_the_delay_grows_by_what_the_wire_has_shown(lates: str, milliseconds: float) -> None:
    assert after(lates) == milliseconds


def test_a_late_push_that_is_long_ago_counts_no_more() -> None:
    assert after("1" + "0" * 32 + "111") == 20


@pytest.mark.parametrize(
    ("quiet", "milliseconds"), [(31, 30), (32, 27), (64, 21.87), (96, 20), (640, 20)]
)
def test_the_delay_goes_back_ever_quicker_while_nothing_is_late(
    quiet: int, milliseconds: float
) -> None:
    assert after("1111" + "0" * quiet) == milliseconds


def test_a_delay_that_has_grown_goes_back_slowly_at_first() -> None:
    assert after("1111" + "0" * 64 + "1111" + "0" * 32) == round(21.87 * 1.5 * 0.9, 6)


def test_a_task_of_several_steps_has_so_many_times_the_delay() -> None:
    assert leaves_after(0.030, steps=3) == (0.060, 0)


def test_work_of_a_fixed_shape_is_not_held_back() -> None:
    delay = release_delay.no_delay()
    delay.hold(0.0, 1, threading.Event())
    assert delay.late == 0


def test_the_end_does_not_wait() -> None:
    stop = threading.Event()
    stop.set()
    ReleaseDelay(lambda: 3600.0).hold(time.monotonic(), 1, stop)


def made(folder: Path, *, rows_alone: bool) -> EdgeRole:
    run = config.parse(RUN, "test")
    definition, part = run.define(), run.source.edge(0, None, folder)
    releaser = Releaser(run.plan(0, part.most), Ledger(":memory:", "digits"), Random())
    model = definition.build_model()
    return registry.edge(definition, "edge-0", part.rows, model, releaser, rows_alone=rows_alone)


def delay_of(role: EdgeRole, folder: Path) -> ReleaseDelay:
    folder.mkdir(parents=True, exist_ok=True)
    return release_delay.of_edge(role, CpuTurns(None), folder, "run")


def test_the_delay_is_measured_with_public_rows_and_charges_nothing(tmp_path: Path) -> None:
    if library() is None:
        pytest.skip("numba is not installed")
    role = made(tmp_path, rows_alone=True)
    delay = delay_of(role, tmp_path / "0")
    assert delay.seconds == delay.seconds > 0
    assert role.releaser.ledger.charged().count == 0
    assert list((tmp_path / "0").iterdir()) == []


def test_the_first_model_is_held_from_when_the_delay_was_measured() -> None:
    clock = Clock()

    def measure() -> float:
        clock.now += 3.0
        return 0.02

    delay = ReleaseDelay(measure, clock=clock)
    assert delay.starting(99.0) == 103.0
    assert delay.starting(103.5) == 103.5


def test_all_edges_of_a_machine_take_the_longest_of_their_delays(tmp_path: Path) -> None:
    if library() is None:
        pytest.skip("numba is not installed")
    (tmp_path / "delays" / "run").mkdir(parents=True)
    (tmp_path / "delays" / "run" / "edge-1").write_text("7.5")
    role = made(tmp_path, rows_alone=True)
    assert delay_of(role, tmp_path / "0").seconds == 7.5
    assert float((tmp_path / "delays" / "run" / "edge-0").read_text()) < 7.5


def test_who_still_measures_is_waited_for(tmp_path: Path) -> None:
    first, second = (release_delay.Meeting(tmp_path, f"edge-{k}") for k in range(2))
    for one in (first, second):
        one.begin()
    found: list[float] = []
    thread = threading.Thread(target=lambda: found.append(first.longest(0.1)))
    thread.start()
    thread.join(0.1)
    assert found == []
    assert second.longest(0.3) == 0.3
    thread.join(60)
    assert found == [0.3]


def test_a_step_of_a_fixed_shape_needs_none(tmp_path: Path) -> None:
    assert delay_of(made(tmp_path, rows_alone=False), tmp_path / "0").seconds == 0
