"""The statement of a worker that ends: written beside its identity, for its owner to hand on."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from tacit import regular_file
from tacit.config.definition import Definition
from tacit.errors import TacitError
from tacit_services.enrollment import certificates
from tacit_services.statements import statement
from tacit_services.statements.statement import StatedConsent
from tacit_services.statements.stating import Stating
from tacit_services.worker.contract import Worker
from tacit_services.worker.resources import WorkerResources

log = logging.getLogger("tacit.edge")
StatedAnswers = Callable[[], Sequence[StatedConsent]]


def no_consents() -> Sequence[StatedConsent]:
    """Return nothing: outside of a federation nobody is asked."""
    return ()


def write(
    worker: Worker,
    resources: WorkerResources,
    definition: Definition[Any],
    policy: Path | None,
    consents: StatedAnswers = no_consents,
) -> None:
    """Write what the worker has released until now, signed with the key of its certificate.

    Without a certificate the key is drawn for this statement alone, and forgotten. A statement that
    cannot be written is logged: the ledger has it all, and the run is over for this worker.
    """
    path = statement.statement_file(resources.identity.path, resources.run)
    policy_file = None if policy is None else Path(policy)
    stating = Stating(resources.run, worker.edge, definition, policy_file, consents())
    outbox = resources.outbox
    try:
        key = _key(resources)
        stated = stating.statement(
            worker.releaser.ledger, outbox.accepted, outbox.unanswered, key, ended=worker.halted
        )
        path.parent.mkdir(exist_ok=True)
        statement.write(stated, key, path)
    except (OSError, ValueError, TacitError) as error:
        log.warning("no statement on run %r: %s", resources.run, error)
        return
    log.info("%s has stated what it released: %s", worker.edge, path)


def _key(resources: WorkerResources) -> certificates.Key:
    """Raises OSError, ValueError where the certificate's key cannot be read."""
    path = resources.broker.credentials.key_file
    if path is None:
        return certificates.new_key()
    return certificates.read_key(regular_file.content(path))
