"""`python -m tools.lock NAME=FILE…`: one lock out of resolutions that contain each other.

Each FILE is what uv resolved for a group, the smallest first, as in `edge=edge.txt run=run.txt`.
What a group adds to the one before it stands in a section of requirements.lock, which ends with the
line `# end of NAME`. So a group is the file up to that line:

    sed '/^# end of edge$/q' requirements.lock
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

LOCK = Path(__file__).resolve().parent.parent / "requirements.lock"
HEAD = (
    "# By `make lock`: a group is all up to its `# end of` line; requirements-torch* have torch.\n"
)
_ENTRY = re.compile(r"^(?=[A-Za-z0-9])", re.M)


class DisagreementError(ValueError):
    """A group lacks what a smaller one has, or has it in another version."""


def main() -> None:
    """Write the lock."""
    files = dict(argument.split("=", 1) for argument in sys.argv[1:])
    groups = {name: Path(file).read_text(encoding="utf-8") for name, file in files.items()}
    LOCK.write_text(merged(groups), encoding="utf-8")


def merged(groups: dict[str, str]) -> str:
    """Return the text of the lock, each entry as the largest group has it.

    Raises DisagreementError.
    """
    largest = entries([*groups.values()][-1])
    sections = [HEAD]
    written = set[str]()
    for name, text in groups.items():
        mine = set(entries(text))
        if missing := sorted((mine | written) - (mine & largest.keys())):
            raise DisagreementError(f"{name}: {missing[0]}: is not in every larger group")
        sections += [largest[pin] for pin in largest if pin in mine - written]
        sections.append(f"# end of {name}\n")
        written |= mine
    return "".join(sections)


def entries(text: str) -> dict[str, str]:
    """Return every entry of a requirements file by its `name==version`."""
    plain = re.sub(r"^#.*\n", "", text, flags=re.M)
    return {re.split(r"[ ;\\]", entry)[0]: entry for entry in _ENTRY.split(plain)[1:]}


if __name__ == "__main__":
    main()
