"""MAPA's reference testbed (public repository IoTDATALab/MAPA), as released and repaired.

Its scripts run as they are, from a checkout elsewhere: none of its code is here. Its edges learn
from MNIST's rows in the form of the data that it expects.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
from pathlib import Path

import numpy as np
from tacit_services.children.processes import free_port

from tacit import datasets
from tacit_lab.bench.peers.window import Rate, System, lines, system

RUNNER = Path(__file__).parent / "in_testbed.py"
# MAPA with the clip on the mean: of its private scripts the one whose edges have the least to do.
SCRIPT = "FEMNIST_MAPA_C_Asyn_05_flat.py"
# rows of a file, files of an edge
ROWS = 1000
FILES = 2
NEVER = 10**9


def rate(
    source: Path, python: Path, folder: Path, seconds: float, edges: int, *, repaired: bool
) -> Rate:
    """Return the rate of gradients that the testbed's server has applied.

    source: its checkout. python: of a venv with what it needs. repaired: TCP_NODELAY on all
    sockets, one torch thread an edge, the server's accountant off.
    """
    port = free_port()
    how = "repaired" if repaired else "released"
    settings = {"MQTT_IP": "127.0.0.1", "MQTT_PORT": str(port), "RESULT_ROOT": f"{folder}/"}
    settings |= {"EPOCH": str(NEVER), "TEST_NUM": str(NEVER), "BATCH_SIZE": "48"}
    settings |= {"OMP_NUM_THREADS": "1"} if repaired else {}

    def started(running: System, part: str, log: str, **more: str) -> Path:
        script = source / "Experiments_docker" / part / f"{part}-{SCRIPT}"
        command = [str(python), "-u", str(RUNNER), str(script), how]
        return running.start(command, folder, log, settings | more)

    with system() as running:
        log = _broker(running, folder, port, no_delay=repaired)
        for number in range(edges):
            variables = {"NUM": str(FILES * number), "EDGE_NAME": str(number)}
            started(running, "edge", f"edge-{number}.log", **variables)
        running.until(lambda: log.read_bytes().count(b" init") >= edges, "the testbed's edges")
        cloud = started(running, "cloud", "cloud.log")
        return running.rate(lambda: lines(cloud, b"step:"), seconds)


def _broker(running: System, folder: Path, port: int, *, no_delay: bool) -> Path:
    """Start mosquitto as in the testbed's containers; return its log of subscriptions."""
    program = shutil.which("mosquitto", path=os.environ["PATH"] + ":/usr/sbin")
    if program is None:
        raise RuntimeError("mosquitto: not installed")
    directives = [f"listener {port} 127.0.0.1", "allow_anonymous true", "log_type subscribe"]
    directives += ["set_tcp_nodelay true"] if no_delay else []
    (folder / "mosquitto.conf").write_text("\n".join(directives) + "\n", encoding="ascii")
    log = running.start([program, "-c", str(folder / "mosquitto.conf")], folder, "broker.log", {})
    running.until(lambda: _open(port), "mosquitto")
    return log


def _open(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def write_rows(data: Path, folder: Path, edges: int) -> None:
    """Write MNIST's rows for `edges` edges, in the files that the testbed reads in `folder`."""
    rows = datasets.load("mnist", "train", data)
    for number in range(FILES * edges):
        part = slice(number * ROWS, (number + 1) * ROWS)
        x = np.round(rows.x[part].flatten(1).numpy().astype(float), 4)
        y = rows.y[part]
        for split, count in (("train", ROWS), ("test", 48)):
            user = {"x": x[:count].tolist(), "y": y[:count].tolist()}
            path = folder / "data" / "femnist" / split
            path.mkdir(parents=True, exist_ok=True)
            name = f"all_data_{number}_niid_0_keep_0_{split}_9.json"
            (path / name).write_text(json.dumps({"users": ["u"], "user_data": {"u": user}}))
