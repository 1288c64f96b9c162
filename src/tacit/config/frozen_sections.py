"""Freezing of what a run file can name: a module, a network of tacit's own, a front of features."""

from __future__ import annotations

from typing import Any, TypeVar

from pydantic import ValidationError

from tacit.config.complaints import one_line
from tacit.config.features import FrontSection
from tacit.config.model import ModelSection
from tacit.config.sections import Section
from tacit.datasets.features.graph_front import GraphFront
from tacit.errors import ConfigError
from tacit.graphs.freezing import Frozen
from tacit.models import NAMES
from tacit.models.graph.frozen_entry import FreezeRequest, frozen_entry
from tacit.models.graph.frozen_zoo import frozen_zoo

_SomeSection = TypeVar("_SomeSection", bound=Section)


def frozen_model(request: FreezeRequest) -> Frozen:
    """Return the graph of a module, or of one of tacit's own networks by its name.

    Raises ConfigError.
    """
    if request.entry not in NAMES:
        return frozen_entry(request)
    _refuse(
        request,
        ("weights", "loss", "integers", "tokens"),
        f"is for a module, not for {request.entry}",
    )
    if request.classes < 2:
        raise ConfigError(f"--classes {request.classes}: {request.entry} scores at least 2 classes")
    section = _section(ModelSection, {"name": request.entry, **request.arguments})
    model = section.build(request.shape, request.classes, request.folder)
    return frozen_zoo(model, request.seed, request.trainable)


def frozen_front(request: FreezeRequest) -> Frozen:
    """Return the graph of a front of features, as a run file's `front` names it.

    Raises ConfigError.
    """
    _refuse(request, ("loss", "integers", "classes", "tokens"), "a front of features has none")
    keys = {"front": request.entry, "arguments": request.arguments, "weights": request.weights}
    step = _section(FrontSection, keys).step(request.folder)
    if isinstance(step, GraphFront):
        raise ConfigError(f"{request.entry}: is a graph already")
    return step.frozen(request.shape)


def _refuse(request: FreezeRequest, options: tuple[str, ...], why: str) -> None:
    for option in options:
        if getattr(request, option) not in (None, 0):
            raise ConfigError(f"--{option}: {why}")


def _section(kind: type[_SomeSection], keys: dict[str, Any]) -> _SomeSection:
    try:
        return kind.model_validate(keys)
    except ValidationError as error:
        raise ConfigError(f"--arguments: {one_line(error, kind)}") from error
