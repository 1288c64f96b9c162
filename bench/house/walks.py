"""The four walks of a value through a checkout, each in processes of that checkout's own."""

from __future__ import annotations

import itertools
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FOLD = ".apply"  # of a server role: where a gradient's walk ends
STORE = "/store/"  # in the file that makes a message durable: whoever comes before accepts it
LIBRARY = "src/"
PATIENCE = 120.0  # seconds for one walk
GRADIENT, MESSAGE, RUN_FILE, SETTINGS = NAMES = (
    "a gradient, from its examples to the fold",
    "an accepted message, from its arrival to the reply",
    "a run file through `tacit simulate`",
    "the aggregator's settings, to where it would connect",
)
IMPORT_PATHS = ("src", "services", ".", "clients/python")
# A tree must not find packages that it has not got in one that is installed beside it (editable).
ALONE = """
import os, runpy, sys
own = (*os.environ["PYTHONPATH"].split(os.pathsep), sys.prefix, sys.base_prefix)
sys.path[:] = [path for path in sys.path if path.startswith(own)]
runpy.run_module("bench.house.inside", run_name="__main__", alter_sys=True)
"""
RUN = """
[run]
updates = 5
[data]
dataset = "digits"
[model]
name = "mlp"
hidden = [8]
[algorithm]
name = "mapa"
[privacy]
batch = 32
epsilon = 8.0
clip = 1.0
[edges]
count = 1
[evaluation]
every = 5
samples = 50
"""
GUARD = """
[guard]
norm_factor = 1000.0
rate = 1000.0
"""


@dataclass(frozen=True, slots=True)
class Walk:
    """The stops of a value, in order: (file, function)."""

    stops: tuple[tuple[str, str], ...]

    @property
    def files(self) -> list[str]:
        """The files that were opened, in the order in which each was opened first."""
        return list(dict.fromkeys(file for file, _ in self.stops))

    @property
    def rooms(self) -> list[str]:
        """The folders that were entered, likewise."""
        return list(dict.fromkeys(file.rpartition("/")[0] for file in self.files))

    @property
    def accepting(self) -> list[str]:
        """Of a message's walk: the services' files before the store is asked to keep it."""
        before = itertools.takewhile(lambda file: STORE not in file, self.files)
        return [file for file in before if not file.startswith(LIBRARY)]

    @property
    def turns_back(self) -> int:
        """How often a file is opened that was left before."""
        files = [file for file, _ in self.stops]
        openings = [file for file, _ in itertools.groupby(files)]
        return len(openings) - len(self.files)


class Lost(Exception):  # noqa: N818  (a walk that did not come to its end)
    """A tree's process ended without an answer; the message is its last word."""


def walked(tree: Path) -> dict[str, Walk]:
    """The four walks of `tree`. Raises Lost."""
    tree = tree.resolve()
    update, message = _over_mqtt(tree)
    folded = next(number for number, (_, name) in enumerate(message, 1) if name.endswith(FOLD))
    run_file, settings = _alone(tree, "run file"), _alone(tree, "settings")
    stops = ((*update, *message[:folded]), tuple(message), tuple(run_file), tuple(settings))
    return {name: Walk(each) for name, each in zip(NAMES, stops, strict=True)}


def _alone(tree: Path, walk: str) -> list[tuple[str, str]]:
    # Without a broker: an aggregator ends where it connects.
    with _folder() as folder, _Child(tree, walk, folder, _free_port()) as child:
        return child.answer()


def _over_mqtt(tree: Path) -> tuple[list[tuple[str, str]], list[tuple[str, str]]]:
    """The steps of the first update in its edge, and in the aggregator."""
    port = _free_port()
    with _folder(GUARD) as folder, ExitStack() as end:
        end.enter_context(_broker(folder, port))
        aggregator = end.enter_context(_Child(tree, "message", folder, port))
        edge = end.enter_context(_Child(tree, "gradient", folder, port))
        return edge.answer(), aggregator.answer()


class _Child:
    """bench/house/inside.py in a process that has `tree`, and no other, on its import path."""

    def __init__(self, tree: Path, walk: str, folder: Path, port: int) -> None:
        self._walk, self._log = walk, folder / f"{walk}.log"
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-c", ALONE, walk, str(folder)],
                cwd=folder,
                env=_environment(tree, folder, port),
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )

    def __enter__(self) -> _Child:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.communicate()

    def answer(self) -> list[tuple[str, str]]:
        """The steps. Raises Lost."""
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            said = self._log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
            raise Lost(f"{self._walk}: {said[-1] if said else 'ended without a word'}")
        return [(file, name) for file, name in json.loads(line)]


def _environment(tree: Path, folder: Path, port: int) -> dict[str, str]:
    ours = ("TACIT_", "PYTHON")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
    paths = [folder, *(tree / path for path in IMPORT_PATHS)]
    return kept | {
        "PYTHONPATH": os.pathsep.join(map(str, paths)),
        "PYTHONSAFEPATH": "1",
        "OMP_NUM_THREADS": "1",
        "TACIT_RUN_FILE": str(folder / "run.toml"),
        "TACIT_BROKER": f"127.0.0.1:{port}",
        "TACIT_STORE": "memory://",
        "TACIT_HTTP": f"127.0.0.1:{_free_port()}",
        "TACIT_OUT": str(folder / "out"),
        "TACIT_IDENTITIES": str(folder / "identities"),
        "TACIT_CONNECT_TIMEOUT": "60" if _listening(port) else "1",
    }


@contextmanager
def _folder(more: str = "") -> Iterator[Path]:
    """With the run file, and this tree's `bench`, which the other tree may not have."""
    with tempfile.TemporaryDirectory(prefix="house-") as name:
        folder = Path(name)
        (folder / "bench").symlink_to(ROOT / "bench")
        (folder / "run.toml").write_text(RUN + more, encoding="utf-8")
        yield folder


@contextmanager
def _broker(folder: Path, port: int) -> Iterator[None]:
    found = shutil.which("mosquitto") or shutil.which("mosquitto", path="/usr/sbin")
    if found is None:
        raise Lost("mosquitto is not installed")
    settings = folder / "mosquitto.conf"
    settings.write_text(f"listener {port} 127.0.0.1\nallow_anonymous true\n", encoding="ascii")
    process = subprocess.Popen([found, "-c", str(settings)], stderr=subprocess.DEVNULL)
    try:
        deadline = time.monotonic() + 10.0
        while not _listening(port):
            if time.monotonic() > deadline:
                raise Lost("mosquitto does not start")
            time.sleep(0.02)
        yield
    finally:
        process.kill()
        process.wait()


def _listening(port: int) -> bool:
    """Whether somebody listens there."""
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
