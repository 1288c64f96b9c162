"""`python -m tools.prose [--link]`: what the documents' prose should not say, and terms not linked.

The rules and terms are in `tools/prose.toml`. Looked at is running text: code, tables, headings,
comments and the addresses of links are blanked out, by spaces, so that every place keeps its line.
`--link` links each term to the glossary where a page uses it first.
"""

from __future__ import annotations

import argparse
import re
import sys
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
GLOSSARY = Path("docs/glossary.md")
# What was written by a program, or tells of the past, is as it is.
MADE = {Path(name) for name in ("docs/run-file.md", "docs/results.md", "docs/testbed.md")}
PAST = {Path("CHANGELOG.md")}
_GENERATED = re.compile(r"<!--[^>]*made by .*?<!-- end[^>]*-->", re.S)
_FENCED = re.compile(r"^```.*?^```[^\n]*$", re.M | re.S)
_INDENTED = re.compile(r"(?:(?<=\n\n)|\A)(?: {4}[^\n]*\n|\n(?= {4}))+", re.M)
_LINES = re.compile(r"^(?:#|\||<).*$", re.M)
_SPAN = re.compile(r"`([^`\n]+)`")
_MARKUP = re.compile(r"<!--.*?-->|<https?:[^>]*>|<[a-z/][^>]*>", re.S)
_TARGET = re.compile(r"\]\([^)]*\)")
_LINK = re.compile(r"\[([^\[\]]*)\]\(([^)]*)\)")
_PARAGRAPH = re.compile(r"\n\s*\n|\n(?=\s*(?:[-*]|\d+\.)\s)")
_SENTENCE = re.compile(r"[.?!]\W*\s")


@dataclass(frozen=True, slots=True)
class ProseRule:
    """A pattern that prose must not match, and the advice."""

    pattern: re.Pattern[str]
    say: str


@dataclass(frozen=True, slots=True)
class Rules:
    """All of prose.toml; `longest`: words of a sentence."""

    longest: int
    rules: list[ProseRule]
    terms: dict[str, re.Pattern[str]]


def main() -> int:
    """Return the exit code: 1 where something was found."""
    parser = argparse.ArgumentParser(prog="python -m tools.prose", description=__doc__)
    parser.add_argument("--link", action="store_true", help="link each term at its first use")
    rules = read(ROOT / "tools" / "prose.toml")
    if parser.parse_args().link:
        for page in pages(ROOT):
            (ROOT / page).write_text(linked((ROOT / page).read_text("utf-8"), page, rules), "utf-8")
    places = [
        f"{page}:{place}"
        for page in pages(ROOT)
        for place in complaints((ROOT / page).read_text("utf-8"), page, rules)
    ]
    for complaint in places:
        print(complaint, file=sys.stderr)
    if places:
        return 1
    return 0


def read(file: Path) -> Rules:
    """Return the rules of a file like prose.toml."""
    content = tomllib.loads(file.read_text(encoding="utf-8"))
    rules = [
        ProseRule(re.compile(entry["pattern"], re.I), entry["say"]) for entry in content["rule"]
    ]
    terms = {
        anchor: re.compile(rf"(?<![\w-]){term}(?![\w-])", re.I)
        for anchor, term in content["term"].items()
    }
    return Rules(content["longest"], rules, terms)


def pages(root: Path) -> list[Path]:
    """Return the documents, relative to `root`, that people have written."""
    places = ("*.md", "docs/*.md", "lab/*.md", "examples/*/*.md", "skills/*/*.md")
    paths = sorted(path for place in places for path in root.glob(place))
    return [page for path in paths if (page := path.relative_to(root)) not in MADE | PAST]


def running(text: str, *, names: bool = False) -> str:
    """Return the same text with spaces for all that is not running text.

    With `names`, a span of code stays as one word in code marks, since it may be the subject of a
    sentence. The word is a row of the letter x.
    """
    prose = text
    for pattern in (_GENERATED, _FENCED, _INDENTED):
        prose = pattern.sub(_blank, prose)
    prose = _SPAN.sub(lambda span: f"`{'x' * len(span[1])}`" if names else _blank(span), prose)
    for pattern in (_MARKUP, _LINES, _TARGET):
        prose = pattern.sub(_blank, prose)
    return prose


def _blank(match: re.Match[str]) -> str:
    return re.sub(r"[^\n]", " ", match[0])


def complaints(text: str, page: Path, rules: Rules) -> Iterator[str]:
    """Yield everything that is wrong with a page, as `LINE: what`."""
    prose = running(text)
    flat = re.sub(r"(?<!\n)\n(?!\s*\n)", " ", prose)
    for rule in rules.rules:
        for match in rule.pattern.finditer(flat):
            yield f"{_line(text, match.start())}: {match[0]!r}: {rule.say}"
    for start, sentence in sentences(prose):
        if (words := len(re.findall(r"\w+", sentence))) > rules.longest:
            yield f"{_line(text, start)}: a sentence of {words} words ({rules.longest} at most)"
    for anchor, start, _ in unlinked(text, page, rules):
        yield f"{_line(text, start)}: {anchor!r} is not linked to the glossary (--link does it)"


def unlinked(text: str, page: Path, rules: Rules) -> Iterator[tuple[str, int, int]]:
    """Yield terms whose first use on a page is no link to the glossary, and where that is.

    A use within another link is passed over.
    """
    if page == GLOSSARY or (page.parent != GLOSSARY.parent and page.name != "README.md"):
        return
    prose = running(text)
    links = [(*link.span(), link[2]) for link in _LINK.finditer(text)]
    for anchor, term in rules.terms.items():
        for use in term.finditer(prose):
            around = [target for start, end, target in links if start <= use.start() < end]
            if not around:
                yield anchor, *use.span()
            if not around or "glossary.md" in around[0]:
                break


def linked(text: str, page: Path, rules: Rules) -> str:
    """Return the page with its first uses linked."""
    glossary = "../" * (len(page.parts) - 1) + str(GLOSSARY)
    if page.parent == GLOSSARY.parent:
        target = GLOSSARY.name
    else:
        target = glossary
    places = sorted(unlinked(text, page, rules), key=lambda place: -place[1])
    for anchor, start, end in places:
        text = f"{text[:start]}[{text[start:end]}]({target}#{anchor}){text[end:]}"
    return text


def sentences(prose: str) -> Iterator[tuple[int, str]]:
    begin = 0
    for paragraph in [*_PARAGRAPH.finditer(prose), None]:
        end = paragraph.start() if paragraph else len(prose)
        start = begin
        for stop in [*_SENTENCE.finditer(prose, begin, end), None]:
            after = stop.end() if stop else end
            if prose[start:after].strip():
                yield (
                    start + len(prose[start:after]) - len(prose[start:after].lstrip()),
                    prose[start:after],
                )
            start = after
        begin = paragraph.end() if paragraph else end


def _line(text: str, place: int) -> int:
    return text.count("\n", 0, place) + 1


if __name__ == "__main__":
    sys.exit(main())
