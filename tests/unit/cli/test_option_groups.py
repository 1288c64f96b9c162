"""Options that stand once, and in many commands."""

from __future__ import annotations

import shlex
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Annotated

import pytest
import typer
from tacit_services.cli.main import main
from tacit_services.cli.option_group import option_group
from tacit_services.cli.reach import Reach
from tacit_services.cli.serve import ServeFlags
from tacit_services.federation.federation_settings import FederationSettings
from typer.testing import CliRunner


@dataclass
class Place:
    """Where something is."""

    town: Annotated[str, typer.Option(envvar="PLACE_TOWN", help="its town")] = "Ulm"
    houses: Annotated[list[int] | None, typer.Option("--house")] = None


def visit(who: str, *, place: Place, loud: bool = False) -> None:
    """Visit somebody."""
    typer.echo(f"{who} {place.town} {place.houses} {loud}")


APP = typer.Typer()
APP.command()(option_group(visit, "place", Place))


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("ada", "ada Ulm None False"),
        ("ada --town Bern --house 1 --house 2 --loud", "ada Bern [1, 2] True"),
    ],
)
def test_a_command_has_the_groups_options(words: str, said: str) -> None:
    assert CliRunner().invoke(APP, shlex.split(words)).output.strip() == said


def test_a_groups_variables_count(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PLACE_TOWN", "Graz")
    assert "Graz" in CliRunner().invoke(APP, ["ada"]).output


def test_every_setting_of_a_host_is_a_flag() -> None:
    assert {each.name for each in fields(ServeFlags)} == set(FederationSettings.model_fields)


def test_a_default_that_help_tells_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["serve", "--help"])
    shown = " ".join(capsys.readouterr().out.replace("│", " ").split())
    assert "hours of its life [default: 24]" in shown


def test_a_folder_that_is_there_is_no_run_of_a_host_in_the_environment(tmp_path: Path) -> None:
    elsewhere = Reach(url="https://127.0.0.1:8443")
    assert elsewhere.names_run(Path("retina"))
    assert not elsewhere.names_run(tmp_path)
    assert Reach(federation=tmp_path).names_run(tmp_path)  # it was asked for by name
    assert not Reach(url="http://127.0.0.1:8000").names_run(Path("retina"))
    assert not Reach().names_run(Path("retina"))
