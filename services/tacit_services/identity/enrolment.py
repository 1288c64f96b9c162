"""An identity's record of its random id, and of how far each of its ledgers has come.

The file `enrolled.json` in the identity's directory is {"format": 2, "owner": id in hex, "ledgers":
{dataset: {"lineage": hex, "count": releases, "head": hex}}}. A ledger's position is written when it
is opened and when it is closed, never ahead of the ledger itself: so one that is gone, emptied,
exchanged, or an older copy than the last opening, is noticed before anything is computed. Files of
format 1 have {dataset: lineage} for "ledgers" and no id; those of tacit 0.1 are that object alone.
"""

from __future__ import annotations

import json
import secrets
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tacit.errors import PrivacyError
from tacit.privacy.ledger import Charged
from tacit_services.disk import files
from tacit_services.identity import old_outbox

FILE, _FORMAT = "enrolled.json", 2
_ID = 16  # bytes


@dataclass(frozen=True, slots=True)
class Enrolled:
    """One data set's ledger: its lineage, and the least that it has come to."""

    lineage: bytes
    charged: Charged


@dataclass(frozen=True, slots=True)
class Enrolment:
    """The record of one identity.

    owner: its id, drawn once, which its messages in a ledger are filed under.
    """

    owner: bytes
    ledgers: dict[str, Enrolled]

    def noting(self, dataset: str, lineage: bytes, charged: Charged) -> Enrolment:
        """Return the same with a ledger's newest position."""
        return Enrolment(self.owner, self.ledgers | {dataset: Enrolled(lineage, charged)})


def read(folder: Path) -> Enrolment:
    """Return an identity's record; a new id and no ledgers where there is no file.

    Raises PrivacyError where the file cannot be read, or is a newer tacit's.
    """
    path = folder / FILE
    try:
        content = json.loads(path.read_bytes())
        if content.get("format", 1) > _FORMAT:
            raise ValueError(f"has format {content['format']!r}, this tacit reads {_FORMAT}")
        if content.get("format", 1) == _FORMAT:
            ledgers = {dataset: _enrolled(one) for dataset, one in content["ledgers"].items()}
            return Enrolment(bytes.fromhex(content["owner"]), ledgers)
        return _of_format_1(folder, content)
    except FileNotFoundError:
        return Enrolment(secrets.token_bytes(_ID), {})
    except (OSError, ValueError, KeyError, AttributeError, TypeError) as error:
        raise PrivacyError(f"identity {path}: {error}; refusing to train without it") from error


def write(folder: Path, enrolment: Enrolment) -> None:
    """Replace the file, durably. Raises OSError."""
    ledgers = {
        dataset: {
            "lineage": one.lineage.hex(),
            "count": one.charged.count,
            "head": one.charged.head.hex(),
        }
        for dataset, one in enrolment.ledgers.items()
    }
    content = {"format": _FORMAT, "owner": enrolment.owner.hex(), "ledgers": ledgers}
    files.write(folder / FILE, json.dumps(content).encode("ascii"), files.PUBLIC)


def _enrolled(one: dict[str, Any]) -> Enrolled:
    charged = Charged(int(one["count"]), bytes.fromhex(one["head"]))
    return Enrolled(bytes.fromhex(one["lineage"]), charged)


def _of_format_1(folder: Path, content: dict[str, Any]) -> Enrolment:
    """Return a record of format 1, for which the old outbox has the ledgers' positions."""
    payers = old_outbox.payers(folder)
    lineages = content["ledgers"] if "format" in content else content
    found = {dataset: bytes.fromhex(lineage) for dataset, lineage in lineages.items()}
    ledgers = {
        dataset: Enrolled(lineage, payers.get(lineage, Charged()))
        for dataset, lineage in found.items()
    }
    return Enrolment(secrets.token_bytes(_ID), ledgers)
