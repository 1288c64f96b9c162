"""What coding agents are told of tacit is so: its commands, options and files exist."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
from tacit_services.cli.main import app
from typer.main import get_command

from tacit import errors
from tests.conftest import ROOT

TOLD = ["skills/tacit/SKILL.md", "llms.txt"]
OF_ALL = {"--help", "--all"}


def typed(text: str) -> Iterator[list[str]]:
    """Yield the words of each command that stands in backticks or in a block of code."""
    blocks = re.findall(r"^```\n(.*?)^```", text, re.M | re.S)
    lines = [line for block in blocks for line in block.splitlines() if line.startswith("tacit ")]
    for line in lines + re.findall(r"`(tacit [^`\n]+)`", text):
        yield line.split()


def command_of(words: list[str]) -> Any:
    """Return the command that the words begin with."""
    command: Any = get_command(app)
    for word in words[1:]:
        inner = getattr(command, "commands", {})
        if not inner or word.startswith("--"):
            return command
        assert word in inner, " ".join(words)
        command = inner[word]
    return command


@pytest.mark.parametrize("file", TOLD)
def test_every_command_and_option_that_an_agent_is_told_of_exists(file: str) -> None:
    lines = list(typed((ROOT / file).read_text(encoding="utf-8")))
    assert len(lines) >= 6
    for words in lines:
        options = {name for parameter in command_of(words).params for name in parameter.opts}
        stated = {word for word in words if word.startswith("--")}
        assert not stated - options - OF_ALL, " ".join(words)


def test_a_command_that_does_not_exist_is_noticed() -> None:
    with pytest.raises(AssertionError, match="tacit fly"):
        command_of(["tacit", "fly"])


@pytest.mark.parametrize("file", TOLD)
def test_every_file_that_an_agent_is_told_to_read_exists(file: str) -> None:
    text = (ROOT / file).read_text(encoding="utf-8")
    named = re.findall(r"\]\(([^)#:]+)\)", text) + re.findall(r"docs/[\w-]+\.md", text)
    assert named
    assert [name for name in named if not (ROOT / name).exists()] == []


def test_the_exit_statuses_that_an_agent_is_told_of_are_those_of_the_errors() -> None:
    text = (ROOT / TOLD[0]).read_text(encoding="utf-8").split("Exit status:")[1].partition("\n")[0]
    kinds = [kind for kind in vars(errors).values() if isinstance(kind, type)]
    codes = {kind.exit_code for kind in kinds if issubclass(kind, errors.TacitError)}
    assert codes <= {int(code) for code in re.findall(r"\d", text)}
