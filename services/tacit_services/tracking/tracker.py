"""What a tracker of experiments does, and what it is told of a run: public facts alone."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from tacit.config.data import is_own_data
from tacit.config.definition import Definition
from tacit.config.site import without_members_own
from tacit.errors import TacitError

Figures = Mapping[str, float]


class TrackerError(TacitError):
    """A tracker cannot write; the run goes on without it."""


class Tracker(Protocol):
    """A place where a run's figures are written beside metrics.jsonl.

    All calls come from one thread, which may wait. Each raises TrackerError where it cannot write.
    """

    @property
    def name(self) -> str:
        """The name of its key in [tracking], and of its extra."""
        ...

    def begin(self, run: TrackedRun, earlier: str | None) -> str:
        """Begin a run, or go on with `earlier`; returns the name by which it goes on later."""
        ...

    def point(self, version: int, figures: Figures) -> None:
        """Write the figures of one evaluation, of the model after `version` updates."""
        ...

    def end(self, figures: Figures, files: Sequence[Path]) -> None:
        """Write the figures of the whole run, its files, and that it has ended."""
        ...


@dataclass(frozen=True, slots=True)
class TrackedRun:
    """A run at its beginning.

    definition: the sections of its run file that differ from the defaults, without the places of
    anybody's rows. fingerprint: SHA-256 of the definition. simulated: whether ε is a simulated one.
    """

    name: str
    fingerprint: str
    definition: Mapping[str, Any]
    simulated: bool

    @classmethod
    def of(cls, definition: Definition[Any], name: str, *, simulated: bool) -> TrackedRun:
        """Return what a tracker is told of a run called `name`."""
        sections = dict(definition.differences)
        if is_own_data(sections["data"]):
            sections["data"] = without_members_own(sections["data"])
        return cls(name, definition.fingerprint, sections, simulated)

    @property
    def keys(self) -> dict[str, str]:
        """The definition as keys of a run file, "privacy.epsilon": "2.0"."""
        return dict(_flat(self.definition, ""))

    def text(self) -> str:
        """Return the definition as JSON."""
        return json.dumps(self.definition, indent=2, ensure_ascii=False, default=str)


def _flat(content: Mapping[str, Any], front: str) -> Iterator[tuple[str, str]]:
    for key, value in content.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{front}{key}.")
        else:
            shown = value if isinstance(value, str) else json.dumps(value, default=str)
            yield f"{front}{key}", shown
