"""An own algorithm whose code has not been loaded, or is not here at all.

A site needs none of it, as its edge does a built-in task. A journal and an exported model name it,
and are read without running it.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, ClassVar

from pydantic import ConfigDict, ValidationError

from tacit.algorithms.base.algorithm import Algorithm, ServerAlgorithm
from tacit.algorithms.base.edge_task import EdgeTask
from tacit.algorithms.base.labelled_records import LabelledRecords
from tacit.algorithms.base.server import ServerRole
from tacit.algorithms.own.own_settings import AlgorithmSettings
from tacit.algorithms.own.own_steps import OwnStepsTask
from tacit.algorithms.own.server_trial import tried
from tacit.config.algorithm_contract import Sections
from tacit.config.algorithm_entries import other_code, own
from tacit.config.complaints import one_line
from tacit.config.definition import Definition
from tacit.config.sections import Privacy
from tacit.config.traits import Traits
from tacit.errors import ConfigError
from tacit.models import Model


class Unloaded(AlgorithmSettings):
    """What a run file states of an own algorithm, unchecked."""

    model_config = ConfigDict(extra="allow")

    def computes(self) -> EdgeTask:
        """Raise ConfigError: the code knows, and the run file does not state it."""
        raise ConfigError(
            f"algorithm.entry={self.name}: what an edge computes is in its code, which is not "
            "loaded here, and algorithm.edge does not state it"
        )

    def traits(self, workers: int) -> Traits:
        """Return the traits of the edge's task; what only the code knows is left open."""
        if self.edge is None:
            return Traits(released="when asked")
        return replace(super().traits(workers), usual_clip=None, released="when asked")

    def lacking(self, privacy: Privacy) -> list[str]:
        """Return what the algorithm's code would fill in, as far as the run file leaves it out."""
        missing = []
        if privacy.private and privacy.clip is None:
            missing.append("privacy.clip")
        calibrated = privacy.private and privacy.noise_multiplier is None
        if calibrated and "pushes" not in privacy.model_fields_set:
            missing.append("privacy.pushes")
        if isinstance(self.edge, OwnStepsTask) and self.edge.code is None:
            missing.append("algorithm.edge.code, the SHA-256 of the rule that you have read")
        return missing

    def agree(self, run: Sections) -> None:
        """Raise ValueError where the edge's task does not fit the run."""
        if self.edge is not None:
            self.edge.agree(run)


class UnloadedAlgorithm(ServerAlgorithm):
    """The edges of an own algorithm; its server loads the code."""

    settings: ClassVar = Unloaded

    def server(
        self, definition: Definition[Any], model: Model, labelled: LabelledRecords | None = None
    ) -> ServerRole:
        """Return the server role of a run, by the code in the run's folder.

        Raises ConfigError where that is missing or is not the run's.
        """
        section: Unloaded = definition.algorithm
        algorithm, digest = own(section.name, definition.folder)
        if section.code not in (None, digest):
            raise ConfigError(other_code(section.name, section.code, digest))
        assert issubclass(algorithm, Algorithm)
        try:
            settings = algorithm.settings.model_validate(section.as_stated())
        except ValidationError as error:
            complaint = one_line(error, algorithm.settings)
            raise ConfigError(f"algorithm.entry={section.name}: {complaint}") from error
        traits = settings.traits(definition.edges.count)
        loaded = replace(definition, algorithm=settings, traits=traits)
        return tried(loaded, lambda: algorithm().server(loaded, model, labelled))
