"""Networks of a run file become graphs, so that an offer holds no code.

A module's code is executed here, at the researcher's, once.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tacit.algorithms.own.own_settings import AlgorithmSettings
from tacit.algorithms.own.own_steps import OwnStepsTask
from tacit.config import RunFile, as_tree
from tacit.config.features import FeaturedData, FrontSection
from tacit.config.frozen_sections import frozen_front, frozen_model
from tacit.config.own_data import OwnData
from tacit.datasets import Benchmark
from tacit.datasets.features import shape_with
from tacit.datasets.target import Target
from tacit.errors import ConfigError
from tacit.graphs.freezing import Frozen
from tacit.graphs.graph_values import GRAPH_SUFFIX, values_beside
from tacit.models.graph.frozen_entry import FreezeRequest
from tacit.user_code import entry_digest
from tacit_services.disk.files import PUBLIC, write

_MODEL = "model"  # a frozen model's file
_FRONT = "front"  # and a frozen front's, with its place among the features


def frozen_tree(run: RunFile, into: Path) -> dict[str, dict[str, Any]]:
    """Return the sections of `run` for members, with every module frozen to a graph in `into`.

    Of an own algorithm they state what an edge computes, and the SHA-256 of a rule that it follows.
    Raises ConfigError for a module that cannot become a graph.
    """
    tree = as_tree(run)
    if run.data.fronts:
        tree["data"]["features"] = _features(run, into)
    if run.model.name == "python":
        tree["model"] = _model(run, into)
    if isinstance(run.algorithm, AlgorithmSettings):
        tree["algorithm"]["edge"] = _edge(run.algorithm, run.folder)
    return tree


def _model(run: RunFile, into: Path) -> dict[str, Any]:
    section = run.model
    assert section.entry is not None
    source = run.source
    shape, classes = source.shape
    loss = section.loss
    own_loss = loss is not None and ":" in loss
    request = FreezeRequest(
        section.entry,
        run.folder,
        shape,
        source.integers,
        section.arguments,
        run.run.seed,
        loss if own_loss else None,
        *(_target(source.target, classes) if own_loss else (0, 0)),
        section.trainable,
        section.weights,
    )
    graph: dict[str, Any] = {"name": "graph", "file": _written(frozen_model(request), _MODEL, into)}
    if loss is not None and not own_loss:
        graph["loss"] = loss
    if section.regularization:
        graph["regularization"] = section.regularization
    return graph


def _target(target: Target, classes: int) -> tuple[int, int]:
    """Return the classes and the tokens of a target, for a loss of the user's own."""
    if target.kind == "tokens":
        return 0, target.tokens
    if target.kind in ("classes", "number"):
        return classes, 0
    raise ConfigError(
        f"model.loss: an own loss of a target of {target.kind} cannot be frozen; name one of "
        "tacit's own"
    )


def _features(run: RunFile, into: Path) -> list[Any]:
    assert isinstance(run.data, FeaturedData)
    assert not isinstance(run.data.features, str)
    shape = _shape_before(run)
    steps: list[Any] = []
    for place, step in enumerate(run.data.features):
        if isinstance(step, FrontSection) and not step.graph:
            request = FreezeRequest(
                step.front, run.folder, shape, None, step.arguments, 0, None, 0, 0, (), step.weights
            )
            steps.append({"front": _written(frozen_front(request), f"{_FRONT}-{place}", into)})
        elif isinstance(step, str):
            steps.append(step)
        else:
            steps.append(step.model_dump(exclude_defaults=True))
        shape = shape_with((step if isinstance(step, str) else step.step(run.folder),), shape)
    return steps


def _shape_before(run: RunFile) -> tuple[int, ...]:
    """Return the shape of a record before its features."""
    if isinstance(run.data, OwnData):
        return run.data.plain_reader(run.folder).shape
    source = run.source
    assert isinstance(source, Benchmark)
    return source.raw_shape


def _written(network: Frozen, name: str, into: Path) -> str:
    """Write a graph and its values into the folder, and return the graph's name."""
    file = f"{name}{GRAPH_SUFFIX}"
    write(into / values_beside(file, "graph"), network.file, PUBLIC)
    write(into / file, network.graph.text().encode(), PUBLIC)
    return file


def _edge(section: AlgorithmSettings, folder: Path) -> dict[str, Any]:
    """Return what an edge computes, as a site needs it that has none of the algorithm's code."""
    task = section.task()
    stated = {"kind": task.kind} | task.model_dump(exclude_defaults=True)
    if isinstance(task, OwnStepsTask) and task.code is None:
        stated["code"] = entry_digest(task.entry, folder, "algorithm.edge.entry")
    return stated
