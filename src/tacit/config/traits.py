"""What the rest of the code may ask of an algorithm without knowing which it is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from tacit.privacy.release import NoiseAt
from tacit.privacy.release.tree import levels

ReleaseTime = Literal["in turn", "once", "when asked"]
_TENTHS = 11  # tenths of an even share of pushes: a tenth more, for quicker edges


@dataclass(frozen=True, slots=True)
class Traits:
    """An algorithm's answers, for its settings and a run's number of workers.

    Each default fits an algorithm with one server that answers its edges one by one.
    """

    uploads: int = 1  # updates that make one version
    steps: int = 1  # the most releases that one update costs, where an edge adds its noise
    counted: str = "updates"  # what run.updates counts, in the words of the algorithm
    # C where privacy.clip is left out; None: its own rule sets it, or it must be given.
    usual_clip: float | None = None
    # The largest staleness at which an update still counts; None: rounds have no staleness.
    oldest: int | None = None
    # Whether the server answers each edge by itself, so that edges.share has a use. Otherwise
    # rounds or a queue already decide which edges work.
    in_turn: bool = False
    watched: bool = False  # whether its updates have a law for `guard.sums` (`tacit.robust.law`)
    combines: bool = False  # whether it combines the vectors of several edges, by `guard.rule`
    # How often a record is in a release: in its worker's share of the updates, or once, or as
    # often as it is asked for.
    released: ReleaseTime = "in turn"

    beside: int = 0  # numbers of an update beside those of a model
    # B disjoint batches of a pass over an edge's rows, which is charged as a whole; 0: each update
    # has a batch of its own.
    passes: int = 0
    every_row: bool = False  # whether a release reads all rows of an edge, so that q is 1

    def releases(self, noise_at: NoiseAt) -> int:
        """Return the most releases that one update costs."""
        if noise_at == "edge":
            return self.steps
        return 1

    def pushes_for(self, updates: int, noise_at: NoiseAt, workers: int) -> int | None:
        """Return the default of `privacy.pushes`: an edge's even share of `updates` and a tenth.

        None: that is not known from the file alone.
        """
        if self.released != "in turn":
            if self.released == "once":
                return 1
            return None
        share = -(-_TENTHS * updates * self.uploads // (10 * workers))  # rounded up
        if self.passes:
            return -(-share // self.passes) * levels(self.passes)
        return share * self.releases(noise_at)

    def capacity(self, pushes: int | None, noise_at: NoiseAt, workers: int) -> int | None:
        """Return how many versions the budgets of `workers` workers pay for, `pushes` each.

        None: that is not known from the file alone. pushes: None where the noise is given.
        """
        if pushes is None or self.released != "in turn":
            return None
        if self.passes:
            return pushes // levels(self.passes) * self.passes * workers // self.uploads
        return pushes // self.releases(noise_at) * workers // self.uploads


def in_several(versions: str, uploads: int) -> str:
    """Return the name of `versions` (in the plural) that `uploads` updates each make."""
    if uploads == 1:
        return versions
    return f"{versions} of {uploads} updates"
