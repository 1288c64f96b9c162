"""Run in a container of an edge: takes an identity of the run and enrols for it as any edge does,
and then is a hostile member until it is ended. Settings are an edge's, from the environment.

    python -m tests.e2e.member
"""

from __future__ import annotations

import threading
from pathlib import Path

from tacit_services.identity.folder import Identities
from tacit_services.settings import EdgeSettings
from tacit_services.worker.enroll import prepared

from tacit import config
from tests.helpers.hostile import CONNECT, HARMLESS_TO_THE_MODEL, Member, attack


def main() -> None:
    """Send hostile messages until the process is killed."""
    settings, stop = EdgeSettings(), threading.Event()
    run = config.load(Path(settings.run_file))
    identities = Identities(settings.identities, settings.identity)
    identity = identities.acquire(run.define().plans.workers, stop)
    assert identity is not None
    tls = prepared(settings, identity).obtain(stop)
    member = Member(run, settings.broker, settings.run_id, identity.edge, tls=tls)
    member.connection.start(CONNECT)
    attack(member, stop, HARMLESS_TO_THE_MODEL)


if __name__ == "__main__":
    main()
