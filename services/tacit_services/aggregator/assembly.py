"""Assembly of one run: its state, its pipeline and its driver, with all that they work with.

This is the one place where they are built. What is built for one run is shared with no other, so a
process may assemble several.

    run, pipeline, driver = assemble(definition, role, model, surroundings)
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable
from concurrent.futures import Executor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from tacit.algorithms.base.server import ServerRole
from tacit.config.definition import Definition
from tacit.models import Model
from tacit.protocol import wire
from tacit_services.aggregator.broker_link import Link
from tacit_services.aggregator.downlink import Downlink
from tacit_services.aggregator.driver import ServerDriver
from tacit_services.aggregator.ingest import trusted_noise
from tacit_services.aggregator.ingest.checks import Checks
from tacit_services.aggregator.ingest.guard import UpdateGuard
from tacit_services.aggregator.ingest.reassembly import Reassembly
from tacit_services.aggregator.ingest.receipts import Receipts
from tacit_services.aggregator.ingest.staging import Staging
from tacit_services.aggregator.pipeline import Pipeline
from tacit_services.aggregator.run import Run
from tacit_services.aggregator.run_journal import RunJournal
from tacit_services.aggregator.snapshots import Saving
from tacit_services.aggregator.task_scheduler import scheduler_of
from tacit_services.journal.store import Store
from tacit_services.transport.flood_limit import RateLimiter
from tacit_services.transport.inbox import Filled, Inbox


@dataclass(frozen=True, slots=True)
class Surroundings:
    """The surroundings of a run: its name, its store, its link to the broker, and limits.

    max_message, chunk: bytes of the largest update, and of the largest MQTT payload. ledger: the
    file of the edges' ledgers, for noise_at = "server". clock: seconds, for all that waits or
    limits. key: what receipts are proven with, by default one of this process alone. saver: what
    stores snapshots, a thread if None. filled: how the inbox waits, as threads do if None.
    anchors: under which name the store keeps how far the edges' ledgers have come, by default the
    data's. Runs that share ledgers have a name each.
    """

    run_id: str
    store: Store
    link: Link
    max_message: int
    chunk: int
    ledger: Path | str = ""
    clock: Callable[[], float] = time.monotonic
    key: bytes = b""
    saver: Executor | None = None
    filled: Filled | None = None
    anchors: str = ""


class Assembly(NamedTuple):
    """The three objects of one run."""

    run: Run
    pipeline: Pipeline
    driver: ServerDriver


def assemble(
    definition: Definition[Any], role: ServerRole, model: Model, surroundings: Surroundings
) -> Assembly:
    """Return the run of `role`, not taken over yet.

    Raises ConfigError, PrivacyError (of the ledger).
    """
    link = surroundings.link
    clock = surroundings.clock
    guarded = definition.guard
    journal = _journal(definition, role, model, surroundings)
    at_server = definition.privacy.noise_at == "server"
    if at_server:
        noise = trusted_noise.opened(journal, definition, surroundings.ledger)
    else:
        noise = None
    guard = UpdateGuard(guarded, role, definition.plans.named, clock)
    presence: dict[str, str] = {}
    update_bytes = 4 * max(role.update_size, role.largest)
    run = Run(
        journal,
        link,
        names=frozenset(definition.worker_names),
        presence=presence,
        guard=guard,
        limiter=RateLimiter(guarded.rate, guarded.burst, update_bytes, clock),
        scheduler=scheduler_of(
            definition, role, presence, lambda: guard.quarantined().keys(), clock
        ),
        clock=clock,
    )
    downlink = Downlink(run.run_id, journal.schema, surroundings.chunk, link, run.scheduler, clock)
    # No message of this run can be larger.
    largest = min(surroundings.max_message, update_bytes + wire.MAX_META + 128)
    pipeline = Pipeline(
        run,
        Inbox(run.limiter, run.names, run.note_presence, filled=surroundings.filled),
        downlink,
        reassembly=Reassembly(largest, len(run.names), clock=clock),
        staging=Staging(surroundings.store, allowed=noise is None),
        checks=Checks.of(definition, surroundings.anchors or role.dataset, clock),
        noise=noise,
        receipts=Receipts(surroundings.key or secrets.token_bytes(32), run.run_id),
        clock=clock,
    )
    return Assembly(run, pipeline, ServerDriver(run, pipeline, downlink, link, clock))


def _journal(
    definition: Definition[Any], role: ServerRole, model: Model, surroundings: Surroundings
) -> RunJournal:
    return RunJournal(
        surroundings.run_id,
        role,
        model.schema_hash(),
        role.update_size,
        surroundings.store,
        fingerprint=definition.fingerprint,
        snapshot_every=definition.run.snapshot_every,
        clock=surroundings.clock,
        saving=Saving(surroundings.saver),
    )
