"""An owner's answers to offers, each in a file that is whole after a crash.

    answers/RUN.json   {"format": 1, "run", "fingerprint", "answer", "reason", "note", "at", "told"}
    researchers.json   {"format": 1, "keys": {NAME: SHA-256 of the key}}

An answer is to one offer's fingerprint: another offer of the same run is asked about anew. `answer`
is asked, accepted, declined, withdrawn or refused. `reason` is what the host may read; `note` is
for the owner alone, as it may depend on rows.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Literal

from tacit.errors import ConfigError, PolicyForbids, other_format
from tacit_services.disk import files

FORMAT = 1
Word = Literal["asked", "accepted", "declined", "withdrawn", "refused"]


@dataclass(frozen=True, slots=True)
class Consent:
    """The owner's word on one offer.

    fingerprint: of the offer. key: SHA-256 of the researcher's key, which consent confirms. at:
    seconds since 1970. told: whether the host has it.
    """

    run: str
    fingerprint: str
    answer: Word
    reason: str = ""
    note: str = ""
    researcher: str = ""
    key: str = ""
    at: float = 0.0
    told: bool = False


class Consents:
    """The answers in one folder. Several processes may read and write: the newest counts."""

    def __init__(self, folder: Path, clock: Callable[[], float] = time.time) -> None:
        """folder: the member's state."""
        self._folder = folder / "answers"
        self._keys = folder / "researchers.json"
        self._clock = clock
        self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)

    def get(self, run: str) -> Consent | None:
        """Return the newest answer about a run; None: it has not been looked at. ConfigError."""
        return _read(self._folder / f"{run}.json")

    def all(self) -> Iterator[Consent]:
        """Yield every answer, by the runs' names. Raises ConfigError."""
        for path in sorted(self._folder.glob("*.json")):
            if (consent := _read(path)) is not None:
                yield consent

    def enter(self, consent: Consent) -> Consent:
        """Enter an answer, durably; returns it with its time. Raises OSError."""
        entered = replace(consent, at=self._clock(), told=False)
        self._write(entered)
        return entered

    def accept(self, run: str) -> Consent:
        """Accept the offer that was looked at last. Raises ConfigError where there is none."""
        consent = self._looked_at(run)
        if consent.answer == "refused":
            raise ConfigError(f"run {run}: {consent.note or consent.reason}; it cannot be accepted")
        self._confirm(consent)
        return self.enter(replace(consent, answer="accepted", reason="", note=""))

    def decline(self, run: str) -> Consent:
        """Decline the offer. Raises ConfigError where none was looked at."""
        return self.enter(replace(self._looked_at(run), answer="declined", reason="declined"))

    def withdraw(self, run: str) -> Consent:
        """Withdraw consent: nothing leaves from now on. Raises ConfigError where none was given."""
        consent = self._looked_at(run)
        if consent.answer != "accepted":
            raise ConfigError(f"run {run}: is {consent.answer}, so there is nothing to withdraw")
        return self.enter(replace(consent, answer="withdrawn", reason="declined"))

    def told(self, consent: Consent) -> None:
        """Note that the host has this answer, unless there is another one by now."""
        if self.get(consent.run) == consent:
            self._write(replace(consent, told=True))

    def check_key(self, researcher: str, key: str) -> None:
        """Raise PolicyForbids where this researcher's key is not the one of the first consent."""
        known = self._confirmed().get(researcher)
        if known is not None and known != key:
            raise PolicyForbids(
                f"researcher {researcher!r}: signs with another key ({key[:16]}…) than the one of "
                f"the first consent ({known[:16]}…); `tacit offers accept --new-key` confirms it",
                "researchers",
            )

    def is_known(self, researcher: str) -> bool:
        """Return whether this researcher's key was confirmed by a consent."""
        return researcher in self._confirmed()

    def forget_key(self, researcher: str) -> None:
        """Forget a researcher's key: the next consent confirms the key that it then has."""
        keys = self._confirmed()
        keys.pop(researcher, None)
        self._write_keys(keys)

    def _confirm(self, consent: Consent) -> None:
        self.check_key(consent.researcher, consent.key)
        keys = self._confirmed()
        if keys.get(consent.researcher) != consent.key:
            self._write_keys(keys | {consent.researcher: consent.key})

    def _confirmed(self) -> dict[str, str]:
        try:
            content = json.loads(self._keys.read_bytes())
            if (number := content["format"]) != FORMAT:
                raise ValueError(other_format(number, FORMAT))
            return {str(name): str(key) for name, key in content["keys"].items()}
        except FileNotFoundError:
            return {}
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise ConfigError(f"{self._keys}: is damaged ({error})") from error

    def _write_keys(self, keys: dict[str, str]) -> None:
        content = {"format": FORMAT, "keys": keys}
        files.write(self._keys, json.dumps(content, indent=1).encode(), files.SECRET)

    def _looked_at(self, run: str) -> Consent:
        consent = self.get(run)
        if consent is None:
            raise ConfigError(f"run {run!r}: no such offer has come; `tacit offers` lists them")
        return consent

    def _write(self, consent: Consent) -> None:
        content = {"format": FORMAT, **asdict(consent)}
        path = self._folder / f"{consent.run}.json"
        files.write(path, json.dumps(content, indent=1).encode(), files.SECRET)


def _read(path: Path) -> Consent | None:
    try:
        content = json.loads(path.read_bytes())
        if (number := content.pop("format")) != FORMAT:
            raise ValueError(other_format(number, FORMAT))
        return Consent(**content)
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise ConfigError(f"{path}: is damaged ({error})") from error
