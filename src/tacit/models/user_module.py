"""The module that a run file names: its code, its loss, its public start.

Naming is all that a run file does. What is named lies beside it, or is installed; its SHA-256 is in
the run definition, so that everybody runs the same code.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from tacit.models.losses import Loss, chosen_loss
from tacit.models.module import module_model
from tacit.models.named_network import NamedNetwork, NetworkUse
from tacit.models.objectives import Objective
from tacit.models.own_network import OwnNetwork
from tacit.models.start_values import path_inside, start_values
from tacit.user_code import entry_digest, load_entry, load_module


@dataclass(frozen=True, slots=True)
class UserModule(NamedNetwork):
    """The keys of [model] for a user's own module. Nothing is loaded before `build`.

    entry: "module:name" in `folder`, the run file's, or installed; it is called with `arguments`.
    loss: a name of `LOSSES`, "module:function", or None: by the target. weights: a safetensors file
    in `folder`. trusted: whether its steps may follow a row's numbers.
    """

    entry: str
    arguments: Mapping[str, Any]
    loss: str | None
    weights: str | None
    trainable: tuple[str, ...]
    folder: Path
    trusted: bool = False

    def digests(self) -> dict[str, str]:
        """Return SHA-256 of each file that the section names, by its key. Executes nothing.

        Raises ConfigError.
        """
        digests = {"entry": entry_digest(self.entry, self.folder)}
        if self._own_loss:
            digests["loss"] = entry_digest(str(self.loss), self.folder, "model.loss")
        if self.weights is not None:
            digests["weights"] = hashlib.sha256(self._weights_path().read_bytes()).hexdigest()
        return digests

    def files(self) -> list[Path]:
        """Return the files beside the code that make the model, relative to its folder."""
        return [] if self.weights is None else [Path(self.weights)]

    def _built(self, use: NetworkUse) -> OwnNetwork:
        factory, digest = load_module(self.entry, self.arguments, self.folder)
        return module_model(
            self.entry,
            factory,
            shape=use.shape,
            outputs=use.outputs,
            labels=use.labels,
            loss=use.loss,
            digest=digest,
            trainable=self.trainable,
            start=self._start(),
            regularization=use.regularization,
            trusted=self.trusted,
            objective=use.objective,
            integers=use.integers,
        )

    @property
    def _own_loss(self) -> bool:
        return self.loss is not None and ":" in self.loss

    def _loss(self, classes: int, objective: Objective | None) -> tuple[Loss | None, int]:
        if self._own_loss:
            outputs = 0 if objective is None else objective.target.outputs
            return load_entry(str(self.loss), self.folder, "model.loss").target, outputs
        return chosen_loss(self.loss, classes, objective)

    def _weights_path(self) -> Path:
        return path_inside(self.folder, str(self.weights), "model.weights")

    def _start(self) -> dict[str, Tensor]:
        if self.weights is None:
            return {}
        return start_values(self._weights_path())
