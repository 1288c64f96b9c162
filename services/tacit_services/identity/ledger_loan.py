"""What a member tells its workers of the ledger that it holds, so that they may charge it.

The member holds the locks (`lineage.lent`, `own_ledgers.lent`). A worker inherits their open files
from it, so the locks stay until the last of them has ended. It opens the ledger by `LedgerLoan`,
which it is told as JSON, and takes no lock of its own.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from tacit.errors import PrivacyError
from tacit.privacy.accounting import Lifetime
from tacit.privacy.accounting.filters import steadiest_order
from tacit.privacy.accounting.lifetime import UNSTATED
from tacit.privacy.ledger import SharedLedger
from tacit_services.identity.ledger_place import HeldLock


@dataclass(frozen=True, slots=True)
class LifetimeBound:
    """The owner's word on a lifetime: lifetime_epsilon and lifetime_delta of the policy.

    epsilon: None, if there is no bound.
    """

    epsilon: float | None = None
    delta: float = 1e-5

    @property
    def order(self) -> int:
        """The order of a ledger that begins now."""
        return steadiest_order(self.epsilon or UNSTATED, self.delta)

    def at(self, order: int) -> Lifetime | None:
        """Return the bound at the order of the data. Raises PrivacyError if it pays for nothing."""
        if self.epsilon is None:
            return None
        try:
            return Lifetime(self.epsilon, self.delta, order)
        except PrivacyError as error:
            raise PrivacyError(
                f"policy lifetime_epsilon={self.epsilon}: pays for no release at "
                f"lifetime_delta={self.delta} and order {order}, which was fixed when the ledger "
                f"began; a larger one does"
            ) from error


UNBOUND = LifetimeBound()


@dataclass(frozen=True, slots=True)
class LedgerLoan:
    """A ledger that a member lends to its workers.

    locks: what the member holds, and a worker inherits. lifetime: None, if it has no bound.
    """

    path: Path
    dataset: str
    lineage: bytes
    locks: tuple[HeldLock, ...]
    lifetime: Lifetime | None = None

    @property
    def descriptors(self) -> tuple[int, ...]:
        """The open files that a worker must inherit (`pass_fds` of subprocess)."""
        return tuple(lock.descriptor for lock in self.locks)

    def opened(self, run: str) -> SharedLedger:
        """Open the ledger for `run`, a name that no other run at this data has.

        Raises PrivacyError where this process has not inherited the member's locks, and as
        `SharedLedger`.
        """
        for lock in self.locks:
            lock.check()
        return SharedLedger(
            self.path, self.dataset, run=run, lifetime=self.lifetime, lineage=self.lineage
        )

    def text(self) -> str:
        """Return the loan as JSON, for a worker's argument."""
        lifetime = self.lifetime
        locks = [[str(lock.path), lock.descriptor, lock.shared] for lock in self.locks]
        content = {
            "path": str(self.path),
            "dataset": self.dataset,
            "lineage": self.lineage.hex(),
            "locks": locks,
            "lifetime": lifetime and [lifetime.epsilon, lifetime.delta, lifetime.order],
        }
        return json.dumps(content)

    @classmethod
    def read(cls, text: str) -> LedgerLoan:
        """Return the loan that `text` states. Raises PrivacyError where it states none."""
        try:
            content = json.loads(text)
            locks = tuple(HeldLock(Path(path), *rest) for path, *rest in content["locks"])
            stated = content["lifetime"]
            return cls(
                Path(content["path"]),
                content["dataset"],
                bytes.fromhex(content["lineage"]),
                locks,
                None if stated is None else Lifetime(*stated),
            )
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise PrivacyError(f"ledger loan: {error}; only a member starts its workers") from error
