"""What an algorithm and the data say of themselves, so that nobody has to ask which they are."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any, ClassVar, Literal, Protocol

from tacit.config.model import ModelSection
from tacit.config.plans import Plans
from tacit.config.sections import Edges, Guard, Privacy, Run, Section
from tacit.datasets import Source
from tacit.models import Model
from tacit.privacy.report import AT_EDGE, AT_SERVER, Composition, Promise

Worker = Literal["edge", "peer", "party"]


class DataSection(Section):
    """The [data] section: whose rows these are, and what is public of them. One class for each kind
    (`tacit.config.data`).

    kind: of data. partition: how one file is dealt. spare: parts kept for edges that may join
    later.
    """

    kind: str
    partition: str
    spare: int

    def stated(self, different: dict[str, Any]) -> dict[str, Any]:
        """What all who take part must agree on, of what is `different` from the defaults."""
        return different

    def code(self, folder: Path) -> dict[str, str]:
        """SHA-256 of the code that it names, by what it does; `folder`: the run file's."""
        return {}

    def files(self, folder: Path) -> Iterable[Path]:
        """The user's public files that its rows are made with, relative to `folder`."""
        return ()

    @property
    def rows_called(self) -> str:
        """What an edge has so many of, in the words of its owner."""
        return "rows"

    @property
    def entry_of_rows(self) -> str | None:
        """The own code that reads its rows, if any does."""
        return None

    @property
    def shared(self) -> bool:
        """Whether the same people may be at several edges."""
        return False

    def source(self, run: Sections, folder: Path) -> Source:
        """The data as the run's consumers use it; paths are relative to `folder`."""
        raise NotImplementedError

    def public_size(self, edges: int, columns: bool) -> int:
        """n_public: how many records one of so many `edges` is taken to have; never counted from
        private rows.

        columns: whether everybody holds something of every record.
        """
        raise NotImplementedError

    def agree(self, run: Sections) -> None:
        """Raise ValueError where this section contradicts the others."""
        raise NotImplementedError


_TENTHS = 11  # of an even share of pushes, for edges that are quicker than others
USUAL_CLIP = 2.0  # of an example's gradient: near its norm for softmax and inputs in [0, 1]


class AlgorithmSection(Section):
    """The [algorithm] section of a run file. What it says here is true of edges with rows of their
    own and a server.

    worker: who computes, by the service that is started for it; peers have no server. columns:
    whether the data is dealt by columns, so that everybody holds something of everybody.
    composition: how ε of the workers makes the run's.
    """

    worker: ClassVar[Worker] = "edge"
    columns: ClassVar[bool] = False
    composition: ClassVar[Composition] = "max"

    name: str

    @property
    def watched(self) -> bool:
        """Whether `guard.sums` knows the law of its updates."""
        return False

    @property
    def combines(self) -> bool:
        """Whether it makes one vector of several edges', by `guard.rule`."""
        return False

    @property
    def steps(self) -> int:
        """Releases that one update costs, at most."""
        return 1

    @property
    def usual_clip(self) -> float | None:
        """C where `privacy.clip` is left out; None: by a rule of its own, or it must be given."""
        return None

    @property
    def oldest(self) -> int | None:
        """The staleness of the oldest update that counts; None:

        it works in rounds, and nothing is stale.
        """
        return None

    @property
    def in_turn(self) -> bool:
        """Whether each edge is answered for itself, so that one could take more than its share
        (`edges.share`).
        """
        return False

    @property
    def versions(self) -> str:
        """What the model's versions are called."""
        return "updates"

    def uploads(self, workers: int) -> int:
        """Updates that make one version, of so many `workers`."""
        return 1

    def counted(self, workers: int) -> str:
        """What `run.updates` counts, in the words of the algorithm."""
        uploads = self.uploads(workers)
        return self.versions if uploads == 1 else f"{self.versions} of {uploads} updates"

    def capacity(self, privacy: Privacy, workers: int) -> int | None:
        """Versions that the budgets of `workers` pay for together; None:

        not known from the file alone.
        """
        if not privacy.private or privacy.noise_multiplier is not None:
            return None
        return privacy.pushes // self._releases(privacy) * workers // self.uploads(workers)

    def pushes_for(self, updates: int, privacy: Privacy, workers: int) -> int | None:
        """`privacy.pushes` where it is left out: an edge's even share of `updates` and a tenth.

        None: not known from the file alone.
        """
        share = -(-_TENTHS * updates * self.uploads(workers) // (10 * workers))  # rounded up
        return share * self._releases(privacy)

    def _releases(self, privacy: Privacy) -> int:
        """Of an update, at most."""
        return self.steps if privacy.noise_at == "edge" else 1

    def unread(self) -> list[str]:
        """The keys that the run file gives and this algorithm does not read."""
        return []

    def promise(self, plans: Plans, clip: float) -> Promise:
        """What a run with these `plans` says of its privacy; `clip`:

        C, where there is no schedule for it.
        """
        like = plans.like
        return Promise(
            guarantee=AT_EDGE if like.noise_at == "edge" else AT_SERVER,
            composition=self.composition,
            private=like.clip_is_bounded,
            delta=like.delta,
            batch=like.batch,
            clip=(like.clip_min, like.clip_max),
            mechanism=like.declared,
            budget=plans.budget,
        )

    def build_model(
        self,
        section: ModelSection,
        shape: tuple[int, ...],
        classes: int,
        workers: int,
        folder: Path,
    ) -> Model:
        """The model that is trained on examples of `shape`; classes: 0 where the target is a
        number; folder: the run file's. Raises ConfigError.
        """
        return section.build(shape, classes, folder)

    def agree(self, run: Sections) -> None:
        """Raise ValueError where this section contradicts the others."""
        raise NotImplementedError


class Sections(Protocol):
    """The sections of a run file that an algorithm and the data must agree with."""

    @property
    def algorithm(self) -> AlgorithmSection: ...
    @property
    def run(self) -> Run: ...
    @property
    def data(self) -> DataSection: ...
    @property
    def model(self) -> ModelSection: ...
    @property
    def privacy(self) -> Privacy: ...
    @property
    def edges(self) -> Edges: ...
    @property
    def guard(self) -> Guard: ...
