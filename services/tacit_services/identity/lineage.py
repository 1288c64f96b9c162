"""The ledger that belongs to an identity's data: enrolled once, then demanded at every start.

The ledger goes with the data (`TACIT_LEDGER`), not with the identity, the container or the run.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import closing, contextmanager

from tacit.errors import PrivacyError
from tacit.privacy.ledger import Ledger
from tacit_services.identity.enrolment import Enrolment
from tacit_services.identity.folder import Identity
from tacit_services.identity.ledger_place import LedgerPlace

log = logging.getLogger("tacit.identity")


@contextmanager
def ledger(identity: Identity, place: LedgerPlace, dataset: str) -> Iterator[Ledger]:
    """Open and lock the ledger of `dataset` for this identity, until the end of the block.

    Raises PrivacyError

    - when another edge uses it,
    - when it is not the one that was enrolled here, or an older copy than was last opened here,
    - when it is missing or empty although it was enrolled here,
    - when what this identity has is of tacit 0.1.
    """
    place.require_file()
    with place.locked():
        place.refuse_unfinished()
        enrolment = identity.enrolment()
        enrolled = enrolment.ledgers.get(dataset)
        if enrolled is None:
            lineage = None
        else:
            lineage = enrolled.lineage
        with closing(Ledger(place.path, dataset, lineage=lineage)) as opened:
            if enrolled is not None:
                opened.require(enrolled.charged)
            _enrol(enrolment, dataset, opened)
            try:
                yield opened
            finally:
                opened.close()
                _note(enrolment, dataset, opened)


def _enrol(enrolment: Enrolment, dataset: str, opened: Ledger) -> None:
    """Remember what was opened, durably, before anything is charged."""
    try:
        enrolment.note(dataset, opened)
    except OSError as error:
        raise PrivacyError(
            f"identity {enrolment.path}: {error.strerror or error}; nothing was computed"
        ) from error


def _note(enrolment: Enrolment, dataset: str, opened: Ledger) -> None:
    """Remember how far it came; what was noted when it was opened is true, too."""
    try:
        enrolment.note(dataset, opened)
    except OSError as error:
        log.warning("identity %s: %s", enrolment.path, error.strerror or error)
