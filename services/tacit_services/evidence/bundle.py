"""bundle.json: the run, and the SHA-256 of every other file, signed by the host.

The host signs with a key of its own, whose certificate (`certificates/host.pem`, common name
`evidence`) is of the authority that certifies the edges.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, ValidationError

from tacit.digests import Sha256
from tacit.shown import printable
from tacit_services.statements.signing import SignedDocument
from tacit_services.statements.statement import StatedDay, StatedPart

TITLE = "tacit bundle 1"
NAME = "bundle.json"
AUTHORITY = "certificates/authority.pem"
HOST = "certificates/host.pem"
HOST_NAME = "evidence"  # its common name, which no edge has
STATED = "definition/stated.json"
AGREED = "definition/agreed.json"
OFFER = "definition/offer.json"
CHAIN = "journal/chain.csv"
JOURNAL = "journal/journal"
MODEL = "model"
RESULTS = "results"
CODE = "code/host.json"
SBOM = "code/sbom.cdx.json"
ATTACK = "attack"  # the folder of the attack report
REPORT = "report.json"  # in it, as the two after it
SACRO = "sacro.json"
REPORT_PAGE = "report.html"
OF_ATTACK = (REPORT, REPORT_PAGE, SACRO)
PAGE = "page.html"


def in_attack(name: str) -> str:
    """Return the name in the bundle of a file of the attack report."""
    return f"{ATTACK}/{name}"


def certificate_of(edge: str) -> str:
    """Return the name of the file with an edge's certificate."""
    return f"certificates/{edge}.pem"


def statement_of(edge: str) -> str:
    """Return the name of the file with an edge's statement."""
    return f"statements/{edge}.json"


class StatedJournal(StatedPart):
    """The chain of the run's accepted messages, as the host states it."""

    begins_after: int = Field(ge=0)
    state: Sha256
    records: int = Field(ge=0)
    head: Sha256


class BundleFacts(StatedPart):
    """The content of bundle.json.

    names: of edges, as the host calls their owners. self_stated: whether one machine made all keys
    and statements. definition: the run's fingerprint. which: last, averaged or best. key: SHA-256
    of the host's public key, as DER.
    """

    format: Literal[1] = 1
    run: Annotated[str, Field(min_length=1, max_length=64)]
    definition: Sha256
    model_sha256: Sha256
    which: Literal["last", "averaged", "best"]
    edges: list[Annotated[str, Field(pattern=r"^edge-\d{1,9}$")]]
    names: dict[str, Annotated[str, Field(max_length=100)]]
    self_stated: bool
    journal: StatedJournal | None
    files: dict[str, Sha256]
    key: Sha256
    at: StatedDay

    def document(self) -> dict[str, Any]:
        """Return it as for JSON."""
        return self.model_dump(mode="json")


class SignedBundle(SignedDocument):
    """bundle.json as it came: not checked before `is_by`."""

    def __init__(self, text: bytes) -> None:
        """Read it. Raises ValueError for another."""
        super().__init__(TITLE, text)
        try:
            self.facts = BundleFacts.model_validate(self.content)
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            field = ".".join(map(str, first["loc"]))
            raise ValueError(f"{printable(field, 60)}: {first['msg']}") from error
