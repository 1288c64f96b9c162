"""The contract of an algorithm: its settings, its server and its edge.

Idea. `algorithm.name` in a run file names an object of this class. A built-in name is registered in
`tacit.config.algorithm_entries`; a user's own algorithm is named by "module:Name". Both are loaded
in the same way, and nothing else in tacit knows which algorithm a run has.

What an algorithm says of itself (who computes, how ε composes, what an update costs) is in its
settings class, as it follows from the run file alone.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, ClassVar

from tacit.algorithms.base.edge import EdgeRole
from tacit.algorithms.base.edge_task import EdgeTask
from tacit.algorithms.base.labelled_records import LabelledRecords
from tacit.algorithms.base.owner import Owner
from tacit.algorithms.base.server import ServerRole
from tacit.config.algorithm_contract import AlgorithmSection
from tacit.config.definition import Definition
from tacit.models import Model
from tacit.privacy.release import NoiseAt


class Algorithm(ABC):
    """One algorithm, or several of one paper whose names are values of `settings.name`."""

    settings: ClassVar[type[AlgorithmSection]]

    @abstractmethod
    def server(
        self, definition: Definition[Any], model: Model, labelled: LabelledRecords | None = None
    ) -> ServerRole:
        """Return the server role of a run, at its beginning.

        labelled: the records that the server of a vertical run needs. Raises ConfigError where a
        vertical run has none.
        """

    @abstractmethod
    def edge(self, definition: Definition[Any], owner: Owner) -> EdgeRole:
        """Return the role of the edge that has `owner`'s rows.

        Raises ConfigError for a vertical run, which has parties instead.
        """


class TaskSettings(AlgorithmSection):
    """The settings of an algorithm whose edges do a built-in task."""

    def task(self, noise_at: NoiseAt = "edge") -> EdgeTask:
        """Return what an edge computes for one update."""
        raise NotImplementedError


class ServerAlgorithm(Algorithm):
    """A server over edges that do a built-in task. role: the server's class."""

    settings: ClassVar[type[TaskSettings]]
    role: ClassVar[type[ServerRole]]

    def server(
        self, definition: Definition[Any], model: Model, labelled: LabelledRecords | None = None
    ) -> ServerRole:
        """Return the server role of a run, at its beginning."""
        return self.role(definition, model)

    def edge(self, definition: Definition[Any], owner: Owner) -> EdgeRole:
        """Return the role of an edge that does the task of the run's settings."""
        task: EdgeTask = definition.algorithm.task(definition.privacy.noise_at)
        return task.role(owner, definition.run.updates)
