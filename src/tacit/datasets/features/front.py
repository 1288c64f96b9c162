"""A frozen front: a public module that a record goes through once, before anything is trained.

It is a user's own code, with public weights: what a network has learnt of public records. Each
record goes through it alone, as a batch of one, so that it is a function of that record as far as
the module is one of its input; parameters and buffers cannot change. Code that keeps what it saw in
Python's own variables is not found out: a front is trusted code, as any module of the user's.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn

from tacit.datasets.features.basis import digest
from tacit.errors import ConfigError
from tacit.user_code import load_module

FIELD = "data.features.front"


@dataclass(frozen=True, slots=True)
class Front:
    """The step of a run file: the module that `entry` ("module:name", in `folder` or installed)
    gives.

    arguments: what it is called with, as JSON. code: SHA-256 of it. weights: the safetensors file
    that it loads, None where it has none.
    """

    entry: str
    arguments: str
    code: str
    weights: Path | None
    weights_sha256: str
    folder: Path = field(compare=False)

    @property
    def constants(self) -> list[object]:
        """All that it depends on, wherever its files lie."""
        return [self.entry, self.arguments, self.code, self.weights_sha256]

    def shape_of(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """The shape of what it gives for a record of `shape`.

        Raises ConfigError where such a record does not go through, or where one that went through
        before changes what the next one becomes.
        """
        zeros, ones = torch.zeros(shape), torch.ones(shape)
        try:
            first, _, again = (self._through(record) for record in (zeros, ones, zeros))
        except ConfigError:
            raise
        except Exception as error:  # a user's code may raise anything, and these records are public
            why = str(error).splitlines()[0] if str(error) else type(error).__name__
            raise ConfigError(
                f"{FIELD}={self.entry}: a record of shape {list(shape)} does not go through it: "
                f"{why}"
            ) from error
        if not torch.equal(first, again):
            raise ConfigError(
                f"{FIELD}={self.entry}: gives one record two answers; it must be a function of it"
            )
        return tuple(first.shape)

    def of_record(self, record: Tensor) -> Tensor:
        """What it gives for one record (*shape), float32. Raises ConfigError."""
        try:
            return self._through(record)
        except (ArithmeticError, LookupError, RuntimeError, TypeError, ValueError) as error:
            # Its message is a user's own code's, and may say what is in the record.
            raise ConfigError(f"{FIELD}={self.entry}: {type(error).__name__} at a record") from None

    @torch.no_grad()
    def _through(self, record: Tensor) -> Tensor:
        found = _module(self)(record[None])
        if not isinstance(found, Tensor) or found.shape[:1] != (1,) or found.dim() < 2:
            raise ConfigError(f"{FIELD}={self.entry}: expected a tensor (B, …) for a batch of B")
        return found[0].to(torch.float32)


@lru_cache(maxsize=4)
def _module(front: Front) -> nn.Module:
    """The module with its weights, and nothing in it that is trained. Raises ConfigError."""
    made, code = load_module(front.entry, json.loads(front.arguments), front.folder, FIELD)
    if code != front.code:
        raise ConfigError(f"{FIELD}={front.entry}: is other code than the run definition says")
    module = made()
    if front.weights is not None:
        _load(front, module, front.weights)
    return module.train(False).requires_grad_(False)


def _load(front: Front, module: nn.Module, path: Path) -> None:
    if digest(path) != front.weights_sha256:
        raise ConfigError(
            f"data.features.weights={path.name}: is another file than the run definition says"
        )
    try:
        module.load_state_dict(load_file(path))
    except (SafetensorError, OSError, RuntimeError) as error:
        why = str(error).splitlines()[0]
        raise ConfigError(f"data.features.weights={path.name}: {why}") from error
