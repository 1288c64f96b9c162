"""An edge's statement: what its ledger has released up to a run's end, signed with its own key.

It holds nothing that is computed from rows. Each number in it depends on the run's plan, on the
edge's configuration and on what the server asked for (docs/privacy.md, "Statements"). Times are
days: a day is enough to say since when a consent held, and tells nothing of anybody's working
hours.
"""

from __future__ import annotations

import base64
from datetime import date
from pathlib import Path
from typing import Annotated, Any, Literal

from cryptography.hazmat.primitives.asymmetric import ec
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from tacit import regular_file, shown
from tacit.digests import Sha256
from tacit.privacy.ledger import StatedChain
from tacit_services.disk import files
from tacit_services.enrollment import certificates
from tacit_services.statements import signing
from tacit_services.statements.running_code import RunningCode
from tacit_services.statements.signing import SignedDocument

TITLE = "tacit statement 1"
MOST = 16 << 20  # bytes of a file with a statement


def _day(value: object) -> object:
    """Return the date of a text as JSON has it, and nothing else."""
    return date.fromisoformat(value) if isinstance(value, str) and len(value) == 10 else value


StatedDay = Annotated[date, BeforeValidator(_day)]
ShortText = Annotated[str, Field(max_length=400)]


class StatedPart(BaseModel):
    """A part of a statement: no key more, no key less."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)


class StatedPrivacy(StatedPart):
    """Whose privacy, and what it has cost. epsilon: None where there is no bound."""

    guarantee: ShortText
    unit: ShortText
    adjacency: ShortText
    noise_at: ShortText
    mechanism: ShortText
    accountant: ShortText
    delta: float = Field(gt=0, lt=1)
    epsilon: float | None = Field(ge=0)


class StatedMessages(StatedPart):
    """The messages of the edge that the aggregator has acknowledged as accepted.

    unanswered: numbers and SHA-256 of those that got no answer before the end.
    """

    count: int = Field(ge=0)
    last: int = Field(ge=0)
    head: Sha256
    unanswered: dict[Annotated[str, Field(pattern=r"^[1-9]\d{0,18}$")], Sha256]


class StatedConsent(StatedPart):
    """An owner's answer to an offer, by its fingerprint. withdrawn: None: it holds."""

    offer: Sha256
    answer: Literal["accepted", "declined"]
    at: StatedDay
    by_policy: bool
    withdrawn: StatedDay | None


class Statement(StatedPart):
    """The content of a statement. key: the signer's public key, base64 of its DER.

    definition: SHA-256 of what the edge agreed on (canonical JSON). policy: of the owner's policy,
    as its file has it, or None. ended: whether the run was over at the edge; else its owner took
    the consent back, or left.
    """

    format: Literal[1] = 1
    run: Annotated[str, Field(min_length=1, max_length=64)]
    edge: Annotated[str, Field(pattern=r"^edge-\d{1,9}$")]
    key: Annotated[str, Field(max_length=400)]
    definition: Sha256
    privacy: StatedPrivacy
    chain: dict[str, Any]
    messages: StatedMessages
    policy: Sha256 | None
    consents: list[StatedConsent]
    ended: bool
    code: RunningCode
    at: StatedDay

    def document(self) -> dict[str, Any]:
        """Return it as for JSON."""
        return self.model_dump(mode="json")

    @property
    def public_key(self) -> ec.EllipticCurvePublicKey:
        """The signer's key, as it is stated. Raises ValueError."""
        return certificates.read_public(base64.b64decode(self.key, validate=True))

    def ledger(self) -> StatedChain:
        """Return the ledger's chain, not verified. Raises ValueError."""
        return StatedChain.read(self.chain)


class SignedStatement(SignedDocument):
    """A statement with its signature, as it came: not checked before `is_by`.

    key: SHA-256 of the key that it names as its signer's.
    """

    def __init__(self, text: bytes) -> None:
        """Read it. Raises ValueError, in one line, for what is no statement."""
        super().__init__(TITLE, text)
        self.file = text
        self.statement = _statement(self.content)
        self.key = certificates.key_digest(self.statement.public_key)

    @classmethod
    def at(cls, path: Path) -> SignedStatement:
        """Return the one in a file. Raises OSError, ValueError."""
        return cls(regular_file.content(path, MOST))


def _statement(content: dict[str, Any]) -> Statement:
    try:
        return Statement.model_validate(content)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        field = ".".join(map(str, first["loc"]))
        raise ValueError(f"{shown.printable(field, 60)}: {first['msg']}") from error


def statement_file(identity: Path, run: str) -> Path:
    """Return where the statement on a run lies, by the identity's folder."""
    return identity / "statements" / f"{run}.json"


def write(statement: Statement, key: ec.EllipticCurvePrivateKey, path: Path) -> None:
    """Sign `statement`, and write it durably to `path`. Raises OSError."""
    text = signing.signed(TITLE, statement.document(), key)
    files.write(path, text.encode(), files.SECRET)
