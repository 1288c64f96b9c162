"""A line of `tacit doctor`: what was looked at, how it stands, what to do."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Standing(StrEnum):
    """How something stands. SKIPPED: it cannot be looked at, as something before it is ill."""

    WELL = "ok"
    NEAR = "soon"
    ILL = "ill"
    SKIPPED = "skipped"


@dataclass(frozen=True, slots=True)
class Finding:
    """What was looked at (one word), how it stands, in words; what to do where it is not well."""

    what: str
    standing: Standing
    words: str
    advice: str = ""

    @property
    def is_ill(self) -> bool:
        """Whether it does not work."""
        return self.standing is Standing.ILL

    def line(self) -> str:
        """Return it as one line for a terminal."""
        advice = f". {self.advice}" if self.advice else ""
        return f"{self.what:<12} {self.standing:<8} {self.words}{advice}"

    def to_json(self) -> dict[str, str]:
        """Return it for `--json`."""
        return {
            "what": self.what,
            "standing": str(self.standing),
            "words": self.words,
            "advice": self.advice,
        }


def well(what: str, words: str) -> Finding:
    """Return that something is well."""
    return Finding(what, Standing.WELL, words)


def near(what: str, words: str, advice: str) -> Finding:
    """Return that something works, and will not for long."""
    return Finding(what, Standing.NEAR, words, advice)


def ill(what: str, words: str, advice: str) -> Finding:
    """Return that something does not work."""
    return Finding(what, Standing.ILL, words, advice)


def skipped(what: str, why: str) -> Finding:
    """Return that something could not be looked at."""
    return Finding(what, Standing.SKIPPED, why)
