"""Starts one service in this process: the command line's `tacit edge` and a preloaded child are the same.

A service takes its settings from TACIT_* in the environment. Its libraries are imported when it is started.
"""

from __future__ import annotations

import sys
from collections.abc import Callable

from tacit.errors import TacitError
from tacit_services import logs
from tacit_services.settings import AggregatorSettings, EdgeSettings, read_settings

INTERRUPTED = 130


def aggregator() -> None:
    """Serve one run. Raises TacitError."""
    from tacit_services.aggregator.main import main

    settings = read_settings(AggregatorSettings)
    logs.to_stderr(settings.log, settings.log_format)
    main(settings)


def edge() -> None:
    """Be one edge. Raises TacitError."""
    from tacit_services.edge.main import main

    _work(main)


def peer() -> None:
    """Be one peer of a run without a server. Raises TacitError."""
    from tacit_services.peer.main import main

    _work(main)


def party() -> None:
    """Be one party of a vertical run. Raises TacitError."""
    from tacit_services.party.main import main

    _work(main)


SERVICES: dict[str, Callable[[], None]] = {
    "aggregator": aggregator,
    "edge": edge,
    "peer": peer,
    "party": party,
}


def main(name: str) -> None:
    """Be the service `name`, and exit as its command does: a TacitError is one line on stderr and its code."""
    try:
        SERVICES[name]()
    except TacitError as error:
        sys.exit(complain(str(error), error.exit_code))
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)


def complain(message: str, code: int) -> int:
    """Print `message` as one line on stderr; returns `code`, the exit code."""
    print("tacit: " + " ".join(message.split()), file=sys.stderr)  # noqa: T201
    return code


def _work(main: Callable[[EdgeSettings], None]) -> None:
    settings = read_settings(EdgeSettings)
    logs.to_stderr(settings.log, settings.log_format)
    main(settings)
