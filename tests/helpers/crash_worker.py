"""A member's worker that kills itself at the point of its plan: as `member.run_worker`."""

from __future__ import annotations

import sys
from typing import Any

from tacit_services import launch
from tacit_services.member.run_worker import main

from tacit.privacy.ledger import SharedLedger
from tacit.privacy.ledger.chain import Charge
from tests.helpers.crash_edge import POINTS, Killer
from tests.helpers.crash_plan import next_death

# Each release has a commit of its own that charges it: in the middle of that, too.
SHARED_POINTS = (*POINTS[:1], "in_charge", *POINTS[1:])


class SharedKiller(Killer):
    """Ends a process that charges a shared ledger."""

    def install(self) -> None:
        """Put the points around the functions that they are named after."""
        super().install()
        write = SharedLedger._write

        def new_write(ledger: SharedLedger, charge: Charge) -> Any:
            written = write(ledger, charge)
            self.at("in_charge")
            return written

        setattr(SharedLedger, "_write", new_write)  # noqa: B010  (as Killer does)


def install(run: str) -> None:
    """Put the point around the function that it is named after, if this process dies."""
    death = next_death(run)
    if death is not None:
        (point, release), died = death
        SharedKiller(point, release, ledger=SharedLedger, died=died).install()


if __name__ == "__main__":
    install(sys.argv[2])
    launch.run(lambda: main(*sys.argv[1:]))
