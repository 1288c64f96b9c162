"""The bench of faults: its plan, its table, its peers' network, and that it ends what it started."""

from __future__ import annotations

import os
import socket
import sys
import threading
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
import torch
from tacit_lab.bench.faults import fault_plan, fault_table, numpy_training, site_rows
from tacit_lab.bench.faults.__main__ import FOUNDERS, missing
from tacit_lab.bench.faults.process_tree import ProcessTree, plain_environment
from tacit_lab.bench.faults.trial import fill, places
from tacit_lab.bench.faults.with_tacit import run_file

from tacit import config
from tests.helpers.network import SEGMENT, network
from tests.helpers.servers import wait_for

PLAN = fault_plan.load()


def test_a_seed_always_hurts_the_same_site_at_the_same_moment_in_the_middle() -> None:
    for row in PLAN.rows.values():
        task = PLAN.task_of(row)
        for seed in range(1, 6):
            moment = PLAN.moment(row, seed)
            assert moment == PLAN.moment(row, seed)
            assert 0 <= moment.site < task.sites
            if row.name not in ("server-killed-last", "large-model"):  # neither has a middle
                assert 0.3 <= moment.updates / task.updates <= 0.65
    assert PLAN.moment(PLAN.rows["server-killed-last"], 1).updates == PLAN.task.updates
    assert len({PLAN.moment(PLAN.rows["link-down"], seed) for seed in range(1, 6)}) > 1


def test_every_time_is_scaled_by_one_factor_and_a_peers_only_where_it_is_a_setting() -> None:
    assert PLAN.seconds(PLAN.rows["link-down"]) == 360 / PLAN.scale
    for peer in PLAN.peers.values():
        for setting in peer["settings"]:
            documented = setting["documented"]
            if isinstance(documented, int) and setting["used"] != documented:
                assert setting["used"] == round(documented / PLAN.scale)
            assert setting["where"]
    assert PLAN.used("flower", "timeout of Strategy.start") == 200
    assert PLAN.peers["tacit"]["settings"] == []


def test_tacits_run_file_sets_no_time(tmp_path: Path) -> None:
    site_rows.write(tmp_path, PLAN.task, seed=1)
    (tmp_path / "site_network.py").write_text("", encoding="ascii")
    (tmp_path / "run.toml").write_text(run_file(PLAN.task, 1), encoding="utf-8")
    run = config.load(tmp_path / "run.toml")
    assert run.run.updates == PLAN.task.updates == 100
    assert not [
        name for name in ("deadline", "wait", "timeout", "_s =") if name in run_file(PLAN.task, 1)
    ]


