"""The rules that the backends share: verdicts, limits, and words of refusals."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Self

from tacit import errors
from tacit_services.journal.store.base import Anchor, Appended, StoredEntry, Verdict

MAX_SEQ = 2**53 - 1  # the Redis script compares sequence numbers as Lua numbers, which are doubles


@dataclass(frozen=True, slots=True)
class JournalLimits:
    """The limits of a journal: it is BUSY while it holds `entries` messages or `bytes` of payload.

    BUSY depends on the journal alone, never on the size of the message at hand. So once one message
    is refused, all later ones are refused too until the next save: a small message cannot overtake
    an earlier big one of the same edge. The price is that the journal may pass `bytes` by less than
    one payload.
    """

    entries: int
    bytes: int

    def __post_init__(self) -> None:
        for name, value in (("max_entries", self.entries), ("max_bytes", self.bytes)):
            if value < 1:
                raise errors.ConfigError(f"store: {name} is {value}, but must be at least 1")


class Totals(NamedTuple):
    """The run's last accepted position, what its journal holds now, and duplicates of all time."""

    position: int
    entries: int
    bytes: int
    duplicates: int

    def after(self, answer: Appended, size: int) -> Self:
        """Return the totals once an entry of `size` bytes was answered so."""
        if answer.verdict is Verdict.DUPLICATE:
            return self._replace(duplicates=self.duplicates + 1)
        if answer.verdict is not Verdict.ACCEPTED:
            return self
        return self._replace(
            position=answer.position, entries=self.entries + 1, bytes=self.bytes + size
        )


@dataclass(slots=True)
class Known:
    """The last position that an append of this process was given: a store's and its savers'.

    A store that stands before it has lost messages, as after a fail-over.
    """

    position: int = 0

    def heard(self, answers: Sequence[Appended]) -> None:
        """Take in the answers of an append."""
        self.position = max(self.position, *(answer.position for answer in answers))


def judge(last: int, seq: int, depth: tuple[int, int], limits: JournalLimits) -> Verdict:
    """Return the verdict on `seq`, by the edge's `last` accepted and `depth` (entries, bytes)."""
    if seq <= last:
        return Verdict.DUPLICATE
    if depth[0] >= limits.entries or depth[1] >= limits.bytes:
        return Verdict.BUSY
    return Verdict.ACCEPTED


def check_numbers(edge: str, seq: int, anchor: Anchor | None) -> None:
    """Raise ValueError for a sequence number or an anchor's count outside 0..MAX_SEQ."""
    if not 0 <= seq <= MAX_SEQ:
        raise ValueError(f"seq {seq} of edge {edge!r} is outside 0..{MAX_SEQ}")
    if anchor is not None and not 0 <= anchor.count <= MAX_SEQ:
        raise ValueError(f"anchor {anchor.count} of edge {edge!r} is outside 0..{MAX_SEQ}")


def check_cursor(cursor: int, stored: int, position: int) -> None:
    """Raise ValueError unless `stored` <= `cursor` <= `position` (the last accepted)."""
    if cursor < stored:
        raise ValueError(f"snapshot cursor {cursor} is older than the stored one, {stored}")
    if cursor > position:
        raise ValueError(f"snapshot cursor {cursor} is past the last accepted position, {position}")


def fenced(run: str, epoch: int) -> errors.Fenced:
    """Return the error for a write under an `epoch` that is not the newest (0: never opened)."""
    if epoch == 0:
        return errors.Fenced(f"store: run {run!r} has not been opened for writing by this process")
    return errors.Fenced(
        f"store: a newer aggregator has taken over run {run!r} from epoch {epoch}, or the store "
        f"was emptied; stopping"
    )


def in_pages(
    read: Callable[[int, int], Sequence[StoredEntry]], after: int, page: int
) -> Iterator[StoredEntry]:
    """Yield what base.Store.replay promises, by one `read` after another."""
    while entries := read(after, page):
        yield from entries
        after = entries[-1].position


def incomplete(store: str, run: str, present: int, due: int) -> errors.WireError:
    """Return the error of `open` where entries are missing: the fold would be another model."""
    return errors.WireError(
        "journal",
        f"{store}: run {run!r} has {present} entries behind its snapshot, {due} were accepted",
    )


def lost(store: str, run: str) -> errors.StoreLost:
    """Return the error where a part of what the store had of `run` is gone."""
    return errors.StoreLost(
        f"{store}: run {run!r} has lost a part of what the store had of it (a server that evicts "
        "keys, or somebody's hand). Empty the store of the run and put all back (tacit recover "
        f"--from JOURNAL --empty {run}), or begin anew under another TACIT_RUN_ID"
    )


def altered(store: str, run: str, what: str) -> errors.WireError:
    """Return the error for something in a store that is not as it was written."""
    return errors.WireError("journal", f"{store}: {what} of run {run!r} was altered")


def other_parameters(run: str, stored: str, ours: str) -> errors.ConfigError:
    """Return the error of `open` where `run` was stored with another parameter fingerprint."""
    return errors.ConfigError(
        f"run: {run!r} is in the store with parameters {stored[:12]}, "
        f"but this run file has {ours[:12]}; give the run another name or restore its parameters "
        f"(a run that tacit 0.1 began ends with tacit 0.2)"
    )
