"""An identity's record of its random id, and of how far each of its ledgers has come.

The file `enrolled.json` in the identity's directory is {"format": 2, "owner": id in hex, "ledgers":
{dataset: {"lineage": hex, "count": releases, "head": hex}}}. A ledger's position is written when it
is opened and when it is closed, never ahead of the ledger itself. So a ledger that is missing,
emptied, exchanged, or older than the last opening, is noticed before anything is computed.
"""

from __future__ import annotations

import json
import secrets
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tacit.errors import OF_0_1, PrivacyError, other_format
from tacit.privacy.ledger import Charged, Ledger
from tacit_services.disk import files

_FILE = "enrolled.json"
_FORMAT = 2
_OUTBOX = "outbox.db"  # where tacit 0.1 kept messages; tacit 0.2 takes them into the ledger's file
_ID = 16  # bytes


@dataclass(frozen=True, slots=True)
class LedgerRecord:
    """One data set's ledger: its lineage, and the least that it has come to."""

    lineage: bytes
    charged: Charged


@dataclass(frozen=True, slots=True)
class Enrolment:
    """The record of one identity, as it was read.

    path: its file. owner: the identity's id, drawn once, which its messages in a ledger are filed
    under.
    """

    path: Path
    owner: bytes
    ledgers: dict[str, LedgerRecord]

    def note(self, record: str, ledger: Ledger) -> None:
        """Write how far a ledger has come, under the name `record`, durably. Raises OSError."""
        newest = self.ledgers | {record: LedgerRecord(ledger.lineage, ledger.charged())}
        ledgers = {
            name: {
                "lineage": record.lineage.hex(),
                "count": record.charged.count,
                "head": record.charged.head.hex(),
            }
            for name, record in newest.items()
        }
        content = {"format": _FORMAT, "owner": self.owner.hex(), "ledgers": ledgers}
        files.write(self.path, json.dumps(content).encode("ascii"), files.PUBLIC)


def read(folder: Path) -> Enrolment:
    """Return an identity's record; a new id and no ledgers where there is no file.

    Raises PrivacyError if the file cannot be read, or is another tacit's. Raises it also if there
    is an outbox of tacit 0.1, which may know of charges and messages that nothing else knows of.
    """
    path = folder / _FILE
    outbox = folder / _OUTBOX
    if outbox.exists():
        raise PrivacyError(f"outbox {outbox}: lies beside the ledger: {OF_0_1}")
    try:
        content = json.loads(path.read_bytes())
        if (number := content.get("format")) != _FORMAT:
            raise ValueError(other_format(number, _FORMAT))
        ledgers = {dataset: _enrolled(record) for dataset, record in content["ledgers"].items()}
        return Enrolment(path, bytes.fromhex(content["owner"]), ledgers)
    except FileNotFoundError:
        return Enrolment(path, secrets.token_bytes(_ID), {})
    except (OSError, ValueError, KeyError, AttributeError, TypeError, RecursionError) as error:
        raise PrivacyError(f"identity {path}: {error}; refusing to train without it") from error


def _enrolled(record: dict[str, Any]) -> LedgerRecord:
    charged = Charged(int(record["count"]), bytes.fromhex(record["head"]))
    return LedgerRecord(bytes.fromhex(record["lineage"]), charged)
