"""A push leaves a fixed time after its model came, however long its rows took."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest
import torch
from tacit_services.worker import release_delay
from tacit_services.worker.cpu_turns import CpuTurns
from tacit_services.worker.release_delay import ReleaseDelay

from tacit import config
from tacit.algorithms import registry
from tacit.algorithms.base.edge import EdgeRole
from tacit.kernels.loading import library
from tacit.privacy.ledger import Ledger
from tacit.privacy.noise.randomness import Random
from tacit.privacy.private_sum.slots import Slots
from tacit.privacy.release import Releaser
from tacit.privacy.release.embeddings import EmbeddingPlan, Mode
from tacit.protocol.vertical import Feedback, Request
from tests.helpers.vafl_rig import world

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
    """Return when a push that took so long leaves, after its model came, and how many were late."""
    clock = Clock()
    delay = ReleaseDelay(lambda: 0.020, clock=clock)
    clock.now += took
    return round(took + delay.left(100.0, steps), 6), delay.late


@pytest.mark.parametrize("took", [0.0, 0.001, 0.012, 0.0199])
def test_a_push_that_is_ready_waits_until_the_delay(took: float) -> None:
    assert leaves_after(took) == (0.020, 0)


@pytest.mark.parametrize(
    ("took", "leaves"), [(0.0201, 0.040), (0.025, 0.040), (0.0399, 0.040), (0.0401, 0.060)]
)
def test_a_late_push_leaves_at_the_next_multiple_and_is_counted(took: float, leaves: float) -> None:
    assert leaves_after(took) == (leaves, 1)


def after(lates: str) -> float:
    """Return D in ms after pushes that took so many times D too long; it was 20."""
    clock = Clock()
    delay = ReleaseDelay(lambda: 0.020, clock=clock)
    for late in lates:
        started_at = delay.starting(clock.now)
        clock.now += (int(late) + 0.3) * delay.seconds
        delay.left(started_at, 1)
    delay.starting(clock.now)
    return round(1000 * delay.seconds, 6)


@pytest.mark.parametrize(
    ("lates", "milliseconds"), [("1", 25), ("0100000", 25), ("11", 31.25), ("19", 31.25)]
)
def test_the_delay_grows_by_a_quarter_with_every_late_push(lates: str, milliseconds: float) -> None:
    assert after(lates) == milliseconds


@pytest.mark.parametrize(
    ("quiet", "milliseconds"),
    [(63, 48.828125), (64, 43.945312), (128, 35.595703), (192, 23.354341)],
)
def test_the_delay_goes_back_ever_quicker_while_nothing_is_late(
    quiet: int, milliseconds: float
) -> None:
    assert after("1111" + "0" * quiet) == milliseconds
    assert after("1111" + "0" * 256) == 20


def test_a_delay_that_has_grown_goes_back_slowly_at_first() -> None:
    assert after("1111" + "0" * 128 + "1" + "0" * 64) == round(35.595703125 * 1.25 * 0.9, 6)


def test_the_delay_has_a_ceiling_and_says_once_that_a_push_came_later(
    caplog: pytest.LogCaptureFixture,
) -> None:
    # Given more late pushes than it takes to be 16 times as long (1.25^13 is 18),
    assert after("1" * 13) == 320
    assert not caplog.records
    # when further ones are late, then they leave at multiples of that.
    assert after("1" * 13 + "123") == 320
    assert len(caplog.records) == 1
    assert "the delay grows no more" in caplog.text


def test_the_delay_grows_to_a_public_number_of_seconds_and_never_below_what_was_measured() -> None:
    clock = Clock()
    for was, most in ((100.0, release_delay.MOST_SECONDS), (900.0, 900.0)):
        delay = ReleaseDelay(lambda was=was: was, clock=clock)  # type: ignore[misc]
        for _ in range(20):
            started_at = delay.starting(clock.now)
            clock.now += 1.3 * delay.seconds
            delay.left(started_at, 1)
        delay.starting(clock.now)
        assert delay.seconds == most


def test_a_delay_that_grows_is_fixed_for_the_push_under_way() -> None:
    clock, agreed = Clock(), [0.02]
    delay = ReleaseDelay(lambda: 0.020, lambda measured: max(measured, *agreed), clock=clock)
    started_at = delay.starting(clock.now)
    assert delay.starting(clock.now) == clock.now
    agreed.append(0.5)
    clock.now += 0.01
    assert round(delay.left(started_at, 1), 6) == 0.01
    delay.starting(clock.now)
    assert delay.seconds == 0.5


def test_late_pushes_are_rare_under_load_and_tell_little_of_the_rows_drawn() -> None:
    """With quarters of D that grew at the fourth of 32, 5.7 % were late, of which a row told 1 %."""
    late, information = under_load(pushes=20_000)
    assert late < 0.02
    assert information < 0.005


def under_load(pushes: int) -> tuple[float, float]:
    """Return the share of late pushes under bursts of load, and its growth with one row more.

    Work of 1 ms and half a millisecond a row, about 16 of 64 rows; D is measured with 33 rows.
    """
    random, clock, slow = np.random.default_rng(1), Clock(), 1.0
    delay = ReleaseDelay(lambda: release_delay.MARGIN * 0.0175, clock=clock)
    rows, late = random.binomial(64, 0.25, pushes), np.zeros(pushes)
    for push in range(pushes):
        if random.random() < 0.05:  # load changes every twentieth push, on average
            slow = random.choice([1.0, 1.5, 2.0, 2.5, 3.0])
        started_at, before = delay.starting(clock.now), delay.late
        clock.now += slow * random.lognormal(0.0, 0.1) * (0.001 + 0.0005 * rows[push])
        clock.now += delay.left(started_at, 1)
        late[push] = delay.late - before
    return float(late.mean()), float(np.polyfit(rows, late, 1)[0])


def test_a_task_of_several_steps_has_so_many_times_the_delay() -> None:
    assert leaves_after(0.030, steps=3) == (0.060, 0)
    assert leaves_after(0.070, steps=3) == (0.120, 1)


def test_no_delay_holds_nothing_back() -> None:
    delay = release_delay.no_delay()
    delay.hold(0.0, 1, threading.Event())
    assert delay.late == 0


def test_the_end_does_not_wait() -> None:
    stop = threading.Event()
    stop.set()
    ReleaseDelay(lambda: 3600.0).hold(time.monotonic(), 1, stop)


def made(
    folder: Path, *, rows_alone: bool, mechanism: str = "discrete_gaussian", name: str = "mapa"
) -> EdgeRole:
    text = RUN.replace("{ batch", f'{{ mechanism = "{mechanism}", batch').replace("mapa", name)
    run = config.parse(text, "test")
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
    other = release_delay.Meeting(tmp_path / "delays" / "run", "edge-1")
    other.begin()
    assert other.longest(7.5) == 7.5
    role = made(tmp_path, rows_alone=True)
    assert delay_of(role, tmp_path / "0").seconds == 7.5
    assert float((tmp_path / "delays" / "run" / "edge-0").read_text()) < 7.5


def test_who_still_measures_is_waited_for(tmp_path: Path) -> None:
    first, second = (release_delay.Meeting(tmp_path, f"edge-{k}") for k in range(2))
    for member in (first, second):
        member.begin()
    delays: list[float] = []
    thread = threading.Thread(target=lambda: delays.append(first.longest(0.1)))
    thread.start()
    thread.join(0.1)
    assert delays == []
    assert second.longest(0.3) == 0.3
    thread.join(60)
    assert delays == [0.3]


def test_edges_of_a_machine_agree_when_a_delay_grows_and_goes_back(tmp_path: Path) -> None:
    first, second = (release_delay.Meeting(tmp_path, f"edge-{k}") for k in range(2))
    for member in (first, second):
        member.begin()
        member._of("edge-0", ".measuring").unlink(missing_ok=True)
    assert first.longest(0.1) == 0.1
    assert second.longest(0.1) == 0.1
    assert first.agreed(0.2) == 0.2
    assert second.agreed(0.1) == 0.2
    assert first.agreed(0.15) == 0.15
    assert second.agreed(0.1) == 0.15


@pytest.mark.parametrize(
    "content", [b"inf", b"nan", b"-5", b"", b"garbage", b"\xff\xfe", b"1e9", b"601", b"9" * 100]
)
def test_what_is_no_delay_is_not_believed(tmp_path: Path, content: bytes) -> None:
    mine, other = (release_delay.Meeting(tmp_path, f"edge-{k}") for k in range(2))
    other.begin()
    assert other.longest(release_delay.MOST_SECONDS) == release_delay.MOST_SECONDS
    mine.begin()
    assert mine.longest(0.1) == release_delay.MOST_SECONDS
    (tmp_path / "edge-1").write_bytes(content)
    assert mine.agreed(0.1) == 0.1
    # Nor is what is no file.
    (tmp_path / "edge-1").unlink()
    os.mkfifo(tmp_path / "edge-1")
    assert mine.agreed(0.1) == 0.1


def test_an_edge_that_has_ended_holds_nobody_back(tmp_path: Path) -> None:
    says = (
        "import sys, pathlib; from tacit_services.worker.release_delay import Meeting;"
        "one, two = (Meeting(pathlib.Path(sys.argv[1]), f'edge-{k}') for k in (1, 2));"
        "one.begin(); said = one.longest(9.0); two.begin(); print(said, flush=True);"
        "sys.stdin.read()"
    )
    command = [sys.executable, "-c", says, str(tmp_path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == b"9.0\n"
        other.kill()
        other.wait()
    assert (tmp_path / "edge-2.measuring").exists()
    mine = release_delay.Meeting(tmp_path, "edge-0")
    mine.begin()
    assert mine.longest(0.1) == 0.1


def test_a_step_of_a_fixed_shape_is_held_back_too(tmp_path: Path) -> None:
    role = made(tmp_path, rows_alone=False)
    assert isinstance(role.private_sum, Slots)
    assert delay_of(role, tmp_path / "0").seconds > 0
    assert role.releaser.ledger.charged().count == 0


def test_what_is_not_private_is_not_held_back(tmp_path: Path) -> None:
    role = made(tmp_path, rows_alone=False, mechanism="none", name="asgd")
    assert delay_of(role, tmp_path / "0").seconds == 0


def test_the_delay_is_of_the_slowest_work_and_slow_work_is_tried_less_often() -> None:
    def quick() -> None: ...

    def slow() -> None:
        sum(range(10**6))

    work, seconds = release_delay.slowest([quick, slow, quick])
    assert work is slow
    assert seconds > 1e-6


@pytest.mark.parametrize("mode", ["cached", "fresh", "trained", "dp_sgd"])
def test_a_partys_answers_are_held_back_for_as_many_batches_as_they_have_rows(
    tmp_path: Path, mode: Mode
) -> None:
    party = world(plan=EmbeddingPlan(mode, 1.0, 50.0, 10.0, 1e-5, 1.0, 50.0)).parties["edge-0"]
    theta, folder = party.theta.clone(), tmp_path / "0"
    folder.mkdir()
    assert release_delay.of_edge(party, CpuTurns(None), folder, "run").seconds > 0
    assert party.releaser.ledger.charged().count == 0
    assert torch.equal(party.theta, theta)
    assert party.step == -1
    assert party.held_steps(Request(1, torch.arange(32))) == 1
    assert party.held_steps(Request(1, torch.arange(33))) == 2
    assert party.held_steps(Feedback(1, 1, None)) == 1


def test_a_peers_gradient_is_held_back_too(tmp_path: Path) -> None:
    role = made(tmp_path, rows_alone=False, mechanism="gaussian", name="adp2sgd")
    assert delay_of(role, tmp_path / "0").seconds > 0
    assert role.releaser.ledger.charged().count == 0
