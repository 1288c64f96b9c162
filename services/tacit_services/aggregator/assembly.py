"""Assembly of one run's driver and all its collaborators, each built once."""

from __future__ import annotations

import functools
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tacit.algorithms.base.server import ServerRole
from tacit.config.definition import Definition
from tacit.models import Model
from tacit.protocol import wire
from tacit_services.aggregator.broker_link import Link
from tacit_services.aggregator.downlink import Downlink
from tacit_services.aggregator.driver import ServerDriver
from tacit_services.aggregator.ingest import trusted
from tacit_services.aggregator.ingest.admission import Admission
from tacit_services.aggregator.ingest.checks import Checks
from tacit_services.aggregator.ingest.guard import Guard
from tacit_services.aggregator.ingest.presence import note as note_presence
from tacit_services.aggregator.ingest.reassembly import Reassembly
from tacit_services.aggregator.ingest.receipts import Receipts
from tacit_services.aggregator.ingest.staging import Staging
from tacit_services.aggregator.run_journal import RunJournal
from tacit_services.aggregator.task_scheduler import scheduler_of
from tacit_services.journal.store import Store
from tacit_services.transport.inbox import Inbox
from tacit_services.transport.rate_limit import RateLimiter


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What surrounds a driver: the run's name, its store, its link to the broker, and limits.

    max_message, chunk: bytes of the largest update, and of the largest MQTT payload. ledger: the
    file of the edges' ledgers, for noise_at = "server". clock: seconds, for the guard's limits and
    the scheduler's. key: what receipts are proven with; empty: one of this process alone.
    """

    run_id: str
    store: Store
    link: Link
    max_message: int
    chunk: int
    ledger: Path | str = ""
    clock: Callable[[], float] = time.monotonic
    key: bytes = b""


def assemble(
    definition: Definition[Any], role: ServerRole, model: Model, surroundings: Surroundings
) -> ServerDriver:
    """The driver of `role`, with all that it works with.

    Raises ConfigError, PrivacyError (of the ledger).
    """
    journal = _journal(definition, role, model, surroundings)
    at_server = definition.privacy.noise_at == "server"
    noise = trusted.opened(journal, definition, surroundings.ledger) if at_server else None
    guard = Guard(definition.guard, role, definition.plans.named, surroundings.clock)
    presence: dict[str, str] = {}
    scheduler = scheduler_of(
        definition, role, presence, lambda: guard.quarantined().keys(), surroundings.clock
    )
    downlink = Downlink(
        surroundings.run_id, journal.schema, surroundings.chunk, surroundings.link, scheduler
    )
    names, update_bytes = frozenset(definition.names), 4 * max(model.size, role.largest)
    limiter = RateLimiter(
        definition.guard.rate, definition.guard.burst, update_bytes, surroundings.clock
    )
    inbox = Inbox(limiter, names, functools.partial(note_presence, presence, names))
    # No message of this run can be larger.
    reassembly = Reassembly(
        min(surroundings.max_message, update_bytes + wire.MAX_META + 128), len(names)
    )
    staging = Staging(surroundings.store, allowed=noise is None)
    admission = Admission(
        inbox,
        journal,
        downlink,
        limiter=limiter,
        reassembly=reassembly,
        staging=staging,
        guard=guard,
        checks=Checks.of(definition, role.dataset, surroundings.clock),
        noise=noise,
        scheduler=scheduler,
        presence=presence,
        names=names,
        receipts=Receipts(surroundings.key or secrets.token_bytes(32), surroundings.run_id),
    )
    return ServerDriver(
        journal,
        admission,
        downlink,
        surroundings.link,
        inbox,
        limiter=limiter,
        reassembly=reassembly,
        staging=staging,
        guard=guard,
        scheduler=scheduler,
        presence=presence,
        noise=noise,
        names=names,
    )


def _journal(
    definition: Definition[Any], role: ServerRole, model: Model, surroundings: Surroundings
) -> RunJournal:
    return RunJournal(
        surroundings.run_id,
        role,
        model.schema_hash(),
        model.size,
        surroundings.store,
        fingerprint=definition.fingerprint,
        snapshot_every=definition.snapshot_every,
    )
