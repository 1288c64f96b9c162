"""Which libraries a command loads, and what it says where they are not installed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from tacit_services import extras, laboratory

from tacit.errors import ConfigError

SERVERS = {"fastapi", "starlette", "uvicorn", "redis", "amqtt", "prometheus_client", "matplotlib"}
CLIENTS = {"paho", "httpx", "pydantic_settings"}
METADATA = """Metadata-Version: 2.4
Name: tacit
Version: 9
Provides-Extra: small
Provides-Extra: large
Requires-Dist: numpy>=2
Requires-Dist: typer>=0.29; extra == 'small'
Requires-Dist: nowhere-to-be-found[with]<9,>=6; extra == 'large'
Requires-Dist: typer>=0.29; extra == 'large'
"""


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Put a tacit with other extras before the real one."""
    folder = tmp_path / "tacit-9.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text(METADATA)
    monkeypatch.syspath_prepend(str(tmp_path))


def child(script: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", script, *arguments],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def loaded(script: str) -> set[str]:
    """Return the top-level names of the modules that a process has after `script`."""
    completed = child(
        f"import sys\ntry:\n    {script}\nfinally:\n    print(*sys.modules, file=sys.stderr)"
    )
    return {name.partition(".")[0] for name in completed.stderr.split()}


# Imports the library, which takes nearly all of the time, and then each module of sys.argv in a
# fork of its own, which prints a line: all that it has.
EACH = """
import os, sys
from importlib import import_module
import tacit.privacy.accounting
assert "tacit_services" not in sys.modules
for names in sys.argv[1:]:
    child = os.fork()
    if child == 0:
        for name in names.split("+"):
            import_module(name)
        print(*sys.modules, flush=True)
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
"""
EDGES = ("edge", "peer", "party")


@pytest.fixture(scope="module")
def of_modules() -> dict[str, set[str]]:
    """Return the top-level names of what a process has that imports each service."""
    services = [f"tacit_services.{service}.main" for service in EDGES]
    completed = child(EACH, *services)
    assert completed.returncode == 0, completed.stderr
    packages = [
        {name.partition(".")[0] for name in line.split()} for line in completed.stdout.splitlines()
    ]
    return dict(zip(EDGES, packages, strict=True))


def test_the_help_of_the_edge_loads_none_of_the_server_and_no_torch() -> None:
    packages = loaded("from tacit_services.cli import main; main.main(['edge', '--help'])")

    assert "typer" in packages
    assert not packages & (SERVERS | {"torch", "numpy", "scipy", "paho", "httpx"})


@pytest.mark.parametrize("service", EDGES)
def test_what_an_edge_is_made_of_loads_none_of_the_server(
    service: str, of_modules: dict[str, set[str]]
) -> None:
    packages = of_modules[service]

    assert "paho" in packages
    assert not packages & SERVERS


@pytest.mark.usefixtures("installed")
def test_an_extra_is_missing_with_any_of_its_packages() -> None:
    assert extras.names() == ["small", "large"]
    assert extras.missing("small") == []
    assert extras.missing("large") == ["nowhere-to-be-found"]
    extras.need("small")
    with pytest.raises(
        ConfigError, match=r"^this command needs tacit\[large\]: pip install 'tacit\[large\]'$"
    ) as end:
        extras.need("large")
    assert end.value.exit_code == 2


@pytest.mark.parametrize(
    ("command", "advice"),
    [
        ("edge", extras.advice("edge")),
        ("status", extras.advice("run")),
        ("plan", extras.advice("run")),
        ("figures --quick", laboratory.ADVICE),
        ("plan measure run.toml", laboratory.ADVICE),
    ],
)
def test_without_typer_the_command_says_what_to_install(command: str, advice: str) -> None:
    script = (
        "import sys; sys.modules['typer'] = None; from tacit_services import start; start.main()"
    )

    completed = child(script, *command.split())

    assert (completed.returncode, completed.stdout) == (2, "")
    assert completed.stderr == f"tacit: {advice}\n"


def test_a_module_of_ours_that_is_missing_is_no_missing_extra() -> None:
    script = (
        "import sys; sys.modules['tacit_services.cli'] = None; from tacit_services import "
        "start; start.main()"
    )

    assert "Traceback" in child(script, "edge").stderr
