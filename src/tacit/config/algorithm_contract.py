"""Base classes of the [data] and [algorithm] sections.

They are what other code may ask of any kind of data and any algorithm without knowing which it is.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Literal, Protocol

from tacit.config.asked import AskSection
from tacit.config.model import ModelSection
from tacit.config.plans import Plans
from tacit.config.sections import Edges, Evaluation, Guard, Network, Privacy, Run, Section
from tacit.config.site import Site
from tacit.config.traits import Traits
from tacit.datasets import Source
from tacit.models import Model
from tacit.models.objectives import Objective
from tacit.privacy.release import Plan
from tacit.privacy.report import AT_EDGE, AT_SERVER, Composition, Promise

WorkerKind = Literal["edge", "peer", "party"]


class DataSection(Section):
    """The [data] section: where the rows come from, and what is public about them.

    Each kind of data has its own class (`tacit.config.data`). partition: how one file is divided
    among edges. spare: parts kept for edges that may join later.
    """

    kind: str
    partition: str
    spare: int

    def stated(self, different: dict[str, Any]) -> dict[str, Any]:
        """Return what every edge must agree on, out of what is `different` from the defaults."""
        return different

    def code(self, folder: Path) -> dict[str, str]:
        """Return the SHA-256 of each piece of own code, by purpose; `folder`: the run file's."""
        return {}

    def files(self, folder: Path) -> Iterable[Path]:
        """Return the user's public files that rows are made with; paths relative to `folder`."""
        return ()

    @property
    def rows_called(self) -> str:
        """What the data's owner calls its rows, in the plural."""
        return "rows"

    @property
    def entry_of_rows(self) -> str | None:
        """The own code ("module:name") that reads the rows; None: tacit reads them."""
        return None

    @property
    def fronts(self) -> tuple[str, ...]:
        """The modules ("module:name") that every row goes through before the model."""
        return ()

    @property
    def trusted_fronts(self) -> tuple[str, ...]:
        """Those of `fronts` whose code may run on rows as it is."""
        return ()

    def promised(self, promise: Promise, source: Source) -> Promise:
        """Return an algorithm's promise as it holds for this data, whose `source` is built."""
        return promise

    def source(self, run: Sections, folder: Path) -> Source:
        """Return the data as the rest of the run uses it; paths are relative to `folder`."""
        raise NotImplementedError

    def source_at(self, site: Site, run: Sections, folder: Path) -> Source:
        """Return the data of a run at one member of a federation.

        Of published data it is the member's part of what `site.data` has. Raises ConfigError.
        """
        return self.source(run, folder)

    def public_size(self, edges: int, columns: bool) -> int:
        """Return n_public, the number of records that one of `edges` edges is taken to have.

        It is never counted from private rows. columns: whether each edge holds some columns of
        every record. Raises ValueError where a run file must say it and does not.
        """
        raise NotImplementedError

    def of_each_worker(self, privacy: Privacy) -> Privacy:
        """Return [privacy] as one worker has it; its ε is less where a person is at several."""
        return privacy

    def agree(self, run: Sections) -> None:
        """Raise ValueError where this section contradicts the others."""
        raise NotImplementedError


RATES = (0.01, 30.0)  # bounds of a learning rate, where `tacit tune` varies it
USUAL_CLIP = 2.0  # C: near the norm of an example's gradient for softmax and inputs in [0, 1]


class AlgorithmSection(Section):
    """The [algorithm] section of a run file.

    The defaults here fit an algorithm with one server and edges that hold their own rows. `traits`
    are each algorithm's own. worker: which service computes. Peers have no server. columns: whether
    the data is divided by columns, so that each worker holds some columns of every record.
    composition: how the run's ε follows from its workers'. centralised: names of those where one
    edge holds all the data. searched: keys that `tacit tune` varies, each with its bounds, along a
    logarithmic scale.
    """

    worker: ClassVar[WorkerKind] = "edge"
    columns: ClassVar[bool] = False
    centralised: ClassVar[tuple[str, ...]] = ()
    searched: ClassVar[Mapping[str, tuple[float, float]]] = {}
    composition: ClassVar[Composition] = "max"

    name: str

    @classmethod
    def implied(cls, workers: int, stated: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
        """Return keys by section that a run file of `workers` workers may leave out, and are these.

        They count as stated. stated: this section as the file has it, not checked yet.
        """
        return {}

    def pairs_of(self, names: Sequence[str]) -> tuple[tuple[int, int], ...]:
        """Return which of an additive model's columns `names` may say something in pairs.

        Each pair has the columns' places, in ascending order. Raises ConfigError.
        """
        return ()

    def lacking(self, privacy: Privacy) -> list[str]:
        """Return the keys that a run file must state where an own algorithm's code is not here."""
        return []

    def with_rule(self, folder: Path) -> dict[str, Any] | None:
        """Return what a run file states, with the SHA-256 of a rule of the user's that edges run.

        None: there is no such rule.
        """
        return None

    def traits(self, workers: int) -> Traits:
        """Return what the rest of the code may ask of it, in a run of `workers` workers."""
        raise NotImplementedError

    def unread(self) -> list[str]:
        """Return the keys that the run file gives and this algorithm does not read."""
        return []

    def hindered(self, plan: Plan) -> list[str] | None:
        """Return a sentence for each thing in the noise of `plan` that hinders learning.

        None: the run learns by noisy gradient steps, which the preflight judges.
        """
        return None

    def promise(self, plans: Plans, clip: float) -> Promise:
        """Return the statement of privacy of a run with these `plans`.

        clip: C, where the algorithm has no schedule for it.
        """
        plan = plans.default
        return Promise(
            guarantee=AT_EDGE if plan.noise_at == "edge" else AT_SERVER,
            composition=self.composition,
            private=plan.clip_is_bounded,
            delta=plan.delta,
            batch=plan.batch,
            clip=(plan.clip_min, plan.clip_max),
            mechanism=plan.declared,
            budget=plans.budget,
        )

    def build_model(
        self,
        section: ModelSection,
        shape: tuple[int, ...],
        classes: int,
        workers: int,
        folder: Path,
        objective: Objective | None = None,
        integers: int | None = None,
    ) -> Model:
        """Return the model that is trained on examples of `shape`. Raises ConfigError.

        classes: how many, or 0 where the target has none. folder: the run file's. objective: what
        is learnt of labels, counts or an event. integers: what an example's whole numbers are
        below; None: it is float32.
        """
        return section.build(shape, classes, folder, objective, integers)

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
    def evaluation(self) -> Evaluation: ...
    @property
    def guard(self) -> Guard: ...
    @property
    def network(self) -> Network: ...
    @property
    def ask(self) -> AskSection | None: ...
