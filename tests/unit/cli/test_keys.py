"""`tacit keys`: the page of every key, and the schema, are what the code takes."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path

import pytest
from tacit_services.cli.main import app
from typer.testing import CliRunner

from tacit.errors import ConfigError

ROOT = Path(__file__).parents[3]


def printed(*arguments: str) -> str:
    result = CliRunner().invoke(app, ["keys", *arguments], catch_exceptions=False)
    assert result.exit_code == 0
    return result.output


def test_the_page_is_what_the_code_says() -> None:
    assert (ROOT / "docs" / "run-file.md").read_text() == printed(), (
        "say: tacit keys > docs/run-file.md"
    )


def test_every_key_of_every_section_has_a_meaning() -> None:
    rows = [line for line in printed().splitlines() if line.startswith("| `")]
    assert len(rows) > 120
    assert not [row for row in rows if row.endswith("|  |")]


def test_one_section_by_its_name_or_its_algorithms() -> None:
    assert printed("privacy").startswith("## [privacy]\n")
    assert "`buffer`" in printed("fedbuff")
    assert printed("fedbuff") == printed("sgd")
    assert printed("algorithm").count("## [algorithm]") == 9
    with pytest.raises(ConfigError, match=r"SECTION='privicy'.*privacy"):
        CliRunner().invoke(app, ["keys", "privicy"], catch_exceptions=False)


def test_the_schema_knows_every_key_of_the_experiments() -> None:
    schema = json.loads(printed("--schema"))
    properties = {name: set(part["properties"]) for name, part in schema["$defs"].items()}
    algorithms = {
        name: target.rpartition("/")[2]
        for name, target in schema["properties"]["algorithm"]["discriminator"]["mapping"].items()
    }
    for path in sorted((ROOT / "experiments").glob("*.toml")):
        for section, content in tomllib.loads(path.read_text()).items():
            part = schema["properties"][section]
            chosen = "BenchmarkData" if section == "data" else algorithms.get(content.get("name"))
            reference = part.get("$ref", "").rpartition("/")[2] or chosen
            assert set(content) <= properties[reference], path.name
