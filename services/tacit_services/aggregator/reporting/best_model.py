"""The best model that was evaluated, in a file beside the last one.

Guarantee. The file changes by one rename, and its header says which evaluation it is of. So a kill
leaves the best model before or after it. A process that goes on with the run reads it back.
"""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from tacit.models import Model
from tacit.models.stopping import Evaluated
from tacit_services.disk import files
from tacit_services.journal.safetensors_pieces import pieces

BEST = "best.safetensors"


def is_better(evaluation: Evaluated, than: Evaluated) -> bool:
    """Return whether it has the higher accuracy, or the same and the lower loss.

    Of a number: whether it has the lower loss.
    """
    if evaluation.accuracy != than.accuracy and None not in (evaluation.accuracy, than.accuracy):
        return (evaluation.accuracy or 0.0) > (than.accuracy or 0.0)
    return evaluation.loss < than.loss


class BestModel:
    """The file of the best model of one run, in the thread that evaluates."""

    def __init__(self, folder: Path, model: Model, run: str) -> None:
        """run: what tells this run from any other, as its id and fingerprint do."""
        self.path = folder / BEST
        self._model = model
        self._run = run
        self._best: Evaluated | None = None

    def resume(self, version: int) -> None:
        """Go on with the file of the process before this one; at `version` 0 there is none.

        Another run's file, and one that is damaged, of no training or newer, is deleted.
        """
        stored = self.read()
        if stored is not None and 0 < stored[0].version <= version:
            self._best = stored[0]
        else:
            self._best = None
            self.path.unlink(missing_ok=True)

    def offer(self, evaluation: Evaluated, params: Tensor) -> None:
        """Write the model `params` (d,) if it is the best so far. Raises OSError."""
        if self._best is not None and not is_better(evaluation, self._best):
            return
        metadata = {"run": self._run, "evaluation": json.dumps(asdict(evaluation))}
        content = pieces(self._model.unflatten(params.detach().cpu()), metadata)
        files.write_pieces(self.path, content, None)
        self._best = evaluation

    def read(self) -> tuple[Evaluated, Tensor] | None:
        """Return the best evaluation and its model (d,); None: there is no file of this run."""
        try:
            with safe_open(self.path, "pt") as file:
                metadata = file.metadata() or {}
                if metadata.get("run") != self._run:
                    return None
                evaluation = Evaluated(**json.loads(metadata["evaluation"]))
                layers = [file.get_tensor(name).flatten() for name, _ in self._model.layout]
        except (OSError, SafetensorError, KeyError, ValueError, TypeError):
            return None
        return evaluation, torch.cat(layers)
