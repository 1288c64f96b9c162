"""A frozen front: a public module that a record goes through once, before anything is trained.

It is a user's own code, with public weights: what a network has learnt of public records. Each
record goes through it alone, as a batch of one, so that it is a function of that record as far as
the module is one of its input. A module that draws random numbers, or writes to its parameters or
buffers, is refused. Code that keeps what it saw in Python's own variables is not found out: a front
is trusted code, as any module of the user's.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load
from torch import Tensor, nn

from tacit.errors import FROM_OWN_CODE, ConfigError
from tacit.user_code import load_module

FIELD = "data.features.front"


@dataclass(frozen=True, slots=True)
class Front:
    """The features that a user's own module gives, as the run file states it.

    entry: "module:name", in `folder` or installed. arguments: what it is called with, as JSON.
    code: SHA-256 of it. weights: the safetensors file that it loads, None where it has none.
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
        """Return the shape of the features of a record of `shape`.

        Raises ConfigError where it is no function of one record, as far as trials on public numbers
        tell.
        """
        return _tried(self, shape)

    def of_record(self, record: Tensor) -> Tensor:
        """Return the features of one record (*shape), float32.

        Raises ConfigError, which says nothing of the record; the next record then finds a module
        that is made anew.
        """
        expected = self.shape_of(tuple(record.shape))
        module = _module(self)
        state = _versions(module)
        try:
            output = _through(module, record)
        except FROM_OWN_CODE as error:  # its message may have the record
            _module.cache_clear()
            raise self._wrong(f"{type(error).__name__} at a record") from None
        if output.shape != expected or _versions(module) != state:
            _module.cache_clear()
            raise self._wrong("another shape, or a change of itself, at a record")
        return output

    def _wrong(self, what: str) -> ConfigError:
        return ConfigError(f"{FIELD}={self.entry}: {what}")


@torch.no_grad()
def _through(module: nn.Module, record: Tensor) -> Tensor:
    output = module(record[None])
    if not isinstance(output, Tensor) or output.shape[:1] != (1,) or output.dim() < 2:
        raise ConfigError("expected a tensor (B, …) for a batch of B")
    return output[0].to(torch.float32, copy=True)  # it may be what it was given


@lru_cache(maxsize=16)
def _tried(front: Front, shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return the shape of the features, after trials.

    The same record goes through twice with others between, and through the module made anew.
    """
    chance = torch.Generator().manual_seed(1)
    probe, companion = (torch.rand(shape, generator=chance) for _ in range(2))
    module = _module(front)
    before = _state(module)
    records = probe, companion, torch.zeros(shape), probe
    try:
        first, *_, again = (_through(module, record.clone()) for record in records)
        anew = _through(_build(front, seed=2), probe.clone())
    except FROM_OWN_CODE as error:  # these records are public
        if str(error):
            why = str(error).splitlines()[0]
        else:
            why = type(error).__name__
        raise front._wrong(
            f"a record of shape {list(shape)} does not go through it: {why}"
        ) from error
    if not torch.equal(first, again) or _state(module) != before:
        raise front._wrong("gives one record two answers; it must be a function of it")
    if not torch.equal(first, anew):
        raise front._wrong("is drawn at random when it is made; name its weights, all of them")
    return tuple(first.shape)


def _state(module: nn.Module) -> list[bytes]:
    """Return the bits of parameters and buffers."""
    tensors = (*module.parameters(), *module.buffers())
    return [
        tensor.detach().contiguous().flatten().view(torch.uint8).numpy().tobytes()
        for tensor in tensors
    ]


def _versions(module: nn.Module) -> list[int]:
    """Return how often parameters and buffers have been written to."""
    return [tensor._version for tensor in (*module.parameters(), *module.buffers())]


@lru_cache(maxsize=16)
def _module(front: Front) -> nn.Module:
    return _build(front, seed=1)


def _build(front: Front, seed: int) -> nn.Module:
    """Return the module with its weights, and nothing in it that is trained. Raises ConfigError."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        factory, code = load_module(front.entry, json.loads(front.arguments), front.folder, FIELD)
        module = factory()
    if code != front.code:
        raise front._wrong("is other code than the run definition says")
    if front.weights is not None:
        _load(front, module, front.weights)
    return module.train(False).requires_grad_(False)


def _load(front: Front, module: nn.Module, path: Path) -> None:
    content = path.read_bytes()  # what is loaded is what was hashed
    if hashlib.sha256(content).hexdigest() != front.weights_sha256:
        raise ConfigError(
            f"data.features.weights={path.name}: is another file than the run definition says"
        )
    try:
        module.load_state_dict(load(content))
    except (SafetensorError, RuntimeError) as error:
        why = str(error).splitlines()[0]
        raise ConfigError(f"data.features.weights={path.name}: {why}") from error
