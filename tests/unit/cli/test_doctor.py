"""`tacit doctor`: which host is meant, by what is typed and by the environment."""

from __future__ import annotations

from pathlib import Path

import pytest
from tacit_services.member.member_state import Membership, MemberState

from tests.helpers.servers import HOST, free_port
from tests.system.cli.test_main import Captured, tacit


@pytest.fixture
def state(tmp_path: Path) -> Path:
    member = MemberState(tmp_path / "state")
    member.keep(Membership("https://host.example:8443", "edge-0", "St. Mary's", "rows", "rows"))
    return member.folder


@pytest.fixture
def url(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Return an address at which nothing listens."""
    for name in ("TACIT_STATE", "TACIT_FEDERATION", "HTTPS_PROXY", "https_proxy"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "home"))
    return f"https://{HOST}:{free_port()}"


def test_an_address_beside_the_state_of_another_is_refused(
    url: str, state: Path, capsys: Captured
) -> None:
    assert tacit("doctor", url, "--state", str(state)) == 2
    assert "is a membership at https://host.example:8443" in capsys.readouterr().err


def test_what_is_typed_goes_before_the_environment(
    url: str, state: Path, capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TACIT_FEDERATION", str(state))
    monkeypatch.setenv("TACIT_STATE", str(state))
    assert tacit("doctor", url) == 1
    output = capsys.readouterr().out
    assert f"{url.removeprefix('https://')}: nothing listens there" in output
    assert "certificate" not in output  # it is no member of this one
    assert tacit("doctor", "--federation", str(state)) == 2
    assert "no federation is there" in capsys.readouterr().err


def test_two_that_nobody_has_typed_are_named_as_they_are_set(
    url: str, state: Path, capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TACIT_FEDERATION", str(state))
    monkeypatch.setenv("TACIT_STATE", str(state))
    assert tacit("doctor") == 2
    assert "TACIT_FEDERATION, TACIT_STATE: both are set" in capsys.readouterr().err


def test_a_host_and_an_address_that_are_typed_are_refused(
    url: str, state: Path, capsys: Captured
) -> None:
    assert tacit("doctor", url, "--federation", str(state)) == 2
    assert "leave URL and --state out" in capsys.readouterr().err
