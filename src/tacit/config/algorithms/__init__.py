"""The [algorithm] section of a run file: one class per paper, chosen by `name`."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from tacit.config.algorithms.dp_pasgd import DpPasgd
from tacit.config.algorithms.fedasync import FedAsync
from tacit.config.algorithms.gossip import Gossip
from tacit.config.algorithms.mapa import Mapa
from tacit.config.algorithms.vafl import Vafl

__all__ = ["CENTRALISED", "Algorithm", "DpPasgd", "FedAsync", "Gossip", "Mapa", "Vafl"]

CENTRALISED = ("csgd", "sgd")  # one edge holds all the data
Algorithm = Annotated[Mapa | FedAsync | DpPasgd | Gossip | Vafl, Field(discriminator="name")]
