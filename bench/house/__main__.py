"""`python -m bench.house [--tree DIR] [--beside COMMIT ...] [--json | --walks] [--write]`.

--tree: the checkout to measure, if not this one. --beside: commits of this repository, for a column
each to its left. --json: everything, stop by stop. --walks: the stops, as text. --write: the table
goes into docs/house.md. Half a minute a tree.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from bench.house import report
from bench.house.walks import ROOT, Lost
from golden.trees import Failed, git

NOW = "this tree"


def main() -> int:
    """The exit code."""
    parser = argparse.ArgumentParser(prog="python -m bench.house", description=__doc__)
    parser.add_argument("--tree", type=Path, default=ROOT)
    parser.add_argument("--beside", nargs="+", default=[], metavar="COMMIT")
    for option in ("--json", "--walks", "--write"):
        parser.add_argument(option, action="store_true")
    options = parser.parse_args()
    try:
        found = measured(options.tree, options.beside)
    except (Failed, Lost) as error:
        print(f"house: {error}", file=sys.stderr)
        return 1
    if options.json:
        print(json.dumps({name: each.as_json() for name, each in found.items()}, indent=2))
    elif options.walks:
        print("\n".join(report.walks_as_text(found[NOW])))
    else:
        print(report.table(found))
    if options.write:
        report.write(ROOT / "docs" / "house.md", report.table(found))
    return 0


def measured(tree: Path, beside: Sequence[str]) -> dict[str, report.House]:
    """By commit, and `tree` last. Raises Lost, Failed."""
    with ExitStack() as end:
        trees = {commit: end.enter_context(_checked_out(commit)) for commit in beside} | {NOW: tree}
        return {name: report.measure(path) for name, path in trees.items()}


@contextmanager
def _checked_out(commit: str) -> Iterator[Path]:
    with TemporaryDirectory(prefix="house-") as folder:
        place = Path(folder) / "tree"
        git("worktree", "add", "--quiet", "--detach", str(place), commit)
        try:
            yield place
        finally:
            git("worktree", "remove", "--force", str(place))


if __name__ == "__main__":
    sys.exit(main())
