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
from tacit.graphs.graph_check import checked
from tacit.graphs.graph_file import GraphFile, GraphWeight, check_patterns, is_trainable, read_graph
from tacit.graphs.graph_values import MOST_VALUES, values_beside
from tacit.models.graph.graph_model import GraphModel, check_gradients
from tacit.models.losses import Loss, chosen_loss
from tacit.models.named_network import NamedNetwork, NetworkUse
from tacit.models.objectives import Objective
from tacit.models.own_network import least_and_largest
from tacit.models.start_values import path_inside, start_values


@dataclass(frozen=True, slots=True)
class GraphNetwork(NamedNetwork):
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
        """Return the files that make the model, relative to the run file's folder.

        Raises ConfigError where one is not there.
        """
        root = self.folder.resolve()
        path_inside(self.folder, self.file, "model.file")
        return [Path(self.file), self._values_path().relative_to(root)]

    def graph(self) -> GraphFile:
        """Return what the file says, not tried yet. Raises ConfigError."""
        return read_graph(path_inside(self.folder, self.file, "model.file"))

    def _loss(self, classes: int, objective: Objective | None) -> tuple[Loss | None, int]:
        return chosen_loss(self.loss, classes, objective)

    def _built(self, use: NetworkUse) -> GraphModel:
        graph = self._of_rows(self.graph(), use.integers)
        if graph.example.shape != use.shape:
            raise ConfigError(
                f"model.file={self.file}: takes examples of {list(graph.example.shape)}; the data "
                f"has {list(use.shape)}; freeze it with --shape {','.join(map(str, use.shape))}"
            )
        names = [weight.name for weight in graph.weights if weight.trained]
        check_patterns(f"model.file={self.file}", names, self.trainable)
        trained = tuple(self._with_trained(weight) for weight in graph.weights)
        graph = graph.model_copy(update={"weights": trained})
        values = self._values(graph)
        network = checked(graph, values, least_and_largest(use.labels, use.objective))
        own_loss = graph.loss is not None and self.loss is None
        outputs = 0 if own_loss and use.objective is None else use.outputs
        places = () if use.objective is None else use.objective.target.shape
        expected = (1, *places, outputs)
        if outputs and network.output != expected and (outputs > 1 or network.output != (1,)):
            raise ConfigError(
                f"model.file={self.file}: gives {list(network.output)} for an example; expected "
                f"{list(expected)}"
            )
        model = GraphModel(
            self.file,
            use.shape,
            outputs,
            use.regularization,
            graph.digest(),
            use.loss,
            use.labels,
            checked=network,
            values=values,
            objective=use.objective,
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
        return path_inside(self.folder, values_beside(self.file, "model.file"), "model.file")

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
