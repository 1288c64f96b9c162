"""The prose check: what it finds, what it passes over, and that it links a term once."""

from __future__ import annotations

from pathlib import Path

import pytest

from tools import prose

RULES = prose.read(prose.ROOT / "tools" / "prose.toml")
PAGE = Path("docs/page.md")


def found(text: str, page: Path = PAGE) -> list[str]:
    return list(prose.complaints(text, page, RULES))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("It is the\nthe second.\n", "a word stands twice"),
        ("You can simply start it.\n", "leave it out"),
        ("Rows, e.g. those of a file.\n", "write it out"),
        ("It lies in ../shared somewhere.\n", "no such folder"),
        ("That is great!\n", "no exclamation mark"),
        ("First line.\n\nIt has a color.\n", "3: 'color'"),
        (f"One.\n\n{'one two ' * 26}end.\n", "3: a sentence of 53 words"),
        ("The ledger is durable.\n", "'ledger' is not linked"),
        ("Of [the ledger](own.md) and the ledger.\n", "'ledger' is not linked"),
    ],
)
def test_what_is_wrong_is_found_with_its_line(text: str, message: str) -> None:
    [complaint] = found(text)
    assert message in complaint


@pytest.mark.parametrize(
    "text",
    [
        "# The ledger simply\n",
        "| the ledger | simply |\n",
        "```\nsimply the ledger!\n```\n",
        "Like this:\n\n    simply the ledger!\n\nand then.\n",
        "See `simply.py` and [it](../shared.md).\n",
        f"{'one two ' * 15}. {'one two ' * 15}.\n",
        f"- {'one two ' * 20}\n- {'one two ' * 20}\n",
        "The [ledger](glossary.md#ledger) is the ledger.\n",
        "<!-- made by `make` -->\n\n- The ledger, simply.\n\n<!-- end -->\n",
    ],
)
def test_what_is_no_running_text_or_is_in_order_is_passed_over(text: str) -> None:
    assert found(text) == []


def test_a_term_is_linked_at_its_first_use_only_and_then_nothing_is_found() -> None:
    text = "# Ledgers\n\n`ledger` of **edges**: the ledger, its ledgers.\n"
    once = prose.linked(text, PAGE, RULES)
    assert once == (
        "# Ledgers\n\n`ledger` of **[edges](glossary.md#edge)**: the [ledger](glossary.md#ledger), "
        "its ledgers.\n"
    )
    assert prose.linked(once, PAGE, RULES) == once
    deep = prose.linked("An edge.\n", Path("examples/own/README.md"), RULES)
    assert deep == "An [edge](../../docs/glossary.md#edge).\n"


def test_every_term_has_its_place_in_the_glossary() -> None:
    glossary = (prose.ROOT / prose.GLOSSARY).read_text(encoding="utf-8")
    assert [term for term in RULES.terms if f'<a id="{term}"></a>' not in glossary] == []


def test_the_documents_are_in_order() -> None:
    pages = prose.pages(prose.ROOT)
    assert len(pages) > 25
    assert [
        f"{page}:{complaint}"
        for page in pages
        for complaint in found((prose.ROOT / page).read_text(encoding="utf-8"), page)
    ] == []
