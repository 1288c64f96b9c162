"""The console script `tacit`.

It begins before typer, which only the extras install.
"""

from __future__ import annotations

import sys

from tacit_services import extras, laboratory


def main() -> None:
    """Run the command line. Without its library, print in one line what to install and return 2."""
    try:
        from tacit_services.cli import main as command_line
    except ModuleNotFoundError as error:
        if error.name != "typer":
            raise
        sys.exit(_complain(sys.argv[1:]))
    command_line.main()


def _complain(arguments: list[str]) -> int:
    commands = {".".join(arguments[:1]), ".".join(arguments[:2])}
    if commands.intersection(laboratory.NAMES):
        advice = laboratory.ADVICE
    else:
        extra = next((name for name in arguments[:1] if name in extras.names()), "run")
        advice = extras.advice(extra)
    print(f"tacit: {advice}", file=sys.stderr)  # noqa: T201
    return 2
