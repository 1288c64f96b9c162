"""The help of every command, its example, and completion: what one sees before anything runs."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from typing import Any

import pytest
import typer
from tacit_services.cli import main

from tests.system.cli.test_main import Captured, child, tacit


def commands() -> Iterator[tuple[str, Any]]:
    """Return every command by its words, those of groups as well."""

    def walk(words: str, command: Any) -> Iterator[tuple[str, Any]]:
        yield words, command
        for name, inner in getattr(command, "commands", {}).items():
            yield from walk(f"{words} {name}", inner)

    for name, command in typer.main.get_command(main.app).commands.items():  # type: ignore[attr-defined]
        yield from walk(name, command)


ALL = list(commands())


@pytest.mark.parametrize("words", [words for words, _ in ALL])
@pytest.mark.parametrize("option", ["-h", "--help"])
def test_help_says_what_it_does_and_gives_an_example(
    words: str, option: str, capsys: Captured
) -> None:
    assert tacit(*words.split(), option) == 0
    output = " ".join(capsys.readouterr().out.split())
    assert "Usage: tacit" in output
    assert "Example: " in output


@pytest.mark.parametrize(("words", "command"), ALL)
def test_its_example_is_one_of_it_and_is_understood(words: str, command: Any) -> None:
    example = shlex.split(command.epilog.removeprefix("Example: "))
    while "=" in example[0]:  # a setting in front
        del example[0]
    assert example[0] == "tacit"
    assert " ".join(example[1:]).startswith(words)
    # It ends here where a name or value is none that the command takes.
    context = command.make_context(words, example[1 + len(words.split()) :])
    assert context is not None


def test_there_are_all_of_them() -> None:
    assert {"run", "plan dp-pasgd", "pki list", "ledger move"} < {words for words, _ in commands()}


def test_the_shell_completes_names() -> None:
    process = child(_TACIT_COMPLETE="complete_bash", COMP_WORDS="tacit st", COMP_CWORD="1")
    assert process.stdout.split() == ["stop"]


@pytest.mark.parametrize("command", [["--help"], ["run", "--help"], ["keys", "privacy"]])
def test_no_color_has_no_colour(command: list[str]) -> None:
    colour = re.compile(r"\x1b\[[0-9;]*\b(3[0-7]|9[0-7]|38|4[0-7]|48)\b[0-9;]*m")
    assert not colour.search(child(*command, NO_COLOR="1", FORCE_COLOR="1").stdout)
