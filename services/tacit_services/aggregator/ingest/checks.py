"""The checks of a message before it may enter the journal, as the run's definition asks for them.

- `LedgerContinuity`: does the edge's ledger go on from where it was?
- `DefinitionCheck`: does the edge work by this run's definition?
- `BaseVersions`: can the edge have worked on the model that it states?
- `EndClaims`: do most peers report the end of their run?
- `ControlMessages`: are there too many bytes without an update?
- `check_numbers`: is every number of an update finite, and small enough to be learnt?

A run has one object of each; those that it does not need accept every message. All are for the
driver's thread only.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Set
from dataclasses import dataclass
from typing import Any, Self

import torch

from tacit.config.definition import Definition
from tacit.errors import WireError
from tacit.models.vectors import LARGEST, learnable
from tacit.protocol import wire_up
from tacit_services.aggregator.ingest.definition_check import DefinitionCheck
from tacit_services.aggregator.ingest.ledger_continuity import LedgerContinuity
from tacit_services.aggregator.ingest.receipts import RetryLater
from tacit_services.transport.bucket import Bucket

RATE = 1 << 16  # bytes a second to be read, in the long run
KEPT_RATE = 1 << 10  # to be kept: a Hello every other second
BURST = 1 << 20  # bytes at once: what the longest Meta has
EACH = 512  # bytes that a message counts for beside its own


def check_numbers(vector: torch.Tensor, scale: float) -> None:
    """Raise WireError where a number of an update is not finite, or above LARGEST in size.

    scale: of a vector of integers, what 1 stands for.
    """
    if vector.dtype == torch.int32:  # its extremes say as much as all of its numbers
        vector = wire_up.gradient(torch.stack(torch.aminmax(vector)), scale)
    if not learnable(vector):  # it could ruin the model
        raise WireError("norm", f"a number beyond {LARGEST:g}")


class BaseVersions:
    """The versions at which each edge's last two messages were accepted by this process.

    Staleness is measured from `base_version`, which the edge states itself; MAPA, AUDP and ASGD
    slow down by the largest recent staleness. But an edge has only one message without a receipt at
    a time. So it works on a model that was sent no earlier than when its last but one message was
    accepted. An older version cannot be true. So an edge may be slow, but cannot pretend to be.
    """

    def __init__(self) -> None:
        self._accepted: dict[str, tuple[int, int]] = {}  # at its last but one message, and its last

    def check(self, edge: str, base: int) -> None:
        """Raise WireError ("version") for a model older than this edge can have worked on."""
        oldest, _ = self._accepted.get(edge, (0, 0))
        if base < oldest:
            raise WireError("version", f"{base}, but it has been sent {oldest} since")

    def accepted(self, edge: str, version: int) -> None:
        """Note that a message of this edge was accepted, in a run at `version`."""
        _, last = self._accepted.get(edge, (0, 0))
        self._accepted[edge] = last, version


class NoBaseCheck(BaseVersions):
    """No check, for peers, parties and rounds: nothing in their runs depends on staleness."""

    def check(self, edge: str, base: int) -> None:
        """Accept every message."""


class EndClaims:
    """The peers that have reported the end: a run of peers ends when most connected ones do so.

    A peer's report carries the counter of all steps as that peer knows it. Without this check a
    single report of T would end the run for all.
    """

    def __init__(self, horizon: int) -> None:
        """horizon: T, in versions."""
        self._horizon = horizon
        self._claimed = set[str]()

    def check(self, edge: str, version: int, all_here: Callable[[], Set[str]]) -> None:
        """Raise RetryLater for a report of T while most connected peers (`all_here`) make none.

        The report comes again, and is accepted once they do.
        """
        if version < self._horizon:
            return
        self._claimed.add(edge)
        here = all_here()
        if 2 * len(self._claimed & here) <= len(here):
            raise RetryLater("early", 1.0)


class NoEndCheck(EndClaims):
    """No check, for runs with a server, which counts updates itself."""

    def check(self, edge: str, version: int, all_here: Callable[[], Set[str]]) -> None:
        """Accept every message."""


class ControlMessages:
    """The allowance of bytes of each edge for messages without a tensor: Hello, Retired, Want.

    An update costs an edge some of its budget. A Hello of a megabyte costs it nothing, takes as
    long to read, and is in the journal and its file for ever. So every edge has an allowance of
    such bytes to be read, counted before decoding, and a smaller one of those to be kept. No honest
    edge comes near.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._read: dict[str, Bucket] = {}
        self._journalled: dict[str, Bucket] = {}

    def spend(self, edge: str, size: int) -> None:
        """Count a message of `size` bytes that is to be read.

        Raises RetryLater where it is one too many.
        """
        self._count(self._read, RATE, edge, size)

    def keep(self, edge: str, size: int) -> None:
        """Count a message of `size` bytes that is new to the journal.

        Raises RetryLater where it is one too many.
        """
        self._count(self._journalled, KEPT_RATE, edge, size)

    def _count(self, buckets: dict[str, Bucket], rate: float, edge: str, size: int) -> None:
        now = self._clock()
        bucket = buckets.setdefault(edge, Bucket(rate, BURST, BURST, now))
        if wait := bucket.take(now, min(size + EACH, BURST)):
            raise RetryLater("throttled", wait)


@dataclass(frozen=True, slots=True)
class Checks:
    """One run's checks."""

    continuity: LedgerContinuity
    definition: DefinitionCheck
    base_versions: BaseVersions
    end_claims: EndClaims
    control_messages: ControlMessages

    @classmethod
    def of(cls, definition: Definition[Any], dataset: str, clock: Callable[[], float]) -> Self:
        """Return the checks of a run. dataset: whose ledgers its edges keep."""
        if definition.algorithm.worker == "peer":
            end_claims = EndClaims
        else:
            end_claims = NoEndCheck
        return cls(
            LedgerContinuity(dataset),
            DefinitionCheck(definition.agreed),
            BaseVersions() if definition.traits.in_turn else NoBaseCheck(),
            end_claims(definition.run.updates),
            ControlMessages(clock),
        )
