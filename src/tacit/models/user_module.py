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

from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from tacit.errors import ConfigError
from tacit.models.losses import LOSSES, OBJECTIVE_LOSSES, Loss
from tacit.models.module import ModuleModel, module_model
from tacit.models.objectives import Objective
from tacit.user_code import entry_digest, load_entry, load_module

_NAMES = dict.fromkeys((*LOSSES, *OBJECTIVE_LOSSES.values()))


@dataclass(frozen=True, slots=True)
class UserModule:
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

    def build(
        self,
        shape: tuple[int, ...],
        classes: int,
        regularization: float,
        objective: Objective | None = None,
    ) -> ModuleModel:
        """Return the model for examples of `shape`; classes: 0 where the target has none.

        objective: what it learns of labels, counts or an event. The code of the entry is executed.
        Raises ConfigError.
        """
        factory, digest = load_module(self.entry, self.arguments, self.folder)
        loss: Loss | None
        if objective is not None:
            loss, outputs = self._loss_of(objective), objective.target.outputs
            classes = 0
        else:
            loss, outputs = self._loss(classes)
        return module_model(
            self.entry,
            factory,
            shape=shape,
            outputs=outputs,
            labels=classes,
            loss=loss,
            digest=digest,
            trainable=self.trainable,
            start=self._start(),
            regularization=regularization,
            trusted=self.trusted,
            objective=objective,
        )

    @property
    def _own_loss(self) -> bool:
        return self.loss is not None and ":" in self.loss

    def _loss_of(self, objective: Objective) -> Loss | None:
        """Return the loss of one example; None: the objective's."""
        kind = objective.target.kind
        if self._own_loss:
            loss: Loss = load_entry(str(self.loss), self.folder, "model.loss").target
            return loss
        if self.loss not in (None, OBJECTIVE_LOSSES[kind]):
            raise ConfigError(
                f"model.loss={self.loss}: the target is of kind {kind}, whose loss is "
                f"{OBJECTIVE_LOSSES[kind]}; leave loss out"
            )
        return None

    def _loss(self, classes: int) -> tuple[Loss, int]:
        """Return the loss of one example, and the module's outputs for one (0: any number)."""
        name = self.loss or ("cross_entropy" if classes else "mse")
        if self._own_loss:
            return load_entry(name, self.folder, "model.loss").target, 0
        if name not in LOSSES:
            raise ConfigError(
                f'model.loss={name!r}: expected {", ".join(_NAMES)} or "module:function", by the '
                "target"
            )
        if (name == "cross_entropy" and not classes) or (name == "mse" and classes):
            if classes:
                kind = "classes"
            else:
                kind = "a number"
            raise ConfigError(f"model.loss={name}: the target is {kind}; leave loss out")
        if name == "bce_with_logits" and classes != 2:
            raise ConfigError(f"model.loss={name}: needs a target of two values, not {classes}")
        return LOSSES[name], classes if name == "cross_entropy" else 1

    def _weights_path(self) -> Path:
        name = str(self.weights)
        folder = self.folder.resolve()
        path = (folder / name).resolve()
        if Path(name).is_absolute() or not path.is_relative_to(folder):
            raise ConfigError(f"model.weights={name!r}: leaves the run file's folder")
        if not path.is_file():
            raise ConfigError(f"model.weights={name!r}: no such file in {self.folder}")
        return path

    def _start(self) -> dict[str, Tensor]:
        if self.weights is None:
            return {}
        try:
            return load_file(self._weights_path())
        except (SafetensorError, OSError) as error:
            raise ConfigError(
                f"model.weights={self.weights!r}: not a safetensors file: {error}"
            ) from error
