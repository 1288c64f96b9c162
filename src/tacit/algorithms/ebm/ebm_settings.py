"""The [algorithm] section of `ebm`, and what follows from it alone."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import Annotated, Any, ClassVar, Final, Literal

from pydantic import Field

from tacit.algorithms.own.own_settings import AlgorithmSettings
from tacit.config.algorithm_contract import Sections
from tacit.config.traits import Traits
from tacit.errors import ConfigError
from tacit.models.additive import ADDITIVE
from tacit.privacy.policy import Positive
from tacit.privacy.release import Plan

_HIDDEN: Final = 20.0  # rows of an edge for each that noise hides in a bin
_FINDS: Final = 2.0  # ε from which on a search was worth its releases (docs/accuracy.md)
RELEASES = 18  # of an edge: two that count, and sixteen steps
SEARCHING = 26  # of an edge, where pairs are chosen: nine steps, then `Phases`
MOST_INTERACTIONS = 20
MOST_CANDIDATES = 300  # pairs that are chosen from: of 25 columns
RESIDUAL = (
    0.7  # C: half of what a residual of two classes can be, 1/√2 at a probability of one half
)

NamePair = Annotated[tuple[str, ...], Field(strict=False, min_length=2, max_length=2)]


class EbmSettings(AlgorithmSettings):
    """The keys of private additive boosting. None needs to be stated."""

    searched: ClassVar = {"learning_rate": (0.05, 1.0)}

    name: Literal["ebm"] = Field(description="the algorithm")
    learning_rate: Positive = Field(
        0.2, le=1, description="part of a Newton step that an update takes; it falls over the run"
    )
    smoothness: Positive = Field(
        0.2, description="of a column of numbers: how far neighbouring bins may lie apart, at 32"
    )
    size: Positive = Field(1.0, description="how far a column's function may lie from 0")
    interactions: int = Field(
        0,
        ge=0,
        le=MOST_INTERACTIONS,
        description="the most pairs of columns that get a function of their own, over 8 × 8 cells; "
        "chosen at a part of ε (3 of 26 releases) among all pairs, or those of pairs",
    )
    pairs: tuple[NamePair, ...] = Field(
        (),
        strict=False,
        description='pairs of columns, [["age", "hours"]], as they are public; without '
        "interactions, or with as many, all get a function, and the choice costs nothing",
    )

    @classmethod
    def implied(cls, workers: int, stated: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
        """Return the model, and as many updates as every edge's releases are."""
        releases = SEARCHING if _searches(stated) else RELEASES
        return {"model": {"name": ADDITIVE}, "run": {"updates": releases * workers}}

    @property
    def searches(self) -> bool:
        """Whether pairs are chosen by releases: there are more of them than may have a function."""
        return _searches({"interactions": self.interactions, "pairs": self.pairs})

    def pairs_of(self, names: Sequence[str]) -> tuple[tuple[int, int], ...]:
        """Return the pairs of columns that may get a function: those listed, or all.

        Raises ConfigError for a name that is no column's, or for more pairs than can be told apart.
        """
        if self.pairs:
            return tuple(dict.fromkeys(_places(pair, names) for pair in self.pairs))
        if not self.interactions:
            return ()
        every = tuple(combinations(range(len(names)), 2))
        if len(every) > MOST_CANDIDATES:
            raise ConfigError(
                f"algorithm.interactions={self.interactions}: {len(names)} columns have "
                f"{len(every)} pairs, and at most {MOST_CANDIDATES} can be told apart; list some "
                'that are likely, algorithm.pairs = [["age", "hours"]]'
            )
        return every

    def traits(self, workers: int) -> Traits:
        """Return the traits: every release of an edge reads all of its rows."""
        return Traits(
            usual_clip=RESIDUAL,
            oldest=self.max_staleness,
            in_turn=True,
            watched=True,
            every_row=True,
        )

    def hindered(self, plan: Plan) -> list[str]:
        """Return a sentence where noise hides the rows of an edge, or a search's pairs."""
        sentences = []
        rows = plan.batch / plan.charged_rate
        releases = SEARCHING if self.searches else RELEASES
        hidden = plan.noise_multiplier / math.sqrt(releases)
        if rows <= _HIDDEN * hidden:
            sentences.append(
                f"privacy.epsilon={plan.epsilon:g}: in each bin noise weighs as {hidden:.3g} of an "
                f"edge's {rows:g} rows, so little is learnt; more rows, or a larger ε"
            )
        if self.searches and plan.epsilon < _FINDS:
            sentences.append(
                f"algorithm.interactions={self.interactions}: at ε={plan.epsilon:g} a search finds "
                f"few pairs, and was no gain where it was measured; ε of {_FINDS:g} or more, or "
                "name likely pairs in algorithm.pairs alone, which needs no search"
            )
        return sentences

    def agree(self, run: Sections) -> None:
        """Raise ValueError where this section contradicts the others."""
        super().agree(run)
        if run.model.name != ADDITIVE:
            raise ValueError(
                f"model.name={run.model.name}: ebm learns a function of each column; leave it out"
            )
        if len(self.pairs) > MOST_CANDIDATES:
            raise ValueError(
                f"algorithm.pairs: {len(self.pairs)} pairs; at most {MOST_CANDIDATES} may be listed"
            )
        exact = run.privacy.private and run.privacy.mechanism == "discrete_gaussian"
        if (self.interactions or self.pairs) and not exact:
            raise ValueError(
                f"privacy.mechanism={run.privacy.mechanism}: pairs of columns need exact sums; "
                "leave the mechanism out, or algorithm.interactions and pairs"
            )
        if run.privacy.noise_at == "server":
            raise ValueError("privacy.noise_at=server: ebm has its noise at the edge; leave it out")


def _searches(stated: Mapping[str, Any]) -> bool:
    """Check whether a section that is not checked yet asks for a choice of pairs."""
    wanted, listed = stated.get("interactions", 0), stated.get("pairs", ())
    if not isinstance(wanted, int) or not isinstance(listed, list | tuple):
        return False
    return wanted > 0 and not 0 < len(listed) <= wanted


def _places(pair: NamePair, names: Sequence[str]) -> tuple[int, int]:
    """Return the places of two columns, in ascending order. Raises ConfigError."""
    for name in pair:
        if name not in names:
            raise ConfigError(
                f"algorithm.pairs: {name!r}: is no column of the model; it has {', '.join(names)}"
            )
    one, other = sorted(map(names.index, pair))
    if one == other:
        raise ConfigError(f"algorithm.pairs: {list(pair)}: name two different columns")
    return one, other
