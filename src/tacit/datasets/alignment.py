"""Alignment of records across vertical parties: a record's name is a salted hash of its id.

The salt comes to the parties and the server the same way as their keys, never over the broker. A
name hides the id from everybody without the salt. It hides nothing from the parties and the server,
which can hash a guessed id. This is alignment, not private set intersection. Every participant of a
run learns the ids for which the server has labels.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from tacit.errors import DataError

NameHashes = NDArray[np.uint64]
BLANK = -1  # the place of a record that a party does not have
_SHOWN = 3  # missing records named in a message


def names(ids: Iterable[str], salt: bytes, whose: str) -> NameHashes:
    """Return the salted hash of every id, uint64 (n,).

    It is the first 8 bytes of HMAC-SHA256(salt, id). Raises DataError naming `whose` when two ids
    share a name: the same id twice, or, with probability n²/2^65, a collision.
    """
    digests = (hmac.new(salt, record_id.encode(), hashlib.sha256).digest()[:8] for record_id in ids)
    hashes = np.frombuffer(b"".join(digests), dtype="<u8")
    if len(np.unique(hashes)) != len(hashes):
        raise DataError(f"{whose}: an id occurs twice among its {len(hashes)} records")
    return hashes


def align(roster: NameHashes, mine: NameHashes, whose: str) -> NDArray[np.int64]:
    """Return where each name of the `roster` is among `mine`, (n,).

    Row r of the run is row align(...)[r] here. Records that only this party has are left out, and
    nothing is sent about them. Raises DataError, naming `whose`, how many records are missing and
    the first of them, unless every record of the roster is among `mine`, and in the roster once.
    """
    positions = align_or_blank(roster, mine, whose)
    missing = roster[positions == BLANK]
    if len(missing):
        first = ", ".join(f"{name:016x}" for name in missing[:_SHOWN])
        raise DataError(
            f"{whose}: {len(missing)} of the run's {len(roster)} records are not among its "
            f"{len(mine)} (by salted hash: {first}); every party needs the features of every "
            f"record, under the same id and salt"
        )
    return positions


def align_or_blank(roster: NameHashes, mine: NameHashes, whose: str) -> NDArray[np.int64]:
    """Return where each name of the `roster` is among `mine`, (n,); BLANK where it is not.

    Raises DataError, naming `whose`, where the roster has a name twice.
    """
    # Else one record would be released again and again, at the price of one.
    if len(np.unique(roster)) != len(roster):
        raise DataError(f"{whose}: the run's roster of {len(roster)} names a record more than once")
    if not len(mine):
        return np.full(len(roster), BLANK, dtype=np.int64)
    order = np.argsort(mine, kind="stable")
    place = np.searchsorted(mine, roster, sorter=order)
    positions = order[np.minimum(place, len(mine) - 1)].astype(np.int64)
    return np.where(mine[positions] == roster, positions, BLANK)
