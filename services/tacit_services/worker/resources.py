"""The resources of a worker: its identity with ledger, outbox and credentials, and its CPU turn.

All of them are of this machine. A worker reads its rows with them, and only then says anything to
anybody: how long rows take to be read tells of single ones.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager
from dataclasses import dataclass
from typing import Any

from tacit.config.definition import Definition
from tacit.datasets import Source
from tacit.errors import PolicyForbids
from tacit.privacy.ledger import Ledger
from tacit_services.identity import lineage, own_ledgers
from tacit_services.identity.folder import Identities, Identity
from tacit_services.identity.ledger_place import LedgerPlace
from tacit_services.identity.lineage import LedgerUse
from tacit_services.settings import EdgeSettings, data_home
from tacit_services.transport.proxy import DIRECT, Proxies
from tacit_services.worker import told_veto
from tacit_services.worker.cpu_turns import CpuTurns
from tacit_services.worker.departures import Departures
from tacit_services.worker.enroll import Credentials, prepared
from tacit_services.worker.heartbeat import Heartbeat
from tacit_services.worker.outbox import Outbox

log = logging.getLogger("tacit.edge")


@dataclass(frozen=True, slots=True)
class Broker:
    """The broker of a run, as a worker reaches it.

    address: HOST:PORT. chunk: bytes of the largest payload. timeout: seconds to wait for it at the
    start. credentials: what it is shown. proxies: by which it is reached.
    """

    address: str
    chunk: int
    timeout: float
    credentials: Credentials
    proxies: Proxies = DIRECT


@dataclass(frozen=True, slots=True)
class WorkerResources:
    """The resources of an edge, a party or a peer at work on `run`, and its broker."""

    run: str
    heartbeat: Heartbeat
    departures: Departures
    identity: Identity
    ledger: Ledger
    outbox: Outbox
    turns: CpuTurns
    broker: Broker


LedgerOpener = Callable[[Source, Identity, LedgerUse], AbstractContextManager[Ledger]]


@contextmanager
def ledger_of(source: Source, identity: Identity, use: LedgerUse) -> Iterator[Ledger]:
    """Yield the ledger of this identity's data; use: what is charged.

    It is the ledger that TACIT_LEDGER names for the identity. Otherwise own data has the one in the
    user's data folder, and published data the identity's own. Raises PrivacyError, and of own data
    ConfigError and DataError.
    """
    if identity.ledger:
        owned = None
    else:
        owned = source.owned(identity.number)
    if owned is None:
        place = identity.ledger_place
        with lineage.ledger(identity, place, source.name, use) as ledger:
            yield ledger
        return
    with own_ledgers.opened(owned, identity.number, data_home()) as location:
        if location.continues is None:
            if location.apart:
                other = "other "
            else:
                other = ""
            log.info("a new ledger begins: no %sdata like this is known in %s", other, data_home())
        else:
            log.info("the ledger of %s continues", location.continues)
        for apart in location.apart:
            log.warning("%s", apart)
        place = LedgerPlace(location.path)
        with lineage.ledger(identity, place, location.dataset, use) as ledger:
            yield ledger


@contextmanager
def worker_resources(
    settings: EdgeSettings,
    definition: Definition[Any],
    stop: threading.Event,
    allowed: Callable[[int], object] = lambda number: None,
    ledger: LedgerOpener = ledger_of,
) -> Iterator[WorkerResources | None]:
    """Yield the first free identity of the run and its resources; None: stopped before.

    Nothing is sent, and what can be wrong with credentials is looked for as far as that allows.
    allowed: raises for the number of a worker that may not take part, before any ledger knows its
    rows. ledger: opens what is charged. That the policy forbids the run is told to the aggregator,
    and is all that it is told.
    Raises ConfigError, PrivacyError.
    """
    identities = Identities(settings.identities, settings.identity, settings.ledger)
    with closing(Heartbeat(settings.health_file)) as heartbeat:
        heartbeat.stands("waits for an identity")
        identity = identities.acquire(definition.plans.workers, stop)  # the spare ones too
        if identity is None:
            yield None
            return
        heartbeat.stands("starting", identity.edge)
        # Order at the end: the connection is down already, then the ledger, and last the identity
        # that it belongs to.
        with closing(identity):
            try:
                allowed(identity.number)
            except PolicyForbids as veto:
                told_veto.tell(settings, identity, veto.key, stop)
                raise
            credentials = prepared(settings, identity)
            broker = Broker(
                settings.broker,
                settings.chunk,
                settings.connect_timeout,
                credentials,
                settings.proxies(),
            )
            use = LedgerUse(
                None if definition.ask is None else settings.run_id,
                None if definition.judging is None else settings.run_id,
            )
            with (
                ledger(definition.source, identity, use) as opened,
                closing(CpuTurns(settings.turns)) as turns,
            ):
                run = settings.run_id
                owner = identity.enrolment().owner
                outbox = Outbox(opened, run, owner, identity.path)
                departures = Departures(settings.left_file)
                yield WorkerResources(
                    run, heartbeat, departures, identity, opened, outbox, turns, broker
                )
