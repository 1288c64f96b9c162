"""What a server of one's own adds to its state, saved by name."""

from __future__ import annotations

from typing import Any, ClassVar

from torch import Tensor

from tacit.algorithms.base.server import Fold
from tacit.errors import ConfigError


class SavedState(Fold):
    """A server whose attributes named in `saved` are part of its state.

    An attribute may be a tensor, a list of tensors, or a value that JSON has. Give it a new value
    in each step, and never write into a tensor: another thread may be storing it.
    """

    saved: ClassVar[tuple[str, ...]] = ()

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
