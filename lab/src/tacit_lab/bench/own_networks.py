"""Users' own networks as models of tacit, for the bench of a step."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from torch import nn

from tacit.models import Model
from tacit.models.losses import cross_entropy
from tacit.models.module import module_model
from tacit_lab.bench.plain_networks import PLAIN_NETWORKS


def _model(name: str, factory: Callable[[], nn.Module], shape: tuple[int, ...]) -> Model:
    return module_model(f"bench:{name}", factory, shape=shape, outputs=10, loss=cross_entropy)


OWN_NETWORKS: dict[str, Callable[[], Model]] = {
    name: partial(_model, name, factory, shape) for name, (factory, shape) in PLAIN_NETWORKS.items()
}
