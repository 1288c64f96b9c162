"""The server that a user's own algorithm begins with: it answers each update by itself."""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import replace
from typing import Any

from torch import Tensor

from tacit.algorithms.base.clip_history import ClipHistory
from tacit.algorithms.own.own_code import calling, like_model
from tacit.algorithms.own.saved_state import S, SavedState
from tacit.config.definition import Definition
from tacit.errors import ConfigError
from tacit.models import Model
from tacit.privacy.private_sum.counted import share_within
from tacit.protocol.messages import Outgoing, Update


class AlgorithmServer(SavedState[S]):
    """A server whose `step` is the algorithm's rule.

    A rule reads `settings`, the run file's, `params` x_t (float32 (d,)), `version` t, `clip` C,
    `batch` b, `horizon` T, and `tau_max`, the largest staleness lately. It changes `params` and
    `version` by `move`, `clip` for the models that follow (kept within the run's bounds), and the
    attributes of `saved`. Where the edges count, `within` is the share of units within C.

    Guarantee. A server computes on what has been released, so no rule costs ε. It has no clock and
    no randomness of its own, so a replay of the journal gives the same bits.
    """

    def __init__(self, definition: Definition[S], model: Model) -> None:
        super().__init__(definition, model)
        self.max_staleness = definition.algorithm.max_staleness
        self.within = 1.0  # estimated share of units within C, of the latest update
        self._moved = False  # in the present step
        self._beside = definition.traits.beside
        self._clip_bounds = definition.privacy.clip_min, definition.privacy.clip_max
        self._clips = ClipHistory(self.clip)
        self.begin_own(definition)

    @abstractmethod
    def step(self, update: Update, tau: int) -> None:
        """Take in one update.

        update.vector: float32 (d,), the noisy mean gradient, or the distance of local steps.
        update.edge: the edge's name. tau: versions made since the model that it was computed on.
        """

    def move(self, params: Tensor) -> None:
        """Make `params`, finite float32 (d,), the next version of the model; once in a step.

        Raises ConfigError for what is no such tensor, or for the second in one step.
        """
        if self._moved:
            raise ConfigError(f"algorithm.entry={self._entry}: step called move twice")
        self._moved = True
        self.params = like_model(self._entry, "step", params, self.params)
        self.version += 1

    def apply(self, update: Update, tau: int) -> list[Outgoing]:
        """Take one step, and answer the edge with the model."""
        clip = self.clip
        if self._beside:
            self.within = share_within(float(update.vector[-1]), self.clip_at(update.base_version))
            update = replace(update, vector=update.vector[: -self._beside])
        self._moved = False
        with calling(self._entry, "step"):
            self.step(update, tau)
        if not (isinstance(self.clip, float | int) and math.isfinite(self.clip)):
            raise ConfigError(
                f"algorithm.entry={self._entry}: step set clip to {self.clip!r}; a finite number "
                "was expected"
            )
        self.clip = min(max(self.clip, self._clip_bounds[0]), self._clip_bounds[1])
        if self.clip != clip:
            self._clips.change(self.version, self.clip)
        return [Outgoing(update.edge, self.global_model())]

    def clip_at(self, version: int) -> float:
        """Return the C that went out with the model of this version."""
        return self._clips.at(version)

    def schedule(self) -> dict[str, float]:
        """Return C and the step size."""
        return {"clip": self.clip, "learning_rate": self.learning_rate()}

    def state(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """Return the server's state, with the clip norms."""
        tensors, values = super().state()
        return tensors, values | {"clips": self._clips.state(), "within": self.within}

    def restore(self, tensors: dict[str, Tensor], values: dict[str, Any]) -> None:
        """Continue from what `state` returned."""
        super().restore(tensors, values)
        self._clips.restore((version, clip) for version, clip in values["clips"])
        self.within = values["within"]
