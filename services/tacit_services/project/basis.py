"""`tacit basis`: mean and principal axes of public records, for the features of a run."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import torch
from torch import Tensor

from tacit.datasets import load
from tacit.datasets.features import Features, apply
from tacit.datasets.features.axes import Axes
from tacit.datasets.features.basis import digest, write
from tacit.datasets.own.arrays import ArraysReader, row_shape
from tacit.datasets.own.rows import Reader
from tacit.datasets.own.values import Bounds, Values
from tacit.errors import ConfigError, PrivacyError
from tacit_services.identity import own_ledgers

_BLOCK = 256  # records at a time
_MOST = 20_000  # numbers of a record: the square of it has to be kept


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a basis is to be made of.

    public: a folder or table of pictures, an npz or safetensors with x, or a published data set's
    name. features: steps before it. size, channels: that pictures are brought to. low, high: bounds
    of x. most: records that are read, at most.
    """

    public: str
    features: Features
    axes: int
    size: tuple[int, int]
    channels: int
    low: float
    high: float
    most: int | None


@dataclass(frozen=True, slots=True)
class Made:
    """What a basis stands for, of how many records, and its SHA-256."""

    says: str
    records: int
    sha256: str


def make(
    out: Path,
    wanted: Wanted,
    root: Path | None,
    home: Path,
    read: Callable[[int], None] = lambda records: None,
) -> Made:
    """Write the basis to `out`. root: where published data lies; home: of the ledgers.

    read: is told how many records have been read.

    Raises ConfigError, DataError, PrivacyError where a ledger knows the file.
    """
    if out.exists():
        raise ConfigError(f"{out}: is there already; nothing is overwritten")
    axes = Axes()
    for block in _records(wanted, root, home):
        left = None if wanted.most is None else wanted.most - axes.count
        if left is not None and left <= 0:
            break
        seen = apply(wanted.features, block[:left])
        if seen[0].numel() > _MOST:
            raise ConfigError(f"--public: a record has {seen[0].numel()} numbers, above {_MOST}")
        axes.see(seen)
        read(axes.count)
    found = axes.found(wanted.axes)
    steps = " and ".join(map(str, wanted.features)) if wanted.features else "no steps"
    says = f"{axes.count} records of {Path(wanted.public).name}, after {steps}"
    write(out, *found, says)
    return Made(says, axes.count, digest(out))


def _records(wanted: Wanted, root: Path | None, home: Path) -> Iterator[Tensor]:
    path = Path(wanted.public).resolve()
    if not path.exists():
        rows = load(wanted.public, "train", root).x
        yield from torch.split(rows, _BLOCK)
        return
    reader = _reader(wanted, path)
    if (owner := own_ledgers.known(str(path), reader.content(path), home)) is not None:
        raise PrivacyError(
            f"--public {path.name}: a ledger knows it (as {owner}); axes of private records tell "
            "of them, at no ε that anybody counts. Use public or made-up ones"
        )
    for block in reader.inputs(path):
        yield from torch.split(torch.from_numpy(block), _BLOCK)


def _reader(wanted: Wanted, path: Path) -> Reader:
    if path.suffix in (".npz", ".safetensors"):
        bounds = Bounds(wanted.low, wanted.high)
        return ArraysReader("x", "y", None, Values(row_shape(path, "x"), bounds, 2))
    if find_spec("PIL") is None:
        raise ConfigError("--public: pictures need Pillow; pip install 'tacit[images]'")
    from tacit.datasets.own.images import ImagesReader

    return ImagesReader(wanted.size, wanted.channels, (), "path", "label", None)
