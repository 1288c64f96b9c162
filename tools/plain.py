"""`python -m tools.plain [--old]`: hold pages and docstrings to the rule of plain English.

The rule and the pages and modules that are exempt are in `tools/plain.toml`. An exempt file that
keeps the rule is reported, too, so that the lists only shrink. `--old` prints the files that break
the rule, as TOML.
"""

from __future__ import annotations

import argparse
import ast
import re
import sys
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tools.prose import ROOT, pages, running, sentences

FOLDERS = ("src", "services", "clients", "tools", "lab/src")
# An example of doctest: it is code, as a fenced block of a page is.
_DOCTEST = re.compile(r"^ *>>> .*?(?=\n *\n|\Z)", re.M | re.S)


@dataclass(frozen=True, slots=True)
class Rule:
    """The content of plain.toml. patterns: each with what to write instead."""

    longest: int
    semicolons: float
    patterns: tuple[tuple[re.Pattern[str], str], ...]
    old: frozenset[Path]


def main() -> int:
    """Print every breach of the rule; return 1 if there is any."""
    parser = argparse.ArgumentParser(prog="python -m tools.plain", description=__doc__)
    parser.add_argument("--old", action="store_true", help="print the files that break the rule")
    rule = read(ROOT / "tools" / "plain.toml")
    if parser.parse_args().old:
        print("\n".join(f'    "{file}",' for file in files(ROOT) if [*breaches(ROOT / file, rule)]))
        return 0
    lines = [line for file in files(ROOT) for line in checked(file, rule)]
    print("\n".join(lines), file=sys.stderr)
    return 1 if lines else 0


def read(file: Path) -> Rule:
    """Return the rule of a file like plain.toml."""
    content = tomllib.loads(file.read_text(encoding="utf-8"))
    patterns = tuple((re.compile(p["pattern"], re.I), p["instead"]) for p in content["rule"])
    old = frozenset(Path(name) for names in content["old"].values() for name in names)
    return Rule(content["longest"], content["semicolons"], patterns, old)


def files(root: Path) -> list[Path]:
    """Return the documents and the modules, relative to `root`."""
    modules = sorted(path for folder in FOLDERS for path in (root / folder).rglob("*.py"))
    return pages(root) + [path.relative_to(root) for path in modules if "_pb" not in path.parts]


def checked(file: Path, rule: Rule) -> Iterator[str]:
    """Yield the breaches of a file, or that an exempt one has none."""
    lines = [f"{file}:{line}" for line in breaches(ROOT / file, rule)]
    if file not in rule.old:
        yield from lines
    elif not lines:
        yield f"{file}: keeps the rule, so take it off the list in tools/plain.toml"


def breaches(path: Path, rule: Rule) -> Iterator[str]:
    """Yield what a page, or the docstrings of a module, break, as `LINE: what`."""
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".md":
        yield from of_text(text, 1, rule)
        return
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            docstring = ast.get_docstring(node)
            if docstring is not None:
                yield from of_text(_without_examples(docstring), node.body[0].lineno, rule)


def _without_examples(docstring: str) -> str:
    """Return the docstring with spaces for its examples, so that every place keeps its line."""
    return _DOCTEST.sub(lambda match: re.sub(r"[^\n]", " ", match[0]), docstring)


def of_text(text: str, first: int, rule: Rule) -> Iterator[str]:
    """Yield the breaches in `text`, which begins at line `first`."""
    shown = running(text, names=True)
    flat = re.sub(r"(?<!\n)\n(?!\s*\n)", " ", shown)
    for pattern, instead in rule.patterns:
        for match in pattern.finditer(flat):
            quoted = " ".join(text[match.start() : match.end()].split())
            yield f"{first + _line(text, match.start())}: {quoted!r}: {instead}"
    for start, sentence in sentences(shown):
        words = len(re.findall(r"\w+", sentence))
        if words > rule.longest:
            yield f"{first + _line(text, start)}: a sentence of {words} words"
    words = len(flat.split())
    # A docstring is too short for a rate: two semicolons are too many in any.
    allowed = max(1.0, words * rule.semicolons / 1000)
    if flat.count(";") > allowed:
        yield f"{first}: {flat.count(';')} semicolons in {words} words"


def _line(text: str, place: int) -> int:
    return text.count("\n", 0, place)


if __name__ == "__main__":
    sys.exit(main())
