"""`tacit basis`: mean and principal axes of public records, for the features of a run."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import torch
from torch import Tensor
from torch.nn import functional

from tacit.datasets import load
from tacit.datasets.features import Features, apply
from tacit.datasets.features.axes import Axes
from tacit.datasets.features.public_basis import digest, write
from tacit.datasets.own.array_values import Bounds, Values
from tacit.datasets.own.arrays import ArraysReader, row_shape
from tacit.datasets.own.rows import Reader
from tacit.errors import ConfigError, PrivacyError
from tacit_services.identity import own_ledgers

_BLOCK = 256  # records at a time
_MOST = 20_000  # numbers of a record: the square of it has to be kept
_SIDE = 28  # of pictures in files, by default
_LUMINANCE = torch.tensor([0.299, 0.587, 0.114])  # of red, green, blue: ITU-R BT.601, as Pillow's


@dataclass(frozen=True, slots=True)
class BasisRequest:
    """The request for a basis: what to make it of.

    public: a folder or table of pictures, an npz or safetensors with x, or a published data set's
    name. features: steps before it. size, channels: that pictures are brought to; None: as they
    are, which only published ones can be. low, high: bounds of x. most: records that are read, at
    most.
    """

    public: str
    features: Features
    axes: int
    size: tuple[int, int] | None
    channels: int | None
    low: float
    high: float
    most: int | None


@dataclass(frozen=True, slots=True)
class Made:
    """A basis that was made: what it stands for, of how many records, and its SHA-256."""

    says: str
    records: int
    sha256: str


def make(
    out: Path,
    request: BasisRequest,
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
    for block in _records(request, root, home):
        if request.most is None:
            remaining = None
        else:
            remaining = request.most - axes.count
        if remaining is not None and remaining <= 0:
            break
        features = apply(request.features, block[:remaining])
        if features[0].numel() > _MOST:
            raise ConfigError(
                f"--public: a record has {features[0].numel()} numbers, above {_MOST}"
            )
        axes.see(features)
        read(axes.count)
    basis = axes.found(request.axes)
    if request.features:
        steps = " and ".join(map(str, request.features))
    else:
        steps = "no steps"
    says = f"{axes.count} records of {Path(request.public).name}, after {steps}"
    write(out, *basis, says)
    return Made(says, axes.count, digest(out))


def _records(request: BasisRequest, root: Path | None, home: Path) -> Iterator[Tensor]:
    path = Path(request.public).resolve()
    if not path.exists():
        for rows in torch.split(load(request.public, "train", root).x, _BLOCK):
            yield _brought(rows, request)
        return
    reader = _reader(request, path)
    if (owner := own_ledgers.known(path, reader.content(path), home)) is not None:
        raise PrivacyError(
            f"--public {path.name}: a ledger knows it (as {owner}); axes of private records tell "
            "of them, at no ε that anybody counts. Use public or made-up ones"
        )
    for block in reader.inputs(path):
        yield from torch.split(torch.from_numpy(block), _BLOCK)


def _brought(rows: Tensor, request: BasisRequest) -> Tensor:
    """Bring published pictures (n, channels, height, width) to the size and channels requested."""
    if rows.dim() != 4 and (request.size or request.channels):
        raise ConfigError(f"--public {request.public}: has no pictures; leave --size out")
    if request.channels == 1 and rows.shape[1] == 3:
        rows = (rows * _LUMINANCE[:, None, None]).sum(1, keepdim=True)
    elif request.channels not in (None, rows.shape[1]):
        raise ConfigError(f"--channels {request.channels}: {request.public} has {rows.shape[1]}")
    if request.size is None:
        return rows
    return functional.interpolate(rows, request.size, mode="bilinear", antialias=True)


def _reader(request: BasisRequest, path: Path) -> Reader:
    if path.suffix in (".npz", ".safetensors"):
        bounds = Bounds(request.low, request.high)
        return ArraysReader("x", "y", None, Values(row_shape(path, "x"), bounds, 2))
    if find_spec("PIL") is None:
        raise ConfigError("--public: pictures need Pillow; pip install 'tacit[images]'")
    from tacit.datasets.own.images import ImagesReader

    size = request.size or (_SIDE, _SIDE)
    channels = request.channels or 1
    return ImagesReader(size, channels, (), "path", "label", None)
