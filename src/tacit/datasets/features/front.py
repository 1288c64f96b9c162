"""A frozen front: a public module that a record goes through once, before anything is trained.

It is a user's own code, with public weights: what a network has learnt of public records. It
becomes a graph when it is first used, and private records go through that graph alone
(`graph_front`). Code that cannot become one is refused, unless the owners of the records trust it.
Then each record goes through the module alone, as a batch of one. That its features are a function
of that record is tried on public ones: a module that draws random numbers, or writes to its
parameters or buffers, is refused. Code that keeps what it saw in Python's own variables is not
found out.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field
from functools import lru_cache, partial
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load
from torch import Tensor, nn

from tacit.datasets.features.graph_front import FIELD, NO_TARGET, FrozenFront
from tacit.errors import FROM_OWN_CODE, ConfigError
from tacit.graphs.comparison import OTHER_STEPS, alike, far_rows
from tacit.graphs.freezing import Frozen, freeze
from tacit.graphs.graph_check import renamed
from tacit.graphs.graph_file import Example
from tacit.user_code import load_module


@dataclass(frozen=True, slots=True)
class Front:
    """The features that a user's own module gives, as the run file states it.

    entry: "module:name", in `folder` or installed. arguments: what it is called with, as JSON.
    code: SHA-256 of it. weights: the safetensors file that it loads, None where it has none.
    trusted: whether code that cannot become a graph may run as it is.
    """

    entry: str
    arguments: str
    code: str
    weights: Path | None
    weights_sha256: str
    folder: Path = field(compare=False)
    trusted: bool = False

    @property
    def constants(self) -> list[object]:
        """All that it depends on, wherever its files lie."""
        return [self.entry, self.arguments, self.code, self.weights_sha256]

    def shape_of(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """Return the shape of the features of a record of `shape`.

        Raises ConfigError where it is no function of one record, or cannot become a graph and is
        not trusted.
        """
        return _ready(self, shape).shape

    def of_record(self, record: Tensor) -> Tensor:
        """Return the features of one record (*shape), float32.

        Of trusted code it raises ConfigError, which says nothing of the record.
        """
        return _ready(self, tuple(record.shape)).features(record)

    def frozen(self, shape: tuple[int, ...]) -> Frozen:
        """Return its graph for records of `shape`, which gives what its code gives. Its code runs.

        Raises ConfigError.
        """
        _tried(self, shape)
        module = _module(self)
        example = Example(shape=shape, dtype="float32", below=None)
        graph = freeze(self._where, module, example, NO_TARGET, trainable=())
        with renamed(self._where):
            front = FrozenFront(graph.checked, graph.values)
        public = torch.stack(_public(shape))
        for row in (*public, *far_rows(public, None)):
            if not alike(front.features(row), partial(_through, module, row)):
                raise self.wrong(OTHER_STEPS)
        return graph

    def wrong(self, what: str) -> ConfigError:
        """Return the error that says what is wrong with it."""
        return ConfigError(f"{self._where}: {what}")

    @property
    def _where(self) -> str:
        return f"{FIELD}={self.entry}"


@dataclass(frozen=True, slots=True)
class _TrustedFront:
    """A front whose code runs on records as it is. shape: of the features of one."""

    front: Front
    shape: tuple[int, ...]

    def features(self, record: Tensor) -> Tensor:
        """Return the features of one record (*shape), float32.

        Raises ConfigError, which says nothing of the record; the next record then finds a module
        that is made anew.
        """
        module = _module(self.front)
        state = _versions(module)
        try:
            output = _through(module, record)
        except FROM_OWN_CODE as error:  # its message may have the record
            _module.cache_clear()
            raise self.front.wrong(f"{type(error).__name__} at a record") from None
        if output.shape != self.shape or _versions(module) != state:
            _module.cache_clear()
            raise self.front.wrong("another shape, or a change of itself, at a record")
        return output


@lru_cache(maxsize=16)
def _ready(front: Front, shape: tuple[int, ...]) -> FrozenFront | _TrustedFront:
    """Return what a record of `shape` goes through, after trials on public ones.

    Raises ConfigError.
    """
    features = _tried(front, shape)
    try:
        graph = front.frozen(shape)
    except ConfigError as error:
        if front.trusted:
            return _TrustedFront(front, features)
        raise ConfigError(f'{error}; or say control_flow = "trusted" in this step') from error
    return FrozenFront(graph.checked, graph.values)


@torch.no_grad()
def _through(module: nn.Module, record: Tensor) -> Tensor:
    output = module(record[None])
    if not isinstance(output, Tensor) or output.shape[:1] != (1,) or output.dim() < 2:
        raise ConfigError("expected a tensor (B, …) for a batch of B")
    return output[0].to(torch.float32, copy=True)  # it may be what it was given


def _public(shape: tuple[int, ...]) -> list[Tensor]:
    """Return two public records of `shape`."""
    chance = torch.Generator().manual_seed(1)
    return [torch.rand(shape, generator=chance) for _ in range(2)]


@lru_cache(maxsize=16)
def _tried(front: Front, shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return the shape of the features, after trials.

    The same record goes through twice with others between, and through the module made anew.
    """
    probe, companion = _public(shape)
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
        raise front.wrong(
            f"a record of shape {list(shape)} does not go through it: {why}"
        ) from error
    if not torch.equal(first, again) or _state(module) != before:
        raise front.wrong("gives one record two answers; it must be a function of it")
    if not torch.equal(first, anew):
        raise front.wrong("is drawn at random when it is made; name its weights, all of them")
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
        raise front.wrong("is other code than the run definition says")
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
