"""The audit's test H: what an edge's messages say of a whole person, with all of its rows."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from tacit.audit.message_attacks import compared, in_or_out, score
from tacit.audit.rows_in_messages import SAMPLER_ROWS, alone, as_poisson, pixels, visible
from tacit.audit.statistics import Finding, ScoreValues
from tacit.audit.subject import ROWS, Randomness, Subject
from tacit.audit.worlds import MessageSource, World, quiet_world
from tacit.datasets.edge_rows import EdgeRows, Units

MOST_ROWS = 50  # the most rows of one person; the attacked one has as many
# edges that one file is dealt to
SITES = 4
DEALING_SEED = 1
DRAWN_PUSHES = 200
Z = 0.5  # near μ = 2 a wrong factor is found with the fewest pushes


@dataclass(frozen=True, eq=False)
class Population(World):
    """A world whose rows are of people, one after the other; the canary is one person more.

    of: whose each row is, (n,) ascending, the canary's rows last. mean: whether a person's gradient
    is the mean of its rows', or their sum.
    """

    of: npt.NDArray[np.int64]
    mean: bool = True

    def records(self, *, canary: bool) -> EdgeRows:
        """Return the edge's rows, by person."""
        rows = super().records(canary=canary).for_edge(2)
        people = np.diff(self.of[: len(rows.y) - 1], prepend=-1, append=-2)
        starts = np.flatnonzero(people)
        return EdgeRows(rows.x, rows.y, Units(np.arange(starts[-1]), starts, MOST_ROWS, self.mean))


def person(subject: Subject, source: Randomness, pushes: int) -> list[Finding]:
    """Bound what one message shows of a person with 50 rows, in either direction (H)."""
    subject = subject.but(z=Z)
    return _of_kind(
        subject, in_or_out("person", subject, source, quiet_population(subject), pushes)
    )


def drawn(subject: Subject, source: Randomness, pushes: int = DRAWN_PUSHES) -> list[Finding]:
    """Check that a person is in messages as often as Poisson sampling implies (H).

    The number of their rows must not matter.
    """
    subject = visible(subject)
    of = np.repeat(np.arange(SAMPLER_ROWS), _rows(SAMPLER_ROWS))
    each = pixels(SAMPLER_ROWS).take(torch.from_numpy(of))
    world = Population(torch.zeros(subject.model.size), each, pixels(0), torch.empty(0), of)
    ask = MessageSource(subject, source, world, canary=False)
    return as_poisson("sampler of people", subject, ask, pushes, alone)


def dealt(subject: Subject, source: Randomness, pushes: int) -> list[Finding]:
    """Bound what all edges together show of a person whose rows were dealt to them (H).

    The claim is one edge's, as the run's ε is the largest of any. The attacker knows the dealing,
    and adds what the edges say that were dealt rows of the person.
    """
    subject, population = subject.but(z=Z), quiet_population(subject)
    where = subject.deal(_ids(population.of), seed=DEALING_SEED, edges=SITES)
    sites = [_site(population, where == site) for site in np.unique(where[-MOST_ROWS:])]
    inside, outside = (
        np.sum(
            [_scores(subject, source, site_rows, pushes, canary=included) for site_rows in sites],
            axis=0,
        )
        for included in (True, False)
    )
    return _of_kind(subject, compared("person, dealt", subject, inside, outside))


def quiet_population(subject: Subject) -> Population:
    """Return the quiet world, with people: the canary's rows are long, and all others silent."""
    world = quiet_world(subject.model)
    of = np.repeat(np.arange(ROWS), [*_rows(ROWS - 1), MOST_ROWS])
    silent = world.rows.take(_zeros(len(of) - MOST_ROWS))
    loud = world.canary.take(_zeros(MOST_ROWS))
    return Population(world.params, silent, loud, world.direction, of)


def _scores(
    subject: Subject, source: Randomness, site: Population, pushes: int, *, canary: bool
) -> ScoreValues:
    ask = MessageSource(subject, source, site, canary=canary)
    return score(subject, site, ask.vectors(pushes))


def _site(population: Population, at_site: npt.NDArray[np.bool_]) -> Population:
    """Return the part of the file that one edge is dealt."""
    others = len(population.rows)
    rows, canary = (
        part.take(torch.from_numpy(np.flatnonzero(chosen)))
        for part, chosen in (
            (population.rows, at_site[:others]),
            (population.canary, at_site[others:]),
        )
    )
    return Population(population.params, rows, canary, population.direction, population.of[at_site])


def _rows(people: int) -> npt.NDArray[np.int64]:
    """Return how many rows each of `people` has: from 1 to 50."""
    return np.linspace(1, MOST_ROWS, people).astype(np.int64)


def _zeros(count: int) -> Tensor:
    return torch.zeros(count, dtype=torch.int64)


def _ids(of: npt.NDArray[np.int64]) -> npt.NDArray[np.void]:
    """Return 16 bytes for each row's person."""
    names = b"".join(hashlib.sha256(b"person %d" % number).digest()[:16] for number in of)
    return np.frombuffer(names, dtype=np.dtype((np.void, 16)))


def _of_kind(subject: Subject, findings: list[Finding]) -> list[Finding]:
    """Return the findings about μ, or ε if that is the claim: half as many limits with chance."""
    kind = "ε" if subject.mu is None else "μ"
    return [finding for finding in findings if finding.quantity == kind]
