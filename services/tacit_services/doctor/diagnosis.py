"""A line of `tacit doctor`: what was looked at, how it stands, what to do."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Wellness(StrEnum):
    """How something stands. SKIPPED: it cannot be looked at, as something before it is ill."""

    WELL = "ok"
    NEAR = "soon"
    ILL = "ill"
    SKIPPED = "skipped"


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """What was looked at (one word), how it stands, in words; what to do where it is not well."""

    what: str
    wellness: Wellness
    words: str
    advice: str = ""

    @property
    def is_ill(self) -> bool:
        """Whether it does not work."""
        return self.wellness is Wellness.ILL

    def line(self) -> str:
        """Return it as one line for a terminal."""
        advice = f". {self.advice}" if self.advice else ""
        return f"{self.what:<12} {self.wellness:<8} {self.words}{advice}"

    def to_json(self) -> dict[str, str]:
        """Return it for `--json`."""
        return {
            "what": self.what,
            "state": str(self.wellness),
            "words": self.words,
            "advice": self.advice,
        }


def well(what: str, words: str) -> Diagnosis:
    """Return that something is well."""
    return Diagnosis(what, Wellness.WELL, words)


def near(what: str, words: str, advice: str) -> Diagnosis:
    """Return that something works, and will not for long."""
    return Diagnosis(what, Wellness.NEAR, words, advice)


def ill(what: str, words: str, advice: str) -> Diagnosis:
    """Return that something does not work."""
    return Diagnosis(what, Wellness.ILL, words, advice)


def skipped(what: str, why: str) -> Diagnosis:
    """Return that something could not be looked at."""
    return Diagnosis(what, Wellness.SKIPPED, why)
