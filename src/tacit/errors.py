"""Every error that tacit raises on purpose, in one tree.

    TacitError           exit code 1
    ├── ConfigError      2  a run file or a setting: names the field and the value
    │   └── ConfigFaults 2  several at once
    ├── DataError        3  a data file is missing, altered or unreadable
    │   └── OwnersError  3  own rows do not fit; says which only to their owner
    ├── ServiceError     4  broker, store or port: unreachable, in use, lost
    │   ├── Fenced       4  a newer aggregator has taken over this run
    │   └── BrokerRefuses 4 the broker does not take what we send
    ├── PrivacyError     5  the ledger, the budget or the edge's policy refuses
    │   ├── PolicyForbids 5 the owner's policy does not allow the run
    │   └── BudgetSpent  5  the next push would pass the edge's budget
    ├── WireError        6  bytes that are not a message; has a short `reason` for counters
    └── StoreLost        7  the store has lost messages that were receipted

Every message is one line that a person can act on. The command line prints it and exits with the
exit code, so bad input never becomes a traceback. `assert` and all other exceptions mean a bug in
tacit.
"""

from __future__ import annotations

from collections.abc import Sequence


class TacitError(Exception):
    """The base class of every deliberate error. `exit_code` is the exit status of the process."""

    exit_code = 1


class ConfigError(TacitError):
    """A run file or setting is wrong; the message names the field and the value."""

    exit_code = 2


class ConfigFaults(ConfigError):  # noqa: N818  (several errors, shown together)
    """Several things are wrong with one file. origin: the file; faults: a line for each."""

    def __init__(self, origin: str, faults: Sequence[str]) -> None:
        super().__init__(f"{origin}: {'; '.join(faults)}")
        self.origin = origin
        self.faults = tuple(faults)


class DataError(TacitError):
    """A data file is missing, has the wrong checksum, or cannot be read."""

    exit_code = 3


class OwnersError(DataError):
    """Own rows do not fit.

    for_owner: the same in more words, which may quote a row: they are for the owner's screen, and
    for no log.
    """

    def __init__(self, message: str, for_owner: str) -> None:
        super().__init__(f"{message} (tacit check says which)")
        self.for_owner = for_owner


class ServiceError(TacitError):
    """The broker, the store or a port is unreachable, in use or lost."""

    exit_code = 4


class Fenced(ServiceError):  # noqa: N818  (a verdict, as in the journal's contract)
    """A newer aggregator owns this run, so this one must stop without writing."""


class BrokerRefuses(ServiceError):  # noqa: N818  (a verdict, too)
    """The broker drops the connection at one of our messages, however often it is sent."""


class PrivacyError(TacitError):
    """The ledger, the budget or the edge's own policy refuses."""

    exit_code = 5


class PolicyForbids(PrivacyError):  # noqa: N818  (a verdict, too)
    """The owner's policy does not allow the run. key: of the policy, which forbids it."""

    def __init__(self, message: str, key: str) -> None:
        super().__init__(message)
        self.key = key


class BudgetSpent(PrivacyError):  # noqa: N818  (a state of the ledger)
    """The next push would take the edge past its privacy budget, so the edge retires."""


# What a user's own code may end with. `sys.exit` in it would end tacit, and as if all were well.
FROM_OWN_CODE = (Exception, SystemExit)


class WireError(TacitError):
    """Received bytes are not an acceptable message.

    `reason` is a short, stable word for counters and receipts, for example `magic`, `sha256`,
    `shape`.
    """

    exit_code = 6

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(f"{reason}: {detail}")
        self.reason = reason


class StoreLost(TacitError):  # noqa: N818  (a state of the store)
    """The store has lost messages that edges have receipts for: only the operator can go on."""

    exit_code = 7


OF_0_1 = "tacit 0.2 reads what tacit 0.1 wrote (docs/upgrade.md)"


def other_format(written: int | str | None, reads: int | str) -> str:
    """Return what is wrong with a file of format `written` for a tacit that reads `reads`.

    It ends with what to do: a newer file needs a newer tacit, an older one is of tacit 0.1. Raises
    ValueError where `written`, which a stranger may have written, is no number.

    >>> other_format(1, 2)
    'has format 1, this tacit reads 2: tacit 0.2 reads what tacit 0.1 wrote (docs/upgrade.md)'
    >>> other_format(3, 2)
    'has format 3, this tacit reads 2: a newer one has written it'
    """
    if written is None:
        return f"has no format, this tacit reads {reads}: {OF_0_1}"
    try:
        newer = int(written) > int(reads)
    except (OverflowError, TypeError) as error:  # infinity, a list
        raise ValueError(f"has format {str(written)[:40]}, which is no number") from error
    if newer:
        todo = "a newer one has written it"
    else:
        todo = OF_0_1
    return f"has format {str(written)[:40]}, this tacit reads {reads}: {todo}"
