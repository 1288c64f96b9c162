"""A statement, made where the rows are: by a worker, once its run has ended for it."""

from __future__ import annotations

import base64
import hashlib
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime
from importlib import metadata
from pathlib import Path
from typing import Any

from tacit import regular_file
from tacit.config.definition import Definition
from tacit.digests import canonical
from tacit.errors import ConfigError
from tacit.privacy.ledger import Ledger, StatedChain
from tacit_services.enrollment import certificates
from tacit_services.statements.accepted_messages import AcceptedMessages
from tacit_services.statements.running_code import running_code
from tacit_services.statements.statement import (
    StatedConsent,
    StatedMessages,
    StatedPrivacy,
    Statement,
)


def today() -> date:
    """Return the day, in UTC."""
    return datetime.now(UTC).date()


@dataclass(frozen=True, slots=True)
class Stating:
    """What a worker's statement is made of, beside its ledger.

    definition: of the run. policy: the owner's policy file, or None. consents: what the owner has
    answered to its offers.
    """

    run: str
    edge: str
    definition: Definition[Any]
    policy: Path | None
    consents: Iterable[StatedConsent] = ()
    clock: Callable[[], date] = today

    def statement(
        self,
        ledger: Ledger,
        messages: AcceptedMessages,
        unanswered: Mapping[int, bytes],
        key: certificates.Key,
        *,
        ended: bool,
    ) -> Statement:
        """Return the statement of all that `ledger` has released until now.

        messages: those that the run has; unanswered: those of which nobody knows it. Raises
        PrivacyError where the ledger cannot be read, ConfigError where the policy cannot.
        """
        chain = StatedChain.of(ledger.chain(), ledger.charged())
        counted = StatedMessages(
            count=messages.count,
            last=messages.last,
            head=messages.head.hex(),
            unanswered={str(number): digest.hex() for number, digest in unanswered.items()},
        )
        return Statement(
            run=self.run,
            edge=self.edge,
            key=base64.b64encode(certificates.public_bytes(key.public_key())).decode(),
            definition=agreed_digest(self.definition.agreed),
            privacy=self._privacy(ledger, chain),
            chain=chain.document(),
            messages=counted,
            policy=_digest(self.policy),
            consents=list(self.consents),
            ended=ended,
            code=running_code(),
            at=self.clock(),
        )

    def _privacy(self, ledger: Ledger, chain: StatedChain) -> StatedPrivacy:
        promise = self.definition.promise
        history = chain.history()
        spent = promise.spent(self.edge, history, ledger.charged(), history)
        epsilon = spent.epsilon_pld if promise.private else None
        return StatedPrivacy(
            guarantee=promise.guarantee.guarantee if promise.private else "none",
            unit=promise.guarantee.unit,
            adjacency=promise.guarantee.adjacency,
            noise_at=promise.guarantee.noise_at,
            mechanism=promise.mechanism,
            accountant=accountant(),
            delta=promise.delta,
            epsilon=epsilon if epsilon is not None and math.isfinite(epsilon) else None,
        )


def accountant() -> str:
    """Return the name of what computes ε."""
    return f"PLD, dp-accounting {metadata.version('dp-accounting')}"


def agreed_digest(agreed: dict[str, Any]) -> str:
    """Return the SHA-256 by which a statement names a run definition."""
    return hashlib.sha256(canonical(agreed).encode()).hexdigest()


def _digest(policy: Path | None) -> str | None:
    if policy is None:
        return None
    try:
        return hashlib.sha256(regular_file.content(policy)).hexdigest()
    except OSError as error:
        raise ConfigError(f"{policy}: {error.strerror or error}") from error
