"""`tacit run` of a tree of any commit."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tacit_services.children.processes import free_port

from tacit_lab.bench.peers.window import Rate, system
from tacit_lab.checkout import ROOT

WIDE = Path(__file__).parent / "wide"
# Where a tree's packages are, and its command: the newest, and that of 2ff785b.
LAYOUTS = (
    (("src", "services", "clients/python"), "tacit_services.cli.main"),
    (("src", ".", "clients/python"), "services.cli"),
)
RUN = """
[run]
name = "peers"
updates = 1000000
[data]
dataset = "mnist"
[model]
name = "cnn"
channels = [10, 10]
kernel = 5
hidden = []
[algorithm]
name = "mapa"
smoothness = 0.1
deviation = 1.0
[edges]
count = {edges}
[privacy]
mechanism = "discrete_gaussian"
batch = {batch}
noise_multiplier = 1.0
clip = 1.0
clip_min = 0.5
epsilon = 1e6
[evaluation]
every = 1000000
samples = 1000
"""


def rate(tree: Path, folder: Path, data: Path, seconds: float, edges: int, batch: int) -> Rate:
    """Return the rate of applied updates, with ledger, outbox, journal and receipts."""
    paths, command = next(
        (paths, name)
        for paths, name in LAYOUTS
        if (tree / paths[1] / name.partition(".")[0]).is_dir()
    )
    (folder / "run.toml").write_text(RUN.format(edges=edges, batch=batch), encoding="utf-8")
    port = free_port()
    arguments = ["run", str(folder / "run.toml"), "--out", str(folder / "out"), "--data", str(data)]
    on_path = [WIDE, *(tree / path for path in paths)]
    environment = {"PYTHONPATH": os.pathsep.join(map(str, on_path)), "OMP_NUM_THREADS": "1"}
    with system() as running:
        command_line = [sys.executable, "-m", command, *arguments, "--serve", f"127.0.0.1:{port}"]
        running.start(command_line, folder, "log", environment)
        return running.rate(lambda: _applied(port), seconds)


def _applied(port: int) -> int:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/v1/status", timeout=30) as answer:
            return int(json.load(answer)["applied"])
    except urllib.error.URLError:  # not there yet
        return 0


@contextmanager
def checked_out(commit: str) -> Iterator[Path]:
    """Yield the tree of a commit, in a git worktree of its own, for as long."""
    with tempfile.TemporaryDirectory(prefix="peers-") as folder:
        place = Path(folder) / "tree"
        git = ["git", "-C", str(ROOT), "worktree"]
        subprocess.run([*git, "add", "--quiet", "--detach", str(place), commit], check=True)
        try:
            yield place
        finally:
            subprocess.run([*git, "remove", "--force", str(place)], check=True)
