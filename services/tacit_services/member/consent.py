"""Owners' answers to offers, on disk: what was consented to, when, and whose keys are known.

Consent is to an offer's fingerprint. Another fingerprint, be it one byte more or an older offer of
the same run, has no answer here, and is asked for again.

Guarantee: an answer is on disk when `record` returns. A name that has come with one key is not
known with another until the owner confirms that one.
"""

from __future__ import annotations

import json
from datetime import UTC, datetime
from enum import Enum
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from tacit import regular_file
from tacit.digests import Sha256
from tacit.errors import ConfigError, PrivacyError
from tacit_services.disk.files import SECRET, write
from tacit_services.offers.offer import MOST_NAME, Offer, complaint

AnswerWord = Literal["accepted", "declined"]
_BY_HOST = "\n(signed by the host)"  # behind a name, of which a line feed is no part


class KeyStanding(Enum):
    """What a member knows of a researcher's name and key."""

    NEW = "a name that has not come here before"
    SEEN = "the key that came with this name when a policy took an offer of theirs"
    KNOWN = "the key that was confirmed for this name"
    OTHER_KEY = "another key than the one that was confirmed for this name"


class Consent(BaseModel):
    """An owner's answer to one offer.

    key: fingerprint of the researcher's key. by_policy: whether the standing policy gave it.
    withdrawn: when it was taken back; None: it holds.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    run: str
    fingerprint: Sha256
    answer: AnswerWord
    at: datetime
    by_policy: bool = False
    researcher: str = Field(max_length=MOST_NAME)
    key: Sha256
    withdrawn: datetime | None = None

    @property
    def holds(self) -> bool:
        """Whether the member takes part: accepted, and not withdrawn."""
        return self.answer == "accepted" and self.withdrawn is None


class _Book(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    format: Literal[1] = 1
    consents: tuple[Consent, ...] = ()
    keys: dict[str, Sha256] = {}  # by who signs (`_signer`): no other is taken for theirs
    confirmed: dict[str, Sha256] = {}  # those of them that the owner has confirmed, by hand


def _signer(offer: Offer) -> str:
    """Return under what the key of an offer is known: a person's own and the host's are two."""
    name = offer.researcher.name
    return name if offer.researcher.signed_by is None else name + _BY_HOST


class Consents:
    """The answers in one file, of one member."""

    def __init__(self, path: Path) -> None:
        """Read the file, if it is there. Raises PrivacyError for one that is damaged."""
        self._path = path
        try:
            content = regular_file.content(path)
            self._book = _Book.model_validate(json.loads(content))
        except FileNotFoundError:
            self._book = _Book()
        except ValidationError as error:
            raise PrivacyError(f"consents {path}: {complaint(error)}") from error
        except (OSError, ValueError, RecursionError) as error:
            raise PrivacyError(f"consents {path}: {error}") from error

    def all(self) -> tuple[Consent, ...]:
        """Return every answer, the oldest first."""
        return self._book.consents

    def to(self, offer: Offer) -> Consent | None:
        """Return the latest answer to this very offer; None: it is asked for."""
        of_it = [each for each in self.all() if each.fingerprint == offer.fingerprint]
        return of_it[-1] if of_it else None

    def earlier(self, offer: Offer) -> Consent | None:
        """Return the latest answer to another offer of the same run name, for the screen."""
        others = [
            each
            for each in self.all()
            if each.run == offer.run and each.fingerprint != offer.fingerprint
        ]
        return others[-1] if others else None

    def standing(self, offer: Offer) -> KeyStanding:
        """Return whether the researcher's key is the one that is known for the name."""
        keys = self._book.keys
        known = keys.get(_signer(offer))
        if known is None:
            name = offer.researcher.name
            has_other = name in keys or name + _BY_HOST in keys
            return KeyStanding.OTHER_KEY if has_other else KeyStanding.NEW
        if known != offer.researcher.fingerprint:
            return KeyStanding.OTHER_KEY
        if self._book.confirmed.get(_signer(offer)) != known:
            return KeyStanding.SEEN
        return KeyStanding.KNOWN

    def confirm(self, offer: Offer) -> None:
        """Take the offer's key as its researcher's from now on: the owner's word."""
        key = {_signer(offer): offer.researcher.fingerprint}
        keys = {"keys": self._book.keys | key, "confirmed": self._book.confirmed | key}
        self._write(self._book.model_copy(update=keys))

    def record(
        self,
        offer: Offer,
        answer: AnswerWord,
        *,
        by_policy: bool = False,
        at: datetime | None = None,
    ) -> Consent:
        """Record an answer, durably, and return it.

        The first accepted offer of a name keeps its key for it. An owner who accepts confirms the
        key; a policy does not. Raises ConfigError where the name is known with another key, which
        must be confirmed first.
        """
        standing = self.standing(offer)
        if answer == "accepted" and standing is KeyStanding.OTHER_KEY:
            raise ConfigError(
                f"researcher {offer.researcher.name!r}: comes with another key than before; where "
                f"they say that {offer.researcher.fingerprint} is theirs, confirm it first: "
                f"`tacit offers accept {offer.run} --new-key`"
            )
        if answer == "accepted" and not by_policy:
            self.confirm(offer)
        elif answer == "accepted" and standing is KeyStanding.NEW:
            keys = self._book.keys | {_signer(offer): offer.researcher.fingerprint}
            self._write(self._book.model_copy(update={"keys": keys}))
        consent = Consent(
            run=offer.run,
            fingerprint=offer.fingerprint,
            answer=answer,
            at=at or datetime.now(UTC),
            by_policy=by_policy,
            researcher=offer.researcher.name,
            key=offer.researcher.fingerprint,
        )
        self._write(self._book.model_copy(update={"consents": (*self.all(), consent)}))
        return consent

    def withdraw(self, run: str, at: datetime | None = None) -> list[Consent]:
        """Take back every consent to `run` that holds, durably, and return them.

        What was released stays released.
        """
        when = at or datetime.now(UTC)
        taken = [each for each in self.all() if each.run == run and each.holds]
        consents = tuple(
            each.model_copy(update={"withdrawn": when}) if each in taken else each
            for each in self.all()
        )
        self._write(self._book.model_copy(update={"consents": consents}))
        return [each.model_copy(update={"withdrawn": when}) for each in taken]

    def _write(self, book: _Book) -> None:
        """Raises PrivacyError where the disk does not take it: then nothing has changed."""
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            write(self._path, book.model_dump_json(indent=2).encode(), SECRET)
        except OSError as error:
            raise PrivacyError(f"consents {self._path}: {error.strerror or error}") from error
        self._book = book
