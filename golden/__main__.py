"""`python -m golden [--quick] [--write] [--tree PATH]`: 0 where nothing differs, else 1 and a line
for each difference.

--quick: the kept files, and one run for each algorithm name. --write: write the kept files anew,
compare nothing. --tree: the newer tree, if it is not this one.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from golden import gate
from golden.gate import FAILED, KINDS, Gate, Work
from golden.trees import ROOT, Failed, Tree, checked_out, reference

SHOWN = 60  # differences


def main() -> int:
    """The exit code."""
    parser = argparse.ArgumentParser(prog="python -m golden", description=__doc__)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--tree", type=Path, default=ROOT)
    options = parser.parse_args()
    began = time.monotonic()
    try:
        if options.write:
            write(options.tree)
            return 0
        found, left_out = compare(options.tree, quick=options.quick)
    except Failed as failed:
        print(f"golden: {failed}", file=sys.stderr)
        return 1
    for name in left_out:
        print(f"LEFT OUT {name}: its data is not in TACIT_DATA={data()}")
    for line in found[:SHOWN]:
        print(f"DIFFERS {line}")
    said = f"{len(found)} differences, at most {SHOWN} are shown" if found else "equal"
    print(f"golden: {said}; {time.monotonic() - began:.0f} s")
    return 1 if found else 0


def compare(tree: Path, *, quick: bool = False) -> tuple[list[str], list[str]]:
    """Return the differences of `tree` from the kept files and the reference.

    Also returns what could not be compared. Raises Failed.
    """
    wanted = reference()
    print(f"golden: {tree} beside {wanted.commit}", flush=True)
    with checked_out(wanted) as older, _gate(older, tree) as made:
        work = Work(KINDS, made.jobs(quick=quick), () if quick else made.runs.mqtt)
        return made.differences(work), made.left_out


def write(tree: Path) -> None:
    """Write the kept files as `tree` has them. Raises Failed, and then nothing is written."""
    with _gate(Tree(tree), tree) as made:
        contents = dict(made.found(KINDS))
    if failed := [
        f"kept {kind}: {found[FAILED]}" for kind, found in contents.items() if FAILED in found
    ]:
        raise Failed(failed[0])
    for kind, found in contents.items():
        gate.write(gate.KEPT / f"{kind}.json", found)


@contextmanager
def _gate(older: Tree, tree: Path) -> Iterator[Gate]:
    with tempfile.TemporaryDirectory(prefix="golden-") as folder:
        made = Gate(older, Tree(tree.resolve()), Path(folder), data())
        try:
            yield made
        finally:
            made.close()


def data() -> str | None:
    """The folder of the data, absolute: the trees are elsewhere."""
    given = os.environ.get("TACIT_DATA")
    return str(Path(given).resolve()) if given else None


if __name__ == "__main__":
    sys.exit(main())
