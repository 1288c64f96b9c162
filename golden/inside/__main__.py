"""`python -m golden.inside TREE ADAPTER`: answers questions about the tree, one line of JSON each,
until stdin ends.

An exception ends the process with its traceback on stderr: whoever asked takes its last line for
the answer.
"""

from __future__ import annotations

import json
import os
import sys
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

from golden.adapters import LAYOUTS

QUESTIONS = {
    "available": "bits",
    "simulated": "bits",
    "in_process": "bits",
    "points": "bits",
    "measured": "bits",
    "over_mqtt": "mqtt",
    "again": "mqtt",
    "kept": "kept",
    "algorithms": "kept",
}


def main() -> None:
    """Answer until nobody asks any more."""
    tree, adapter = Path(sys.argv[1]).resolve(), sys.argv[2]
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what the tree prints is no answer
    _check(tree, LAYOUTS[adapter].packages)
    sys.modules["golden.layout"] = import_module(f"golden.adapters.{adapter}")
    import_module("torch").set_num_threads(1)  # with two, sums are split elsewhere
    for line in sys.stdin:
        what, given = json.loads(line)
        answer = getattr(import_module(f"golden.inside.{QUESTIONS[what]}"), what)
        answers.write(json.dumps(answer(**given)) + "\n")
        answers.flush()


def _check(tree: Path, packages: tuple[str, ...]) -> None:
    """An installed tacit, or another tree's, must not come first."""
    for name in packages:
        found = find_spec(name)
        if (
            found is None
            or not found.origin
            or not Path(found.origin).resolve().is_relative_to(tree)
        ):
            raise ImportError(f"{name}: {found and found.origin} is not in {tree}")


if __name__ == "__main__":
    main()
