"""The graph that a run file names: its file, its first values, its loss.

Nothing that is read here is code. A site needs these files and no other.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from torch import Tensor

from tacit import regular_file
from tacit.errors import ConfigError
from tacit.models.graph.graph_check import checked
from tacit.models.graph.graph_file import GraphFile, GraphWeight, read_graph
from tacit.models.graph.graph_model import GraphModel, check_gradients
from tacit.models.losses import chosen_loss
from tacit.models.objectives import Objective
from tacit.models.own_network import is_trainable, least_and_largest
from tacit.models.start_values import MOST_VALUES, path_inside, start_values

GRAPH_SUFFIX = ".graph.json"


@dataclass(frozen=True, slots=True)
class GraphNetwork:
    """The keys of [model] for a graph. Nothing is read before `build`.

    file, weights: in `folder`, the run file's. Without weights they lie beside the graph, as `tacit
    freeze` writes them. loss: a name of `LOSSES`, or None: the graph's own, else by the target.
    """

    file: str
    loss: str | None
    weights: str | None
    trainable: tuple[str, ...]
    folder: Path

    def digests(self) -> dict[str, str]:
        """Return SHA-256 of the graph, and of other first values, by key. Raises ConfigError."""
        digests = {"graph": self.graph().digest()}
        if self.weights is not None:
            digests["weights"] = _digest(self._values_path())
        return digests

    def files(self) -> list[Path]:
        """Return the files that make the model, relative to the run file's folder."""
        root = self.folder.resolve()
        return [Path(self.file), self._values_path().relative_to(root)]

    def graph(self) -> GraphFile:
        """Return what the file says, not tried yet. Raises ConfigError."""
        return read_graph(path_inside(self.folder, self.file, "model.file"))

    def build(
        self,
        shape: tuple[int, ...],
        classes: int,
        regularization: float,
        objective: Objective | None = None,
        integers: int | None = None,
    ) -> GraphModel:
        """Return the model for examples of `shape`; classes: 0 where the target has none.

        objective: what it learns of labels, counts or an event. integers: where an example is whole
        numbers, their bound. Raises ConfigError.
        """
        graph = self._of_rows(self.graph(), integers)
        if graph.example.shape != shape:
            raise ConfigError(
                f"model.file={self.file}: takes examples of {list(graph.example.shape)}; the data "
                f"has {list(shape)}"
            )
        trained = tuple(self._with_trained(weight) for weight in graph.weights)
        graph = graph.model_copy(update={"weights": trained})
        loss, outputs = chosen_loss(self.loss, classes, objective)
        target = least_and_largest(classes, objective)
        values = self._values(graph)
        network = checked(graph, values, target)
        if graph.loss is not None and self.loss is None and objective is None:
            outputs = 0
        places = () if objective is None else objective.target.shape
        expected = (1, *places, outputs)
        if outputs and network.output != expected and (outputs > 1 or network.output != (1,)):
            raise ConfigError(
                f"model.file={self.file}: gives {list(network.output)} for an example; expected "
                f"{list(expected)}"
            )
        model = GraphModel(
            self.file,
            shape,
            outputs,
            regularization,
            graph.digest(),
            loss,
            classes if objective is None else 0,
            checked=network,
            values=values,
            objective=objective,
        )
        check_gradients(f"model.file={self.file}", model)
        return model

    def _of_rows(self, graph: GraphFile, integers: int | None) -> GraphFile:
        """Return the graph with the data's whole numbers, which it must take. Raises ConfigError.

        A graph that takes more numbers takes these, too.
        """
        below = graph.example.below
        if below is None and integers is None:
            return graph
        if below is None or integers is None or below < integers:
            takes = "floats" if below is None else f"whole numbers below {below}"
            if integers is None:
                what = "has floats; freeze it without --integers"
            else:
                what = f"has whole numbers below {integers}; freeze it with --integers {integers}"
            raise ConfigError(f"model.file={self.file}: takes {takes}; the data {what}")
        example = graph.example.model_copy(update={"below": integers})
        return graph.model_copy(update={"example": example})

    def _with_trained(self, weight: GraphWeight) -> GraphWeight:
        trained = weight.trained and is_trainable(weight.name, self.trainable)
        return weight.model_copy(update={"trained": trained})

    def _values_path(self) -> Path:
        if self.weights is not None:
            return path_inside(self.folder, self.weights, "model.weights")
        if not self.file.endswith(GRAPH_SUFFIX):
            raise ConfigError(f"model.file={self.file!r}: expected NAME{GRAPH_SUFFIX}")
        name = self.file.removesuffix(GRAPH_SUFFIX) + ".safetensors"
        return path_inside(self.folder, name, "model.file")

    def _values(self, graph: GraphFile) -> Mapping[str, Tensor]:
        path = self._values_path()
        if self.weights is None and _digest(path) != graph.values:
            raise ConfigError(
                f"model.file={self.file}: {path.name} is not what was frozen with it (SHA-256); "
                "freeze both again, or name the file by model.weights"
            )
        return start_values(path)


def _digest(path: Path) -> str:
    return hashlib.sha256(regular_file.content(path, MOST_VALUES)).hexdigest()
