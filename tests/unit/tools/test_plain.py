"""The rule of plain English: what breaks it, what does not, and that the exempt lists shrink."""

from __future__ import annotations

from pathlib import Path

import pytest

from tools import plain
from tools.prose import ROOT

RULE = plain.read(ROOT / "tools" / "plain.toml")


def breaches(text: str) -> list[str]:
    return list(plain.of_text(text, 1, RULE))


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("It ends.\n\nWhoever asks is told.", "3: 'Whoever'"),
        ("The file whatever it holds.", "'whatever'"),
        ("The command leaves with 2.", "'leaves with'"),
        ("The aggregator says so.", "'aggregator says'"),
        ("`tacit` computes, and the edge says nothing.", "'edge says'"),
        (f"It {'goes on ' * 16}.", "1: a sentence of 33 words"),
        ("Rows; columns; units.", "2 semicolons in 3 words"),
    ],
)
def test_a_breach_is_reported_with_its_line(text: str, part: str) -> None:
    assert part in "\n".join(breaches(text))


@pytest.mark.parametrize(
    "text",
    [
        "The command exits with status 2.",
        "The edge that holds rows pushes; the server answers.",
        f"It {'goes on ' * 10}. It {'goes on ' * 10}.",
        "```\nwhoever; whatever; whichever\n```",
        "The document says what a term means.",
    ],
)
def test_plain_sentences_and_code_pass(text: str) -> None:
    assert breaches(text) == []


def test_only_docstrings_of_a_module_are_read(tmp_path: Path) -> None:
    module = tmp_path / "module.py"
    module.write_text(
        '"""Hold rows."""\n\nTEXT = "whoever"  # whatever\n\n\n'
        'def answer() -> None:\n    """Return what whoever asked.\n\n    Whatever it is.\n    """\n'
    )
    assert [line.split(":")[0] for line in plain.breaches(module, RULE)] == ["7", "9"]


def test_an_exempt_file_that_keeps_the_rule_comes_off_the_list(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plain, "ROOT", tmp_path)
    (tmp_path / "new.md").write_text("The edge pushes.\n")
    (tmp_path / "old.md").write_text("Whoever pushes.\n")
    rule = plain.Rule(30, 4, RULE.patterns, frozenset({Path("new.md"), Path("old.md")}))
    assert [line for name in ("new.md", "old.md") for line in plain.checked(Path(name), rule)] == [
        "new.md: keeps the rule, so take it off the list in tools/plain.toml"
    ]


def test_every_page_and_docstring_that_is_not_exempt_keeps_the_rule() -> None:
    assert [line for file in plain.files(ROOT) for line in plain.checked(file, RULE)] == []
    assert {path for path in RULE.old if not (ROOT / path).exists()} == set()
