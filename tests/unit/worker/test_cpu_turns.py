"""Turns at computing: as many at a time as there are, and nobody waits for a dead edge."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path

import pytest
from tacit_services.worker import cpu_turns
from tacit_services.worker.cpu_turns import CpuTurns

from tacit.errors import ConfigError


def test_no_more_edges_compute_at_a_time_than_there_are_turns(tmp_path: Path) -> None:
    now, most, lock = [0], [0], threading.Lock()

    def edge() -> None:
        mine = CpuTurns(tmp_path / "turns")
        for _ in range(20):
            with mine.take():
                with lock:
                    now[0] += 1
                    most[0] = max(most[0], now[0])
                time.sleep(0.0005)  # others would come in now, if they could
                with lock:
                    now[0] -= 1
        mine.close()

    with cpu_turns.pipe(tmp_path / "turns", 2):
        edges = [threading.Thread(target=edge) for _ in range(5)]
        for thread in edges:
            thread.start()
        for thread in edges:
            thread.join()
    assert most[0] == 2


def test_the_turn_of_a_killed_edge_is_replaced_by_whoever_missed_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cpu_turns, "PATIENCE", 0.01)
    with cpu_turns.pipe(tmp_path / "turns", 1):
        killed, other = CpuTurns(tmp_path / "turns"), CpuTurns(tmp_path / "turns")
        assert killed._pipe is not None
        os.read(killed._pipe, 1)  # it dies with the only turn
        killed.close()
        with other.take():  # waits in vain, and goes on
            pass
        assert other._pipe is not None
        assert os.read(other._pipe, 10) == b"."  # one turn again
        other.close()


def test_an_edge_whose_step_fails_gives_its_turn_back(tmp_path: Path) -> None:
    with cpu_turns.pipe(tmp_path / "turns", 1):
        mine = CpuTurns(tmp_path / "turns")
        with pytest.raises(MemoryError), mine.take():
            raise MemoryError
        assert mine._pipe is not None
        assert os.read(mine._pipe, 10) == b"."
        mine.close()
        mine.close()


def test_edges_that_share_a_gpu_compute_one_at_a_time_however_long_a_step_is(
    tmp_path: Path,
) -> None:
    (tmp_path / "gpu").touch()
    mine, other = CpuTurns(tmp_path / "gpu"), CpuTurns(tmp_path / "gpu")
    order: list[str] = []

    def second() -> None:
        with other.take():
            order.append("second")

    thread = threading.Thread(target=second)
    with mine.take():
        thread.start()
        thread.join(0.05)  # it would be through by now, if it could
        order.append("first")
    thread.join()
    assert order == ["first", "second"]


def test_without_a_pipe_every_turn_is_free_and_a_wrong_path_is_refused(tmp_path: Path) -> None:
    free = CpuTurns(None)
    with free.take(), free.take():
        pass
    (tmp_path / "folder").mkdir()
    for name in ("folder", "missing"):
        with pytest.raises(ConfigError, match="not a named pipe"):
            CpuTurns(tmp_path / name)
