"""Starts one service in the current process: aggregator, edge, peer or party.

Both ways to start a service end here. One is a command such as `tacit edge`. The other is a child
process that is forked from a process which has the imports done already (children/preload.py). A
service takes its settings from the `TACIT_*` variables of the environment. Its libraries are
imported when it is started, not when this module is.
"""

from __future__ import annotations

import errno
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from tacit.errors import PrivacyError, TacitError
from tacit.shown import printable
from tacit_services import logs

if TYPE_CHECKING:
    from tacit_services.settings import EdgeSettings

# What a write fails with when a disk is full, over its quota, read-only or broken.
_DISK = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EIO}
INTERRUPTED = 130  # the exit code of a command that was interrupted


def aggregator() -> None:
    """Run the aggregator of one run until the run ends. Raises TacitError."""
    from tacit_services.aggregator.main import main
    from tacit_services.offers.submitted_run import submitted_run
    from tacit_services.settings import AggregatorSettings, read_settings

    settings = read_settings(AggregatorSettings)
    logs.to_stderr(settings.log, settings.log_format)
    if settings.offer is None:
        main(settings)
    else:
        main(settings, submitted_run(settings.offer))


def edge() -> None:
    """Run one edge until the run ends. Raises TacitError."""
    from tacit_services.edge.main import main

    _work(main)


def peer() -> None:
    """Run one peer of a run without a server until the run ends. Raises TacitError."""
    from tacit_services.peer.main import main

    _work(main)


def party() -> None:
    """Run one party of a vertical run until the run ends. Raises TacitError."""
    from tacit_services.party.main import main

    _work(main)


SERVICES: dict[str, Callable[[], None]] = {
    "aggregator": aggregator,
    "edge": edge,
    "peer": peer,
    "party": party,
}


def main(name: str) -> None:
    """Run the service `name`, and exit as its command would, by `run`."""
    run(SERVICES[name])


def run(service: Callable[[], None]) -> None:
    """Run a service to its end.

    A TacitError becomes one line on standard error and its exit code; an interrupt exits with 130.
    """
    try:
        service()
    except TacitError as error:
        sys.exit(complain(str(error), error.exit_code))
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)


def complain(message: str, code: int, faults: Sequence[str] = ()) -> int:
    """Print `message` as one line on standard error, and return `code` for `sys.exit`.

    faults: a further line each.
    """
    for line in (f"tacit: {message}", *(f"  {fault}" for fault in faults)):
        indent = "  " if line.startswith(" ") else ""
        print(indent + printable(" ".join(line.split())), file=sys.stderr)  # noqa: T201
    return code


def _work(main: Callable[[EdgeSettings], None]) -> None:
    """Run a service that owns rows. A disk that takes no more ends it as its ledger would."""
    from tacit_services.settings import EdgeSettings, read_settings

    settings = read_settings(EdgeSettings)
    logs.to_stderr(settings.log, settings.log_format)
    try:
        main(settings)
    except OSError as error:
        if error.errno not in _DISK:
            raise
        raise PrivacyError(f"disk: {error}; nothing was sent that is not on it") from error
