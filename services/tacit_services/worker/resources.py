"""The resources of a worker: its identity with ledger, outbox and credentials, and its CPU turn."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from typing import Any

from tacit.config.definition import Definition
from tacit.datasets import Source
from tacit.privacy.ledger import Ledger
from tacit_services.identity import enrolment, lineage, own_ledgers
from tacit_services.identity import folder as identities
from tacit_services.identity.folder import Identity
from tacit_services.settings import EdgeSettings, data_home
from tacit_services.transport.tls import Tls
from tacit_services.worker.cpu_turns import CpuTurns
from tacit_services.worker.enroll import credentials
from tacit_services.worker.heartbeat import Heartbeat
from tacit_services.worker.outbox import Outbox


@dataclass(frozen=True, slots=True)
class WorkerResources:
    """What is open while an edge, a party or a peer works; `tls` is None on a plain broker."""

    heartbeat: Heartbeat
    identity: Identity
    ledger: Ledger
    outbox: Outbox
    turns: CpuTurns
    tls: Tls | None


@contextmanager
def worker_resources(
    settings: EdgeSettings, definition: Definition[Any], stop: threading.Event
) -> Iterator[WorkerResources | None]:
    """Yield the first free identity of the run and its resources; None: stopped before.

    Raises ConfigError, PrivacyError.
    """
    # Order at the end: the connection is down already, then the ledger, and last the identity that
    # it belongs to.
    with closing(Heartbeat(settings.health_file)) as heartbeat:
        heartbeat.stands("waits for an identity")
        places = definition.plans.workers  # the spare ones too
        identity = identities.acquire(settings.identities, places, settings.identity, stop)
        if identity is None:
            yield None
            return
        heartbeat.stands("starting", identity.edge)
        with _opened(settings, definition.source, identity, stop, heartbeat) as resources:
            yield None if stop.is_set() else resources


@contextmanager
def _opened(
    settings: EdgeSettings,
    source: Source,
    identity: Identity,
    stop: threading.Event,
    heartbeat: Heartbeat,
) -> Iterator[WorkerResources]:
    with (
        closing(identity),
        ledger_of(source, identity, settings.ledger) as ledger,
        closing(CpuTurns(settings.turns)) as turns,
    ):
        owner = enrolment.read(identity.path).owner
        outbox = Outbox(ledger, settings.run_id, owner, identity.path)
        tls = credentials(settings, identity, stop)
        yield WorkerResources(heartbeat, identity, ledger, outbox, turns, tls)


@contextmanager
def ledger_of(source: Source, identity: Identity, setting: str | None) -> Iterator[Ledger]:
    """Yield the ledger of this identity's data.

    It is `setting` (TACIT_LEDGER), else of own data the one in the user's data folder, and of
    published data the identity's own. Raises PrivacyError, and of own data ConfigError and
    DataError.
    """
    owned = None if setting else source.owned(identity.number)
    if owned is None:
        with lineage.ledger(identity, setting, source.name) as ledger:
            yield ledger
        return
    with (
        own_ledgers.opened(owned, identity.number, data_home()) as place,
        lineage.ledger(identity, str(place.path), place.dataset) as ledger,
    ):
        yield ledger
