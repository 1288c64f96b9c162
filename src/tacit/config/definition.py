"""A run: the sections of its run file, under their names, and what follows from them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

from tacit.config.algorithm_contract import AlgorithmSection, DataSection
from tacit.config.asked import SUMS, AskSection
from tacit.config.asked_table import AskedTable
from tacit.config.binned import additive_model
from tacit.config.edge_looks import Judging
from tacit.config.model import ModelSection
from tacit.config.plans import Plans
from tacit.config.sections import Edges, Evaluation, Guard, Network, Privacy, Run, Tracking
from tacit.config.traits import Traits
from tacit.datasets import Source
from tacit.models import Model, checked_size
from tacit.models.additive import ADDITIVE
from tacit.models.metrics import Metrics, chosen
from tacit.models.objectives import objective_of
from tacit.models.sums_model import SumsModel
from tacit.privacy.plan import Plan
from tacit.privacy.policy import Terms
from tacit.privacy.report import Promise

A_co = TypeVar("A_co", bound=AlgorithmSection, covariant=True)


def worker_names(count: int) -> tuple[str, ...]:
    """Return the names of the first `count` workers."""
    return tuple(f"edge-{number}" for number in range(count))


@dataclass(frozen=True, slots=True)
class Definition(Generic[A_co]):
    """A run, built by `RunFile.define`. It holds public numbers only.

    >>> from tacit import config
    >>> text = '''
    ... run.updates = 1000
    ... data.dataset = "digits"
    ... model.name = "logistic"
    ... algorithm.name = "mapa"
    ... '''
    >>> definition = config.parse(text, "example").define()
    >>> definition.run.updates, definition.edges.count, definition.evaluation.every
    (1000, 5, 250)

    What is no section follows from the sections.

    folder: the run file's, where its own code lies. differences: what the run file states
    differently from the defaults, without [tracking]. worker_names: of the workers that may take
    part, spare edges too. traits: what may be asked of the algorithm without knowing which it is.
    plans: the privacy plan of every worker. terms: what the server assumes of every edge's privacy.
    promise: the run's statement of privacy. enforces_share: whether an edge that is ahead of its
    part of the updates waits for the others. fingerprint: the run's name in the store, a SHA-256.
    agreed: what every edge must agree on (`RunFile.agreed`). judging: its looks at held-out rows;
    None: it has none.
    """

    run: Run
    data: DataSection
    model: ModelSection
    algorithm: A_co
    privacy: Privacy
    edges: Edges
    evaluation: Evaluation
    guard: Guard
    network: Network
    ask: AskSection | None
    tracking: Tracking

    folder: Path
    differences: dict[str, Any]
    source: Source
    worker_names: tuple[str, ...]
    traits: Traits
    plans: Plans
    terms: Terms
    promise: Promise
    enforces_share: bool
    fingerprint: str
    agreed: dict[str, Any]
    judging: Judging | None

    def build_model(self) -> Model:
        """Return the model of this run; for a vertical run, the server's θ_0.

        Raises ConfigError where its layers do not fit the data or memory.
        """
        shape, classes = self.source.shape
        if self.ask is not None:
            assert isinstance(self.data, AskedTable)
            sheet = self.data.question_sheet(self.ask)
            return checked_size(SumsModel(SUMS, shape, 1, sheet=sheet))
        if self.model.name == ADDITIVE:
            made = additive_model(
                self.model, self.data, self.source, self.folder, self.algorithm.pairs_of
            )
            return checked_size(made)
        objective = objective_of(self.source.target)
        model = self.algorithm.build_model(
            self.model, shape, classes, self.edges.count, self.folder, objective,
            self.source.integers,
        )  # fmt: skip
        return checked_size(model)

    @property
    def question_kinds(self) -> tuple[str, ...]:
        """The kinds of question that the run asks, as a policy lists them."""
        return () if self.ask is None else tuple(each.kind for each in self.ask.parsed())

    @property
    def looks_plan(self) -> Plan | None:
        """The plan of an edge's looks at held-out rows; None: there are none."""
        return None if self.judging is None else self.judging.plan()

    def metrics(self) -> Metrics:
        """Return what is measured on the test set; a user's own metric is loaded.

        Raises ConfigError for a metric that is missing or does not fit the target.
        """
        return chosen(self.evaluation.metrics, self.source.target, self.folder)

    def weight(self, edge: str) -> float:
        """Return the share of the edge called `edge`, where an ordinary one has 1.

        It follows from the run file alone.
        """
        if self.edges.share == "budget":
            return self.plans.budget(edge) / self.plans.default.epsilon
        number = edge.removeprefix("edge-")
        numbered = number.isdecimal() and len(number) < 10
        return self.source.weight(int(number) if numbered else None)
