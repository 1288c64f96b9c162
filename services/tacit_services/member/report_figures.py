"""What a report on a run has: figures of three answers to an owner's own rows, and words on them.

It is without torch, for the owner's page.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from tacit_services.transport.json_numbers import finite

_FEW = 100  # rows, of which chance alone moves a share by several points


@dataclass(frozen=True, slots=True)
class JudgedBoth:
    """A metric of three answers to the same rows; None: it has no such number."""

    federation: float | None
    alone: float | None
    constant: float | None


@dataclass(frozen=True, slots=True)
class OwnReport:
    """What a run was worth here. judged, learnt: rows that both are judged on, and the others.

    held_out: whether the run has held out the rows that are judged on, and learnt from the others
    alone; else it has learnt from all of them.
    """

    run: str
    judged: int
    learnt: int
    metrics: Mapping[str, JudgedBoth]
    held_out: bool = False

    @classmethod
    def of(cls, content: Mapping[str, Any]) -> OwnReport:
        """Return the report of which `content` is the document. Raises KeyError, TypeError."""
        metrics = {name: JudgedBoth(**each) for name, each in content["metrics"].items()}
        return cls(**{**content, "metrics": metrics})

    def document(self) -> dict[str, Any]:
        """Return it for programs."""
        content: dict[str, Any] = finite(asdict(self))
        return content

    def words(self) -> list[str]:
        """Return what the figures are of, and whom they are for, in sentences."""
        if self.held_out:
            judged = (
                f"Judged on {self.judged:,} rows of yours, which the run has held out: neither "
                f"model has learnt from them. A model of your other {self.learnt:,} rows alone "
                "stands beside the federation's."
            )
            sentences = [judged]
        else:
            sentences = [
                f"Judged on {self.judged:,} rows of yours. A model of your other {self.learnt:,} "
                "rows alone stands beside the federation's.",
                "The federation's model has learnt from all of your rows, through noise, so the "
                "rows judged on favour it by no more than its ε allows.",
            ]
        if self.judged < _FEW:
            sentences.append(
                "So few rows decide little: chance alone moves a share by several points."
            )
        sentences.append(
            "These figures are exact and of your rows, so they are for you: nothing of them leaves."
        )
        return sentences
