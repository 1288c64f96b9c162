"""Which module of torch a network of tacit's own is, with its first values."""

from __future__ import annotations

from typing import Any

from torch import nn

from tacit.models.additive import AdditiveModel
from tacit.models.model_contract import Model
from tacit.models.zoo.deep import DeepModel
from tacit.models.zoo.layered import Layered
from tacit.models.zoo.lstm import Lstm
from tacit.models.zoo.modules import Additive, Cnn, Deep, LanguageModel, Logistic


def construction_of(model: Model) -> tuple[type[nn.Module], dict[str, Any]]:
    """Return the class of `zoo.modules` that a network of tacit's own is, and its arguments."""
    if isinstance(model, Lstm):
        sizes = {"embedding": model.embedding, "hidden": model.hidden}
        return LanguageModel, {"classes": model.classes, **sizes}
    of_both = {"shape": model.shape, "classes": model.classes}
    if isinstance(model, DeepModel):
        of_deep = {"width": model.width, "blocks": model.blocks}
        return Deep, {"name": model.name, **of_both, **of_deep}
    if isinstance(model, AdditiveModel):
        columns = [
            (each.place, each.width, each.bins, each.low, each.high) for each in model.columns
        ]
        arguments = of_both | {"columns": columns}
        if model.pairs:
            arguments["pairs"] = [(pair.first, pair.second) for pair in model.pairs]
        return Additive, arguments
    assert isinstance(model, Layered)
    if not model.channels and not model.hidden:
        return Logistic, of_both
    keys = ("channels", "hidden", "kernel", "padding", "activation", "normalization", "pool_every")
    return Cnn, of_both | {key: getattr(model, key) for key in keys}


def as_module(model: Model, seed: int) -> nn.Module:
    """Return a network of tacit's own as a module, with the model's first values of `seed`."""
    kind, arguments = construction_of(model)
    module = kind(**arguments)
    module.load_state_dict(model.state(model.init(seed)))
    return module
