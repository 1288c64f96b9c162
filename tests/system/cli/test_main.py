"""The `tacit` command.

Output, exit codes, and one line instead of a traceback for anything a person gets wrong.
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tacit_services.cli import main

from tests.conftest import ROOT
from tests.helpers.processes import Service
from tests.helpers.rest import RUN_FILE, TOKEN, Rig, Stage, staged
from tests.helpers.servers import HOST, PATIENCE, free_port

Captured = pytest.CaptureFixture[str]
WRONG_TOKEN = "the operator's token is missing or wrong (tacit: --token-file)"


@pytest.fixture(autouse=True)
def clean_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("TACIT_")]:
        monkeypatch.delenv(name)


@pytest.fixture
def rig(tmp_path: Path, request: pytest.FixtureRequest) -> Rig:
    rig = Rig(tmp_path, more=getattr(request, "param", ""))
    rig.hello("edge-0")
    rig.update("edge-0", pushes=3)
    return rig


@pytest.fixture(scope="module")
def stage() -> Iterator[Stage]:
    with staged() as new_stage:
        yield new_stage


@pytest.fixture
def url(rig: Rig, stage: Stage) -> Iterator[str]:
    with stage.showing(rig) as url:
        yield url


def tacit(*arguments: str) -> int:
    """Return the exit code of the command, run in this process."""
    with pytest.raises(SystemExit) as end:
        main.main(list(arguments))
    assert isinstance(end.value.code, int)
    return end.value.code


def child(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run the command as a process of its own."""
    return subprocess.run(
        [sys.executable, "-m", "tacit_services.cli.main", *arguments],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
        env=os.environ | environment,
    )


