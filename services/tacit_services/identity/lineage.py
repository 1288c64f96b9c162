"""The ledger that belongs to an identity's data: enrolled once, then demanded at every start.

The ledger goes with the data (`TACIT_LEDGER`), not with the identity, the container or the run.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass

from tacit.errors import PrivacyError
from tacit.privacy.ledger import Ledger
from tacit_services.identity.enrolment import Enrolment
from tacit_services.identity.folder import Identity
from tacit_services.identity.ledger_loan import LedgerLoan, LifetimeBound
from tacit_services.identity.ledger_place import HeldLock, LedgerPlace

log = logging.getLogger("tacit.identity")


@dataclass(frozen=True, slots=True)
class LedgerUse:
    """What a ledger is opened to be charged for: the names of the run, as `Ledger` has them."""

    question: str | None = None
    judges: str | None = None


TRAINING = LedgerUse()


@contextmanager
def ledger(
    identity: Identity, place: LedgerPlace, dataset: str, use: LedgerUse = TRAINING
) -> Iterator[Ledger]:
    """Open and lock the ledger of `dataset` for this identity, until the end of the block.

    use: what is charged.

    Raises PrivacyError

    - when another edge uses it,
    - when it is not the one that was enrolled here, or an older copy than was last opened here,
    - when it is missing or empty although it was enrolled here,
    - when what this identity has is of tacit 0.1.
    """
    with _locked(place), _enrolled(identity, place, dataset, dataset, use) as opened:
        yield opened


@contextmanager
def lent(
    identity: Identity,
    place: LedgerPlace,
    dataset: str,
    bound: LifetimeBound,
    record: str | None = None,
) -> Iterator[LedgerLoan]:
    """Lock the ledger for this member until the end of the block, in which its workers charge it.

    The loan is what they open it by. How far they have come is remembered at the end, under the
    name `record` (None: the dataset's). Raises PrivacyError as `ledger`, and where `bound` pays for
    no release.
    """
    record = record or dataset
    with _locked(place) as lock:
        with _enrolled(identity, place, dataset, record) as opened:
            lifetime = bound.at(opened.lifetime_order(bound.order))
        try:
            yield LedgerLoan(place.path, dataset, opened.lineage, (lock,), lifetime)
        finally:
            with _enrolled(identity, place, dataset, record):
                pass


@contextmanager
def _locked(place: LedgerPlace) -> Iterator[HeldLock]:
    place.require_file()
    with place.locked() as lock:
        place.refuse_unfinished()
        yield lock


@contextmanager
def _enrolled(
    identity: Identity, place: LedgerPlace, dataset: str, record: str, use: LedgerUse = TRAINING
) -> Iterator[Ledger]:
    """Open the ledger as it was enrolled here; note how far it has come, before and after."""
    enrolment = identity.enrolment()
    enrolled = enrolment.ledgers.get(record)
    if enrolled is None:
        lineage = None
    else:
        lineage = enrolled.lineage
    names = {"question": use.question, "judges": use.judges}
    with closing(Ledger(place.path, dataset, lineage=lineage, **names)) as opened:
        if enrolled is not None:
            opened.require(enrolled.charged)
        _enrol(enrolment, record, opened)
        try:
            yield opened
        finally:
            opened.close()
            _note(enrolment, record, opened)


def _enrol(enrolment: Enrolment, record: str, opened: Ledger) -> None:
    """Remember what was opened, durably, before anything is charged."""
    try:
        enrolment.note(record, opened)
    except OSError as error:
        raise PrivacyError(
            f"identity {enrolment.path}: {error.strerror or error}; nothing was computed"
        ) from error


def _note(enrolment: Enrolment, record: str, opened: Ledger) -> None:
    """Remember how far it came; what was noted when it was opened is true, too."""
    try:
        enrolment.note(record, opened)
    except OSError as error:
        log.warning("identity %s: %s", enrolment.path, error.strerror or error)
