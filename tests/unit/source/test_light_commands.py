"""Commands that compute nothing do without torch, SciPy and numba, which take seconds to import."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

HEAVY = {"torch", "scipy", "dp_accounting", "numba", "pandas", "pyarrow", "matplotlib"}
# Runs each command line of sys.argv in a fork of its own, which prints a line: all that it has.
EACH_COMMAND = """
import contextlib, os, sys
import cryptography.x509, httpx, numpy, pydantic  # for all of them
from tacit_services.cli.main import main
for line in sys.argv[1:]:
    child = os.fork()
    if child == 0:
        with contextlib.redirect_stdout(sys.stderr), contextlib.suppress(SystemExit):
            main(line.split())
        print(*sys.modules, flush=True)
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
"""
# The same of each module of sys.argv, where a command would stay.
EACH_MODULE = """
import importlib, os, sys
for name in sys.argv[1:]:
    child = os.fork()
    if child == 0:
        importlib.import_module(name)
        print(*sys.modules, flush=True)
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
"""
# Each ends by itself, and imports what it would also need where the host were there.
COMMANDS = (
    "version",
    "serve clinic --systemd",
    "join https://127.0.0.1:1 --systemd",
    "join https://127.0.0.1:1 --token x --ca sha256:0 --data . --state state",
    "offers list --state state",
    "offers accept retina --state state",
    "leave --state state",
    "members list --federation clinic",
    "runs --federation clinic",
    "begin retina --federation clinic",
    "stop retina --federation clinic",
    "results retina --out out --federation clinic",
    "doctor https://127.0.0.1:1",
    "ledger list",
    "status --url http://127.0.0.1:1",
    "watch --url http://127.0.0.1:1",
    "model --url http://127.0.0.1:1 --out model",
    "halt --url http://127.0.0.1:1 --reason enough",
    "health --file health",
)
MODULES = (
    "tacit_services.federation.host",
    "tacit_services.member.membership",
    "tacit_services.member.owner_page",
    "tacit_services.member.owner_terminal",
    "tacit_services.settings",
)


def heavy_of(script: str, names: tuple[str, ...], folder: Path) -> dict[str, set[str]]:
    """Return what is heavy of that which each child of `script` has."""
    completed = subprocess.run(
        [sys.executable, "-c", script, *names],
        cwd=folder, env={"PATH": "", "HOME": str(folder)}, stdin=subprocess.DEVNULL,
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert completed.returncode == 0, completed.stderr
    lines = completed.stdout.splitlines()
    assert len(lines) == len(names), completed.stderr
    packages = [{name.partition(".")[0] for name in line.split()} for line in lines]
    assert all("pydantic" in each for each in packages)
    return {name: each & HEAVY for name, each in zip(names, packages, strict=True)}


@pytest.mark.parametrize(
    ("script", "names"), [(EACH_COMMAND, COMMANDS), (EACH_MODULE, MODULES)], ids=["command", "host"]
)
def test_what_computes_nothing_waits_for_no_library_of_numbers(
    script: str, names: tuple[str, ...], tmp_path: Path
) -> None:
    (tmp_path / "state").mkdir()
    (tmp_path / "clinic").mkdir()
    assert heavy_of(script, names, tmp_path) == {name: set() for name in names}
