"""Models as functions of one flat parameter vector, and how good they are."""

from tacit.models.building import (
    NAMES,
    Constant,
    Name,
    best_constant,
    build,
    checked_size,
    evaluate,
)
from tacit.models.model_contract import LayerValues, Model, Normalization
from tacit.models.zoo.deep import DeepModel
from tacit.models.zoo.layered import Activation, Layered
from tacit.models.zoo.lstm import Lstm

__all__ = [
    "NAMES",
    "Activation",
    "Constant",
    "DeepModel",
    "LayerValues",
    "Layered",
    "Lstm",
    "Model",
    "Name",
    "Normalization",
    "best_constant",
    "build",
    "checked_size",
    "evaluate",
]
