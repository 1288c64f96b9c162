"""The looks of a run at held-out rows, as documents: figures, intervals, and what follows."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import islice
from typing import Any

from tacit.algorithms.base.looks import Look, noise_of_edge, stacked, summed
from tacit.config.definition import Definition
from tacit.config.edge_looks import Judging
from tacit.judging import look_choice, look_figures
from tacit.judging.look_figures import LookSums
from tacit_services.aggregator.reading import RunReading

FILE = "looks.json"
_FIRST = 2  # figures that a status names: its size does not depend on the number of classes
_OF_STATUS = ("look", "looks", "version", "edges", "of", "suppressed", "epsilon")


class RunLooks:
    """The looks of one run. They are computed anew only where an edge has answered since."""

    def __init__(self, definition: Definition[Any], *, by_test_set: bool = False) -> None:
        """by_test_set: whether a public test set chooses the best model, in their place."""
        self._definition = definition
        self._by_test_set = by_test_set
        self._known: tuple[tuple[int, int], ...] = ()
        self._documents: list[dict[str, Any]] = []
        self._no_gain = False

    def of(self, reading: RunReading) -> list[dict[str, Any]]:
        """Return a document of each look that an edge has answered, oldest first."""
        self._renew(reading)
        return self._documents

    def no_gain(self, reading: RunReading) -> bool:
        """Check whether the looks surely show no gain that is worth more training.

        The open look counts once all edges have answered it.
        """
        self._renew(reading)
        return self._no_gain

    def _renew(self, reading: RunReading) -> None:
        judging = self._definition.judging
        state = tuple((look.number, len(look.sums)) for look in reading.looks)
        if judging is None or state == self._known:
            return
        answered = [look for look in reading.looks if look.sums]
        of = max(self._definition.edges.count, *(len(look.sums) for look in answered), 1)
        sums = [summed(judging, look) for look in answered]
        best = None if self._by_test_set else look_choice.best(sums)
        self._documents = [
            _document(judging, look, each, of) | {"best": place == best}
            for place, (look, each) in enumerate(zip(answered, sums, strict=True))
        ]
        whole = [each for look, each in zip(answered, sums, strict=True) if len(look.sums) >= of]
        self._no_gain = look_choice.no_gain(whole)
        self._known = state


def judged_now(documents: list[dict[str, Any]]) -> dict[str, Any]:
    """Return what a status says of looks: the last one's first figures, and which is the best."""
    last = documents[-1]
    best = next((each["look"] for each in documents if each["best"]), None)
    first: Mapping[str, Any] = dict(islice(last["metrics"].items(), _FIRST))
    return {key: last[key] for key in _OF_STATUS} | {"metrics": first, "best": best}


def _document(judging: Judging, look: Look, sums: LookSums, of: int) -> dict[str, Any]:
    figures = look_figures.figures(sums)
    document: dict[str, Any] = {
        "look": look.number,
        "looks": judging.looks,
        "version": look.version,
        "edges": len(look.sums),
        "of": of,
        "suppressed": not figures,
        "metrics": {name: interval.rounded() for name, interval in figures.items()},
        "epsilon": judging.epsilon,
        "held_out": judging.held_out,
    }
    beyond = look_figures.beyond_constant(sums)
    if beyond is not None:
        document["beyond_constant"] = beyond.rounded()
    spread = look_figures.spread(judging.sheet, stacked(judging, look), noise_of_edge(judging))
    if spread is not None:
        document["spread"] = spread
    if reliability := look_figures.reliability(sums):
        document["reliability"] = reliability
    return document
