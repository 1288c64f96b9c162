"""The rule of plain English: what breaks it, what does not, and that the exempt lists shrink."""

from __future__ import annotations

from pathlib import Path

import pytest

from tools import plain
from tools.prose import ROOT

RULE = plain.read(ROOT / "tools" / "plain.toml")


# A page and a docstring that keep the rule, and eleven sentences of which each breaks it.
KEPT = "The edge computes an update. The ledger is charged before the edge sends it."
PLANTED = (
    "Whoever holds rows may join.",
    "The rows of whomever it asks stay at the site.",
    "The edge refuses whatever the server asks beyond its policy.",
    "The run ends at the deadline or the last update, whichever comes first.",
    "The command leaves with exit code 2.",
    "Two processes leave with 5 where the ledger is damaged.",
    "The page says how many edges are online.",
    "If an extra is missing, tacit says which.",
    "If a bound is missing, `tacit check` says which.",
    "The run file of a site names " + "a column and " * 10 + "a bound.",
    "The edge waits; the server answers; the run goes on; the run ends.",
)


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
        ("Then `tacit check`\nsays which.", "1: '`tacit check` says'"),
        ("The [server](a.md) says so.", "'server](a.md) says'"),
        (f"It {'goes on ' * 16}.", "1: a sentence of 33 words"),
        (f"It {'sets `a = b` ' * 16}.", "1: a sentence of 33 words"),
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
        "A user says `whoever`; `tacit; says; so` is code.",
    ],
)
def test_plain_sentences_and_code_pass(text: str) -> None:
    assert breaches(text) == []


@pytest.mark.parametrize("planted", PLANTED)
@pytest.mark.parametrize(
    ("name", "form"), [("page.md", "# Page\n\n{}\n"), ("room.py", '"""{}"""\n')]
)
def test_a_planted_sentence_fails_the_check_of_a_page_and_of_a_docstring(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, form: str, planted: str
) -> None:
    monkeypatch.setattr(plain, "ROOT", tmp_path)
    (tmp_path / name).write_text(form.format(KEPT))
    assert list(plain.checked(Path(name), RULE)) == []
    (tmp_path / name).write_text(form.format(f"{KEPT} {planted}"))
    assert list(plain.checked(Path(name), RULE)) != []


def test_only_docstrings_of_a_module_are_read(tmp_path: Path) -> None:
    module = tmp_path / "module.py"
    module.write_text(
        '"""Hold rows."""\n\nTEXT = "whoever"  # whatever\n\n\n'
        'def answer() -> None:\n    """Return what whoever asked.\n\n    Whatever it is.\n    """\n'
    )
    assert [line.split(":")[0] for line in plain.breaches(module, RULE)] == ["7", "9"]


def test_an_example_in_a_docstring_is_code(tmp_path: Path) -> None:
    module = tmp_path / "module.py"
    example = "    >>> role.ask('whoever')\n    'whatever'\n"
    module.write_text(
        f'def ask() -> None:\n    """Ask.\n\n{example}\n    It asks whoever.\n    """\n'
    )
    assert [line.split(":")[0] for line in plain.breaches(module, RULE)] == ["7"]


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
