"""No command runs, or is set by, a file of the current folder that is in no SHA-256."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from textwrap import indent

import pytest

from tests.helpers import run_files
from tests.helpers.processes import PATIENCE, environment

TACIT = Path(sys.executable).with_name("tacit")
# Modules of Python's own, of installed packages, of tacit, and two that Python looks for by itself.
NAMES = sorted(
    {name for name in sys.stdlib_module_names if name.isidentifier()}
    | {
        "paho",
        "uvicorn",
        "yaml",
        "redis",
        "torch",
        "numpy",
        "scipy",
        "numba",
        "fastapi",
        "pydantic",
    }
    | {
        "typer",
        "rich",
        "matplotlib",
        "optuna",
        "pyarrow",
        "amqtt",
        "httpx",
        "safetensors",
        "xxhash",
    }
    | {"tacit", "tacit_services", "tacit_client", "tacit_lab", "sitecustomize", "usercustomize"}
)
OWN = """
[run]
name = "own"
updates = 6
[data]
kind = "table"
train = "train.csv"
test = "test.csv"
target = "y"
rows = 60
[data.columns]
a = { low = 0.0, high = 1.0 }
y = { values = ["no", "yes"] }
[model]
name = "python"
entry = "nets:net"
[algorithm]
name = "fedasync"
[privacy]
noise_multiplier = 1.0
epsilon = 50.0
pushes = 20
batch = 20
[edges]
count = 2
"""
NETS = """
from torch import nn
import helper


def net():
    return nn.Linear(1, 2)
"""


class Place:
    """A folder with a run file, a module of its own, and one planted file of every name."""

    def __init__(self, folder: Path, names: Sequence[str] = NAMES) -> None:
        self.folder, self._marks = folder / "here", folder / "marks"
        self.folder.mkdir()
        self._marks.mkdir()
        for name in names:
            (self.folder / f"{name}.py").write_text(
                f"open({str(self._marks / name)!r}, 'w').close()\n"
            )
        (self.folder / ".numba_config.yaml").write_text("disable_jit: 1\n")
        for name, step in (("train", 60), ("test", 61), ("public", 62)):
            rows = [f"{at / step},{'yes' if at % 2 else 'no'}" for at in range(60)]
            (self.folder / f"{name}.csv").write_text("\n".join(["a,y", *rows]) + "\n")
        (self.folder / "nets.py").write_text(NETS)
        (self.folder / "helper.py").write_text("")
        (self.folder / "own.toml").write_text(OWN)
        public = run_files.toml(run_files.MAPA, run={"updates": 6}, edges={"count": 2})
        (self.folder / "run.toml").write_text(public)
        self._variables = environment(XDG_DATA_HOME=str(folder / "home"), COLUMNS="200")

    def tacit(self, *arguments: str) -> str:
        """Return the output of the console script in the folder; it ends well."""
        return self._well(self._ended([str(TACIT), *arguments]))

    def refused(self, *arguments: str) -> str:
        """Return the complaint of the console script."""
        completed = self._ended([str(TACIT), *arguments])
        assert completed.returncode == 2
        return completed.stderr

    def python(self, code: str, **variables: str) -> str:
        """Return the output of code that a command would run; it ends well."""
        script = self.folder.parent / "script.py"  # as the console script, which lies elsewhere
        script.write_text(f'if __name__ == "__main__":\n{indent(code, "    ")}\n')
        return self._well(self._ended([sys.executable, str(script)], **variables))

    def _well(self, completed: subprocess.CompletedProcess[str]) -> str:
        assert completed.returncode == 0, (self.executed(), completed.stdout, completed.stderr)
        return completed.stdout

    def _ended(self, command: list[str], **variables: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            command,
            cwd=self.folder,
            env=self._variables | variables,
            capture_output=True,
            text=True,
            timeout=5 * PATIENCE,
            check=False,
        )

    def executed(self) -> list[str]:
        """Return the planted files that were run by now."""
        return sorted(mark.name for mark in self._marks.iterdir())


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


@pytest.fixture(scope="module")
def own_folder(tmp_path_factory: pytest.TempPathFactory) -> Place:
    """Return a folder with results of a run in `out`.

    It has no `torch.py`, which its own module would import: that is refused.
    """
    names = [name for name in NAMES if name != "torch"]
    new_place = Place(tmp_path_factory.mktemp("own"), names)
    new_place.tacit("run", "own.toml", "--out", "out", "--json")
    return new_place


def test_a_planted_file_that_is_run_leaves_its_mark(place: Place) -> None:
    subprocess.run([sys.executable, "-c", "import paho"], cwd=place.folder, check=True)
    assert "paho" in place.executed()


def test_a_whole_run_on_ones_own_module_executes_nothing_else_of_its_folder(
    own_folder: Place,
) -> None:
    assert own_folder.executed() == []
    assert json.loads((own_folder.folder / "out" / "summary.json").read_text())["applied"] == 6


def test_a_file_that_the_own_module_would_import_for_a_package_is_refused(place: Place) -> None:
    assert "torch is a name of Python's own or of an installed package" in place.refused(
        "check", "own.toml"
    )
    assert place.executed() == []


# One process for all of them: each begins to import when it is called.
COMMANDS = """
from tacit_services.cli.main import main
for command in (
    "plan privacy --epsilon 4 --pushes 10 --batch 10 --records 100",
    "check own.toml",
    "simulate run.toml --out simulated",
    "tune own.toml --public public.csv --trials 1 --out tuned.toml",
    "export model --run out",
    "predict model --table test.csv --out predictions.csv --trust-code",
):
    try:
        main(command.split())
    except SystemExit as ended:
        assert not ended.code, command
"""


@pytest.mark.slow
def test_no_other_command_executes_a_file_of_the_current_folder(own_folder: Place) -> None:
    own_folder.python(COMMANDS)
    assert own_folder.executed() == []
    assert (own_folder.folder / "predictions.csv").exists()


@pytest.mark.exhaustive
def test_the_audit_executes_no_file_of_the_current_folder(place: Place) -> None:
    place.tacit("audit", "--mechanism", "gaussian", "--seed", "1")
    assert place.executed() == []


def test_the_fallback_broker_executes_no_file_of_the_current_folder(place: Place) -> None:
    place.python(
        "from pathlib import Path\n"
        "from tacit_services.children import processes\n"
        "processes._which = lambda name: None\n"
        "children = []\n"
        "with processes.stopping(children):\n"
        "    processes.start_broker(Path(), children)\n"
    )
    assert place.executed() == []


def test_a_file_of_settings_in_the_current_folder_does_not_change_the_loops(place: Place) -> None:
    code = "from tacit.kernels import noise; print(type(noise.places).__name__)"
    assert place.python(code) == "CPUDispatcher\n"


def test_what_the_user_has_put_on_the_path_stays_there(place: Place) -> None:
    theirs = place.folder.parent / "theirs"
    theirs.mkdir()
    (theirs / "sitecustomize.py").write_text(f"open({str(theirs / 'ran')!r}, 'w').close()\n")
    code = "from tacit_services.children import preload; preload.prepare()"
    place.python(code, PYTHONPATH=str(theirs))
    assert (theirs / "ran").exists()
