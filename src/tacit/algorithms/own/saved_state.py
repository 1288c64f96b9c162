"""What the servers of a user's own algorithms share: their settings, and a state saved by name."""

from __future__ import annotations

from typing import Any, ClassVar, Generic, TypeVar

import torch
from torch import Tensor

from tacit.algorithms.base.server import ServerRole
from tacit.algorithms.own.own_code import calling
from tacit.algorithms.own.own_settings import AlgorithmSettings
from tacit.config.definition import Definition
from tacit.errors import ConfigError
from tacit.protocol.messages import Update
from tacit.robust.law import Law

S = TypeVar("S", bound=AlgorithmSettings)


class SavedState(ServerRole, Generic[S]):
    """A server whose attributes named in `saved` are part of its state.

    An attribute may be a tensor, a list of tensors, or a value that JSON has. Give it a new value
    in each step, and never write into a tensor: another thread may be storing it.
    """

    saved: ClassVar[tuple[str, ...]] = ()

    def begin_own(self, definition: Definition[S]) -> None:
        """Take the settings, and let the user's own `begin` follow. Raises ConfigError."""
        self.settings = definition.algorithm
        self.task = definition.algorithm.task(definition.privacy.noise_at)
        self._entry = definition.algorithm.name
        if not isinstance(self.saved, tuple | list):
            raise ConfigError(
                f"algorithm.entry={self._entry}: saved={self.saved!r}: write a tuple of names, as "
                '("first", "second")'
            )
        tacits = [kind for kind in type(self).__mro__ if kind.__module__.startswith("tacit.")]
        for name in self.saved:
            if name in vars(self) or any(name in vars(kind) for kind in tacits):
                raise ConfigError(
                    f"algorithm.entry={self._entry}: saved: {name}: is a name of tacit's own; name "
                    "yours otherwise"
                )
        with calling(self._entry, "begin"):
            self.begin()

    @property
    def has_begun(self) -> bool:
        """Whether a class derived from this one has called `super().__init__`."""
        return "_entry" in vars(self)

    def begin(self) -> None:
        """Give the attributes of `saved` their first values."""

    def learning_rate(self) -> float:
        """Return the present step size, to show to people."""
        return float(getattr(self.settings, "learning_rate", 1.0))

    def base(self, update: Update) -> Tensor:
        """Return 0: an update is a gradient or a distance."""
        return torch.zeros_like(self.params)

    def law(self, update: Update) -> Law:
        """Return the law of the edge's task at the C that went out with its model."""
        clip = self.clip_at(update.base_version)
        return self.task.law(self.laws, update, clip, self.horizon)

    def state(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """Return the server's state, with the attributes of `saved`."""
        tensors, values = super().state()
        own: dict[str, Any] = {}
        for name in self.saved:
            if not hasattr(self, name):
                raise ConfigError(
                    f"algorithm.entry: saved: {name}: the server has no attribute of this name"
                )
            value = getattr(self, name)
            if isinstance(value, Tensor):
                tensors[f"own/{name}"] = value
            elif isinstance(value, list) and all(isinstance(each, Tensor) for each in value):
                own[name] = len(value)
                tensors |= {f"own/{name}/{place}": each for place, each in enumerate(value)}
            else:
                own[name] = value
        return tensors, values | {"own": own}

    def restore(self, tensors: dict[str, Tensor], values: dict[str, Any]) -> None:
        """Continue from what `state` returned."""
        super().restore(tensors, values)
        own = values["own"]
        for name in self.saved:
            if f"own/{name}" in tensors:
                setattr(self, name, tensors[f"own/{name}"])
            elif isinstance(getattr(self, name), list) and isinstance(own[name], int):
                places = range(own[name])
                setattr(self, name, [tensors[f"own/{name}/{place}"] for place in places])
            else:
                setattr(self, name, own[name])
