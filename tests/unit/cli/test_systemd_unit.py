"""A unit for systemd begins in no folder of ours: what it names is absolute."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest
from tacit_services.cli.main import main

Capture = pytest.CaptureFixture[str]


def command(capsys: Capture, *words: str) -> list[str]:
    """Return the command of the unit that `tacit` prints for these words."""
    with pytest.raises(SystemExit) as end:
        main([*words, "--systemd"])
    assert end.value.code == 0
    text = capsys.readouterr().out
    assert text.startswith("[Unit]\n")
    assert text.endswith("WantedBy=multi-user.target\n")
    (line,) = (line for line in text.splitlines() if line.startswith("ExecStart="))
    return shlex.split(line.removeprefix("ExecStart="))[1:]


def test_a_host_begins_with_the_same_flags(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("TACIT_DATA", raising=False)
    words = command(
        capsys, "serve", "a clinic", "--certificate", "fed.pem", "--key", "fed.key", "--host", "a",
        "--host", "b",
    )  # fmt: skip
    assert words == [
        "serve", str(tmp_path / "a clinic"), "--host", "a", "--host", "b", "--certificate",
        str(tmp_path / "fed.pem"), "--key", str(tmp_path / "fed.key"),
    ]  # fmt: skip


def test_a_member_begins_without_its_token(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    monkeypatch.chdir(tmp_path)
    words = command(
        capsys, "join", "https://h:1", "--token", "secret", "--state", "state", "--policy",
        "policy.toml", "--yes",
    )  # fmt: skip
    assert words == [
        "join", "https://h:1", "--state", str(tmp_path / "state"), "--policy",
        str(tmp_path / "policy.toml"), "--yes",
    ]  # fmt: skip
