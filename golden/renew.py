"""`make golden-renew REASON="…" [BITS="…"]`: a commit of its own that takes the commit before it
for the reference.

REASON goes into CHANGELOG.md. BITS, too: why model bits may change, without which nothing that
changes them is renewed.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

from golden import adapters
from golden.__main__ import SHOWN, compare, write
from golden.trees import REFERENCE, ROOT, Failed, git

CHANGELOG = ROOT / "CHANGELOG.md"
HEADING = "### Golden\n"
WIDTH = 112  # of a line of the commit's body


def main() -> int:
    """The exit code."""
    try:
        renew(os.environ.get("REASON", ""), os.environ.get("BITS", ""))
    except Failed as failed:
        print(f"golden-renew: {failed}", file=sys.stderr)
        return 1
    return 0


def renew(reason: str, bits: str) -> None:
    """Compare, write the files, commit. Raises Failed, and then nothing is written."""
    refuse_early(reason, git("status", "--porcelain"))
    found, left_out = compare(ROOT)
    refuse_late(found, left_out, bits)
    head = git("rev-parse", "HEAD").strip()
    write(ROOT)
    REFERENCE.write_text(f"{head} {adapters.NEWEST}\n", encoding="ascii")
    line = entry(reason, bits if _of_bits(found) else "")
    CHANGELOG.write_text(entered(CHANGELOG.read_text(encoding="utf-8"), line), encoding="utf-8")
    git("add", "golden", str(CHANGELOG))
    shown = "\n".join(one[:WIDTH] for one in found[:SHOWN]) or "Nothing differed."
    git("commit", "--quiet", "-m", "Renew the golden reference", "-m", line, "-m", shown)


def refuse_early(reason: str, status: str) -> None:
    """Raise Failed without a reason, or where the tree has what no commit has."""
    if not reason.strip():
        raise Failed(
            'REASON: missing; make golden-renew REASON="what was meant to change, and why"'
        )
    if status:
        raise Failed(
            f"the tree has changes that are not committed; a renewal is a commit of its "
            f"own:\n{status}"
        )


def refuse_late(found: Sequence[str], left_out: Sequence[str], bits: str) -> None:
    """Raise Failed where not all was compared, or model bits differ and nobody says why they
    may.
    """
    if left_out:
        raise Failed(
            f"TACIT_DATA: without all data nobody knows what changed ({len(left_out)} runs left "
            f"out)"
        )
    if (changed := _of_bits(found)) and not bits.strip():
        raise Failed(
            f'BITS: missing; {len(changed)} differences of bits, say why (BITS="…"). The first: '
            f"{changed[0]}"
        )


def _of_bits(found: Sequence[str]) -> list[str]:
    return [line for line in found if not line.startswith("kept ")]


def entry(reason: str, bits: str) -> str:
    """The line of CHANGELOG.md."""
    return f"- {reason.strip()}" + (f" Model bits change: {bits.strip()}" if bits.strip() else "")


def entered(changelog: str, line: str) -> str:
    """`changelog` with one more line on top of the part on golden, in the section of what is not
    released.
    """
    before, head, rest = changelog.partition("## Unreleased\n")
    unreleased, mark, older = rest.partition("\n## ")
    if HEADING not in unreleased:
        unreleased = f"{unreleased.rstrip()}\n\n{HEADING}\n"
    return (
        before + head + unreleased.replace(f"{HEADING}\n", f"{HEADING}\n{line}\n", 1) + mark + older
    )


if __name__ == "__main__":
    sys.exit(main())
