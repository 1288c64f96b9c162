"""What an algorithm says of itself, so that nobody else has to ask which one it is."""

from __future__ import annotations

from typing import ClassVar, Literal

from tacit.config.plans import Plans
from tacit.config.sections import ModelSection, Privacy, Section, Sections
from tacit.models import Model, build
from tacit.privacy.report import AT_EDGE, AT_SERVER, Composition, Promise

Worker = Literal["edge", "peer", "party"]


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
    def steps(self) -> int:
        """Releases that one update costs, at most."""
        return 1

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
        steps = self.steps if privacy.noise_at == "edge" else 1
        return privacy.pushes // steps * workers // self.uploads(workers)

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
        self, section: ModelSection, shape: tuple[int, ...], classes: int, workers: int
    ) -> Model:
        """The model that is trained on examples of `shape`. Raises ConfigError."""
        return build(
            section.name,
            shape,
            classes,
            channels=section.channels,
            kernel=section.kernel,
            hidden=section.hidden,
            regularization=section.regularization,
            activation=section.activation,
            normalization=section.normalization,
            pool_every=section.pool_every,
            embedding=section.embedding,
            width=section.width,
            blocks=section.blocks,
        )

    def agree(self, run: Sections) -> None:
        """Raise ValueError where this section contradicts the others."""
        raise NotImplementedError