def test_all_systems_learn_the_same_rows(tmp_path: Path) -> None:
    site_rows.write(tmp_path, PLAN.task, seed=3)
    table = np.loadtxt(tmp_path / "site2.csv", delimiter=",", skiprows=1)
    with np.load(tmp_path / "site2.npz") as rows:
        assert rows["x"].shape == (PLAN.task.rows // PLAN.task.sites, PLAN.task.features)
        np.testing.assert_allclose(
            rows["x"], table[:, :-1] / (2 * site_rows.BOUND) + 0.5, atol=1e-6
        )
        assert (rows["y"] == table[:, -1]).all()


def test_the_peers_gradient_is_that_of_torch() -> None:
    arrays = numpy_training.network(5, 7, 2, seed=1)
    generator = np.random.default_rng(1)
    x = generator.normal(size=(9, 5)).astype(np.float32)
    y = generator.integers(2, size=9)
    tensors = [torch.tensor(array, requires_grad=True) for array in arrays]
    inside = torch.relu(torch.from_numpy(x) @ tensors[0] + tensors[1])
    inside = torch.relu(inside @ tensors[2] + tensors[3])
    loss = torch.nn.functional.cross_entropy(inside @ tensors[4] + tensors[5], torch.from_numpy(y))
    expected = torch.autograd.grad(loss, tensors)
    for gradient, each in zip(numpy_training.gradients(arrays, x, y), expected, strict=True):
        np.testing.assert_allclose(gradient, each.numpy(), atol=1e-6)


def test_a_vector_is_the_arrays_again() -> None:
    arrays = numpy_training.network(5, 7, 2, seed=1)
    again = numpy_training.apart(numpy_training.together(arrays), arrays)
    assert all((array == each).all() for array, each in zip(arrays, again, strict=True))


def run(wall: float, *, finished: bool = True, lost: int = 0, by_hand: int = 0) -> dict[str, Any]:
    return {"finished": finished, "wall_s": wall, "lost": lost, "by_hand": ["again"] * by_hand}


def test_the_table_has_what_was_measured_and_says_what_was_not() -> None:
    runs = {
        "tacit": {
            "nothing": {"1": run(50.0), "2": run(40.0), "3": run(45.0)},
            "link-down": {"1": run(54.0), "2": run(54.0, finished=False)},
        },
        "flower": {
            "nothing": {"1": run(100.0)},
            "server-killed": {"1": run(250.0, lost=42, by_hand=1)},
        },
    }
    table = fault_table.cells(PLAN, runs)
    assert table["link-down"]["tacit"].text() == "1 of 2, lost 0, 1.20 ×"
    assert table["server-killed"]["flower"].text() == "1 of 1, 1 by hand, lost 42, 2.50 ×"
    assert "nvflare" not in table["nothing"]
    assert "| not run |" in fault_table.markdown(PLAN, runs)


def test_a_large_model_is_compared_with_what_its_links_take() -> None:
    row = PLAN.rows["large-model"]
    ideal = PLAN.task_of(row).ideal_s
    assert fault_table.undisturbed(PLAN, {}, "tacit", row) == ideal
    assert 60 < ideal < 120


def test_a_picture_is_drawn(tmp_path: Path) -> None:
    runs = {"tacit": {"nothing": {"1": run(50.0)}, "site-gone": {"1": run(70.0, finished=False)}}}
    fault_table.draw(PLAN, runs, tmp_path / "faults.png")
    assert (tmp_path / "faults.png").read_bytes().startswith(b"\x89PNG")


def test_what_is_measured_is_not_run_again(tmp_path: Path) -> None:
    path = tmp_path / "out" / "faults.json"
    assert fault_table.read(path) == {}
    fault_table.write(path, {"tacit": {"nothing": {"1": run(50.0)}}}, {"flower": "1.42.0"})
    runs = fault_table.read(path)
    assert missing(runs, ["nothing"], ["tacit", "flower"], 2) == [
        ("nothing", "flower", 1),
        ("nothing", "tacit", 2),
        ("nothing", "flower", 2),
    ]
    assert set(FOUNDERS) == set(fault_table.SYSTEMS) == set(PLAN.peers)


LEAVES_A_CHILD = """
import subprocess, sys
subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=True)
"""


def test_a_tree_ends_what_its_program_has_left_behind(tmp_path: Path) -> None:
    command = [sys.executable, "-c", LEAVES_A_CHILD]
    tree = ProcessTree(command, tmp_path, plain_environment(), tmp_path / "log")
    assert tree.code is None
    tree.start()
    wait_for(lambda: tree.code == 0)
    (child,) = tree.members()
    tree.kill()
    assert not list(tree.members())
    assert not psutil.pid_exists(child.pid) or child.status() == psutil.STATUS_ZOMBIE


def test_a_link_has_a_rate_and_lets_nothing_pass_in_the_dark() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server, ExitStack() as end:
        address = f"127.0.0.1:{server.getsockname()[1]}"
        link = end.enter_context(network(address, rate=4 * SEGMENT))
        host, _, port = link.address.partition(":")
        near = end.enter_context(socket.create_connection((host, int(port))))
        far = end.enter_context(server.accept()[0])
        received = bytearray()
        reader = threading.Thread(target=_read_all, args=(far, received), daemon=True)
        reader.start()
        began = time.monotonic()
        near.sendall(bytes(2 * SEGMENT))
        wait_for(lambda: len(received) == 2 * SEGMENT)
        assert time.monotonic() - began >= 0.5
        link.go_dark()
        near.sendall(bytes(10))
        assert len(received) == 2 * SEGMENT
        link.come_back(cut=True)
        reader.join(30.0)
        assert not reader.is_alive()  # it was told that the connection is over
        assert len(received) == 2 * SEGMENT


def _read_all(connection: socket.socket, received: bytearray) -> None:
    try:
        while data := connection.recv(1 << 16):
            received += data
    except OSError:
        return


def test_a_full_disk_is_full_and_has_room_again(tmp_path: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root may mount a small disk")
    row = PLAN.rows["disk-full"]
    with places(PLAN, row, 1) as place:
        fill(place.server / "filler")
        try:
            (place.server / "more").write_bytes(bytes(8192))
            full = False
        except OSError:
            full = True
        (place.server / "filler").unlink()
        (place.server / "more").write_bytes(bytes(8192))
    assert full