class TestOperator:
    def test_status(self, url: str, capsys: Captured) -> None:
        assert tacit("status", "--url", url) == 0
        output = capsys.readouterr().out
        assert "1 of 6" in output
        assert "mapa on digits" in output

    def test_json_everywhere(self, url: str, capsys: Captured, tmp_path: Path) -> None:
        for command in (
            ["status"],
            ["watch", "--once"],
            ["model"],
            ["ledger"],
            ["model", "--out", str(tmp_path / "m")],
        ):
            assert tacit(*command, "--url", url, "--json") == 0
            assert json.loads(capsys.readouterr().out)

    def test_the_environment_names_the_aggregator(
        self, url: str, capsys: Captured, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("TACIT_URL", url)
        assert tacit("status", "--json") == 0
        assert json.loads(capsys.readouterr().out)["applied"] == 1

    def test_ledger_row(self, rig: Rig, url: str, capsys: Captured) -> None:
        rig.hello("edge-1", multiplier=0.0, pushes=2)
        assert tacit("ledger", "--url", url) == 0
        head, first, second, below = capsys.readouterr().out.strip().splitlines()
        assert head.split()[:5] == ["edge", "state", "releases", "q", "z"]
        assert first.split()[:5] == ["edge-0", "online", "3", "0.07", "1"]
        refused, remaining, budget = (
            first.split()[-1],
            float(first.split()[-2]),
            float(first.split()[-3]),
        )
        assert 0 < remaining < budget == rig.run.privacy.epsilon  # whatever the edge says
        assert refused == "-"
        assert second.count("∞ (not private)") == 2
        assert "up to an eighth more releases" in below

    def test_model_download(self, rig: Rig, url: str, capsys: Captured, tmp_path: Path) -> None:
        file = tmp_path / "model.safetensors"
        assert tacit("model", "--url", url, "--out", str(file)) == 0
        assert hashlib.sha256(file.read_bytes()).hexdigest() in capsys.readouterr().out
        assert list(tmp_path.glob("*.part")) == []
        assert tacit("model", "--url", url) == 0
        assert "dense1.weight" in capsys.readouterr().out
        assert tacit("model", "--url", url, "--out", str(tmp_path / "no" / "such" / "folder")) == 2

    def test_halt_with_a_token_file(
        self, rig: Rig, url: str, capsys: Captured, tmp_path: Path
    ) -> None:
        token = tmp_path / "token"
        token.write_text(TOKEN + "\n")
        assert tacit("halt", "--url", url, "--token-file", str(token), "--reason", "enough") == 0
        assert "enough" in capsys.readouterr().out
        assert rig.role.halt_reason == "enough"

    def test_halt_without_a_token(
        self, rig: Rig, url: str, capsys: Captured, tmp_path: Path
    ) -> None:
        assert tacit("halt", "--url", url) == 1
        assert one_line(capsys).endswith(f"{url}: {WRONG_TOKEN}")
        assert tacit("halt", "--url", url, "--token-file", str(tmp_path / "none")) == 2
        assert not rig.role.halted

    @pytest.mark.parametrize("rig", ["[guard]\nquarantine_after = 1\n"], indirect=True)
    def test_release_from_quarantine(
        self, rig: Rig, url: str, capsys: Captured, tmp_path: Path
    ) -> None:
        guard = rig.live.guard
        guard.refused("edge-0", "norm")
        (tmp_path / "token").write_text(TOKEN + "\n")
        options = ("--url", url, "--token-file", str(tmp_path / "token"))
        assert tacit("release", "edge-0", "--url", url) == 1
        assert one_line(capsys).endswith(f"{url}: {WRONG_TOKEN}")
        assert guard.quarantined().keys() == {"edge-0"}
        assert tacit("release", "edge-0", *options) == 0
        assert capsys.readouterr().out.strip() == "edge-0 may take part again"
        assert guard.quarantined() == {}
        assert tacit("release", "edge-0", *options) == 1
        assert one_line(capsys).endswith("edge 'edge-0' is not in quarantine")

    @pytest.mark.parametrize("terminal", [False, True])
    def test_watch_ends_with_the_run(
        self, rig: Rig, url: str, capsys: Captured, terminal: bool, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        if terminal:
            monkeypatch.setenv("FORCE_COLOR", "1")
        for _ in range(5):
            rig.update("edge-0")
        assert tacit("watch", "--url", url) == 0
        output = capsys.readouterr().out
        assert "finished" in output
        assert ("╭" in output) == terminal
        assert ("ε of its budget" in output) == terminal

    def test_watch_says_when_the_aggregator_stops_first(
        self, rig: Rig, url: str, capsys: Captured
    ) -> None:
        rig.operator.close()
        assert tacit("watch", "--url", url, "--json") == 4
        captured = capsys.readouterr()
        assert json.loads(captured.out)["state"] == "training"
        assert "stopped before" in captured.err

    @pytest.mark.parametrize("command", ["status", "watch", "model", "ledger", "halt"])
    def test_nobody_there(self, command: str, capsys: Captured) -> None:
        url = f"http://{HOST}:{free_port()}"
        assert tacit(command, "--url", url) == 4
        assert one_line(capsys).startswith(f"tacit: {url}: ")

    def test_a_bad_url_is_usage(self, capsys: Captured) -> None:
        assert tacit("status", "--url", "localhost") == 2
        assert "expected http://HOST:PORT" in one_line(capsys)


class TestBadInput:
    @pytest.mark.parametrize(
        ("old", "new", "message"),
        [
            ("updates = 6", "updates = 6\ncolour = 1", "run.colour=1: unknown key"),
            ("updates = 6", "updates = 'six'", "run.updates='six'"),
            (
                "clip = 1.0",
                "clip = 1.0\nepsilon = 0",
                "privacy.epsilon=0: Input should be greater than 0",
            ),
            ("clip = 1.0", "clip = 1.0\nepsilon = inf", "privacy.epsilon=inf"),
            ("batch = 32", "batch = 480", "privacy.batch=480 is above the 479 rows of one edge"),
            ("count = 3", "count = 0", "edges.count=0"),
            ('name = "mapa"', 'name = "adam"', "algorithm.name='adam'"),
            ('dataset = "digits"', 'dataset = "digit"', "digit"),
            ("[run]", "[run", "not TOML"),
        ],
    )
    def test_a_bad_run_file(
        self, old: str, new: str, message: str, capsys: Captured, tmp_path: Path
    ) -> None:
        file = tmp_path / "bad.toml"
        file.write_text(RUN_FILE.replace(old, new, 1))
        assert tacit("run", str(file), "--out", str(tmp_path / "out")) == 2
        assert message in one_line(capsys)
        assert not (tmp_path / "out").exists()

    def test_a_missing_run_file(self, capsys: Captured, tmp_path: Path) -> None:
        assert tacit("run", str(tmp_path / "none.toml")) == 2
        assert "none.toml" in one_line(capsys)

    def test_missing_data(self, capsys: Captured, tmp_path: Path) -> None:
        file = tmp_path / "run.toml"
        file.write_text(RUN_FILE.replace("digits", "mnist"))
        assert tacit("run", str(file), "--data", str(tmp_path), "--out", str(tmp_path / "out")) == 3
        assert "mnist" in one_line(capsys)

    @pytest.mark.parametrize(
        "arguments",
        [
            ["nonsense"],
            ["run"],
            ["--nope"],
            ["run", "x", "--edges", "0"],
            ["run", "x", "--seed", "-1"],
        ],
    )
    def test_usage(self, arguments: list[str], capsys: Captured) -> None:
        assert tacit(*arguments) == 2
        assert one_line(capsys).startswith("tacit: ")

    @pytest.mark.parametrize("service", ["aggregator", "edge"])
    def test_a_bad_setting_is_named(
        self, service: str, capsys: Captured, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("TACIT_RUN_FILE", "x.toml")
        monkeypatch.setenv("TACIT_BROKER", "nowhere")
        assert tacit(service) == 2
        assert "TACIT_BROKER='nowhere': expected HOST:PORT" in one_line(capsys)


class TestProcess:
    def test_help_names_commands_and_codes(self, capsys: Captured) -> None:
        assert tacit("--help") == 0
        text = capsys.readouterr().out
        for word in ("run", "serve", "join", "submit", "ledger", "--all", "Exit codes"):
            assert word in text
        assert "watch" not in text  # what nobody needs every day
        assert tacit("--help", "--all") == 0
        text = capsys.readouterr().out
        for word in (
            "run",
            "aggregator",
            "edge",
            "status",
            "watch",
            "model",
            "ledger",
            "halt",
            "version",
            "Exit codes",
        ):
            assert word in text
        assert tacit("--help") == 0
        assert "watch" not in capsys.readouterr().out

    def test_version(self, capsys: Captured) -> None:
        assert tacit("version") == 0
        assert capsys.readouterr().out.startswith("tacit ")

    def test_unreachable_from_a_shell(self) -> None:
        completed = child("status", "--url", f"http://{HOST}:{free_port()}")
        assert (completed.returncode, completed.stdout) == (4, "")
        assert completed.stderr.count("\n") == 1
        assert "Traceback" not in completed.stderr

    def test_status_does_without_torch(self) -> None:
        # Torch takes seconds to load; a status is asked for often.
        script = (
            "import sys; from tacit_services.cli import main\ntry: main.main(['status', "
            "'--url', sys.argv[1]])\n"
        )
        script += "finally: print({'torch', 'fastapi', 'numpy', 'paho'} & set(sys.modules))"
        completed = subprocess.run(
            [sys.executable, "-c", script, f"http://{HOST}:{free_port()}"],
            capture_output=True,
            text=True,
            check=False,
        )
        assert (completed.returncode, completed.stdout.strip()) == (4, "set()")

    def test_an_aggregator_without_broker_gives_up_and_logs_lines(self, tmp_path: Path) -> None:
        file = tmp_path / "run.toml"
        file.write_text(RUN_FILE)
        settings = {
            "TACIT_RUN_FILE": str(file),
            "TACIT_STORE": "memory://",
            "TACIT_HTTP": f"{HOST}:0",
            "TACIT_OUT": str(tmp_path),
            "TACIT_BROKER": f"{HOST}:{free_port()}",
            "TACIT_CONNECT_TIMEOUT": "0.3",
        }
        aggregator = Service("aggregator", settings, tmp_path / "log")
        aggregator.start()
        assert aggregator.wait() == 4
        assert "Traceback" not in aggregator.log
        assert aggregator.log.splitlines()[-1].startswith("tacit: broker 127.0.0.1:")

    def test_log_lines_carry_time_level_and_name(self) -> None:
        script = "import logging; from tacit_services.logs import to_stderr as on; on('info')\n"
        script += (
            "logging.getLogger('tacit.x').info('hello'); logging.getLogger('tacit.x').debug('no')"
        )
        completed = subprocess.run(
            [sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True
        )
        time, *words = completed.stderr.split()
        assert words == ["INFO", "tacit.x", "hello"]
        assert time.endswith("Z")


LONG = "a" * 300  # no file system takes a name of so many bytes


@pytest.mark.parametrize(
    "arguments",
    [
        ("ledger", "show", LONG),
        ("ledger", "verify", LONG),
        ("ledger", "move", LONG, "to"),
        ("tune", "run.toml", "--public", "public.csv", "--out", LONG),
    ],
    ids=["show", "verify", "move", "tune"],
)
def test_a_name_that_the_system_refuses_is_one_line(
    arguments: tuple[str, ...], capsys: Captured
) -> None:
    assert tacit(*arguments) == 1
    assert "File name too long" in one_line(capsys)


def one_line(capsys: Captured) -> str:
    """Return what went to stderr: one line, no traceback, nothing on stdout."""
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.count("\n") == 1
    return captured.err.strip()
