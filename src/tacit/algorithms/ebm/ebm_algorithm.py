"""Private additive boosting as an algorithm: its settings, and the server of a run."""

from __future__ import annotations

from typing import Any

from tacit.algorithms.base.algorithm import ServerAlgorithm
from tacit.algorithms.base.labelled_records import LabelledRecords
from tacit.algorithms.base.server import ServerRole
from tacit.algorithms.ebm.ebm_server import EbmServer
from tacit.algorithms.ebm.ebm_settings import EbmSettings
from tacit.algorithms.ebm.pairs_server import PairsServer
from tacit.config.definition import Definition
from tacit.models import Model
from tacit.models.additive import AdditiveModel


class EbmAlgorithm(ServerAlgorithm):
    """Private additive boosting."""

    settings = EbmSettings
    role = EbmServer

    def server(
        self, definition: Definition[Any], model: Model, labelled: LabelledRecords | None = None
    ) -> ServerRole:
        """Return the server role of a run, at its beginning: of columns alone, or with pairs."""
        if isinstance(model, AdditiveModel) and model.pairs:
            return PairsServer(definition, model)
        return super().server(definition, model, labelled)
