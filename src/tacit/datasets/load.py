"""Local data files as tensors: MNIST, Fashion-MNIST, USPS, and scikit-learn's bundled digits.

Nothing is fetched. Every file is checked against its published SHA-256 before it is parsed, so that two edges
that say "mnist" hold the same rows in the same order: `partition.shard` and the public test set rely on it.

The only normalisation is a fixed scaling of the pixel range to [0, 1]. A mean or a standard deviation would
be computed from private rows and would leave inside the model without a charge (docs/privacy.md).
"""

from __future__ import annotations

import gzip
import hashlib
import io
import struct
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import torch

from tacit.datasets import features as frozen
from tacit.datasets.features import Features
from tacit.errors import ConfigError, DataError

Split = Literal["train", "test"]
_Bytes = npt.NDArray[np.uint8]
_Raw = npt.NDArray[Any]

_IDX_IMAGES, _IDX_LABELS = 0x803, 0x801  # idx magic: unsigned bytes in 3 dimensions, in 1 dimension
_USPS_UNIT = 1000  # usps.npz holds thousandths
_DIGITS_TRAIN, _DIGITS_MAX = 1437, 16
_DIGITS_SEED = 1797
_SHOWN = 12  # characters of a checksum in a message


@dataclass(frozen=True, slots=True, eq=False)
class Dataset:
    """One table of examples: `x` float32 (n, *shape), pixels in [0, 1] or features, `y` int64 (n,) in [0, classes)."""

    x: torch.Tensor
    y: torch.Tensor
    classes: int
    name: str

    def __len__(self) -> int:
        return len(self.y)

    def take(self, index: torch.Tensor) -> Dataset:
        """The rows named by `index` (int64 (m,)), in that order, copied."""
        return Dataset(self.x[index], self.y[index], self.classes, self.name)


@dataclass(frozen=True, slots=True)
class _Source:
    """What is public about a dataset, and where its bytes are: {split: (file, ...)}, {file: sha256}."""

    shape: tuple[int, ...]
    train_rows: int
    files: dict[Split, tuple[str, ...]]
    sha256: dict[str, str]
    classes: int = 10


def _idx_source(folder: str, sums: tuple[str, str, str, str]) -> _Source:
    train = (f"{folder}/train-images-idx3-ubyte.gz", f"{folder}/train-labels-idx1-ubyte.gz")
    test = (f"{folder}/t10k-images-idx3-ubyte.gz", f"{folder}/t10k-labels-idx1-ubyte.gz")
    sha256 = dict(zip(train + test, sums, strict=True))
    return _Source((1, 28, 28), 60_000, {"train": train, "test": test}, sha256)


# Checksums: the data folder's README.md, which says where each file came from and what was checked.
_SOURCES: dict[str, _Source] = {
    "digits": _Source((1, 8, 8), _DIGITS_TRAIN, {"train": (), "test": ()}, {}),
    "mnist": _idx_source(
        "mnist",
        (
            "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609",
            "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c",
            "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6",
            "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6",
        ),
    ),
    "fashion-mnist": _idx_source(
        "fashion-mnist",
        (
            "3aede38d61863908ad78613f6a32ed271626dd12800ba2636569512369268a84",
            "a04f17134ac03560a47e3764e11b92fc97de4d1bfaf8ba1a3aa29af54cc90845",
            "346e55b948d973a97e58d2351dde16a484bd415d4595297633bb08f03db6a073",
            "67da17c76eaffca5446c3361aaab5c3cd6d1c2608764d35dfb1850b086bf8dd5",
        ),
    ),
    "usps": _Source(
        (1, 16, 16),
        7291,
        {"train": ("usps/usps.npz",), "test": ("usps/usps.npz",)},
        {"usps/usps.npz": "6b97f36298c5e8a9feccb74c61c67b7f0da6545e39449b26ffb829cbd9a7b0d5"},
    ),
}
_DIGITS_SHA256 = "68aea062d35a127749050fa0e52dca09d6569ac08092c925610e0954e172dde2"


def load(
    name: str, split: Split, root: Path | None, rows: torch.Tensor | None = None, features: Features = "none"
) -> Dataset:
    """One split of a named dataset, checked against its SHA-256.

    `root` is the data folder (ignored for "digits", which scikit-learn brings along). With `rows`
    (int64 (m,)) only those rows become float32: an edge then never holds the whole table. `features` replace
    each image by a function of that image alone, computed here and kept in memory only.

    Raises ConfigError for an unknown name and for features that do not fit, DataError for a file that is
    missing, altered or unreadable.
    """
    source = _source(name)
    raw, labels, low, high = _read(name, source, split, root)
    if rows is not None:
        raw, labels = raw[rows.numpy()], labels[rows.numpy()]
    x = torch.from_numpy(raw.astype(np.float32)).sub_(low).div_(high - low)
    y = torch.from_numpy(labels.astype(np.int64))
    x = frozen.apply(features, x.reshape(-1, *source.shape))
    return Dataset(x, y, source.classes, f"{name}/{split}")


def load_labels(name: str, split: Split, root: Path | None) -> torch.Tensor:
    """Only the labels, int64 (n,): what `partition.shard` needs. Raises as `load` does."""
    source = _source(name)
    files = source.files[split]
    if len(files) == 2:  # idx: the labels have a small file of their own
        labels: _Raw = _idx(_checked(source, files[1], root), _IDX_LABELS, files[1])
    else:
        labels = _read(name, source, split, root)[1]
    return torch.from_numpy(labels.astype(np.int64))


def available(name: str, root: Path | None) -> bool:
    """Whether the files of `name` are there (their contents are not checked). Raises ConfigError."""
    files = _source(name).sha256
    return all(root is not None and (root / file).is_file() for file in files)


def shape_of(name: str, features: Features = "none") -> tuple[tuple[int, ...], int]:
    """Shape of one example as `load` gives it, and number of classes, without reading the data. Raises ConfigError."""
    source = _source(name)
    return frozen.shape_with(features, source.shape), source.classes


def train_size(name: str) -> int:
    """Public number of rows of the training split, without reading the data. Raises ConfigError."""
    return _source(name).train_rows


def _source(name: str) -> _Source:
    if name not in _SOURCES:
        raise ConfigError(f"data.dataset = {name!r} is not known; use one of: {', '.join(sorted(_SOURCES))}")
    return _SOURCES[name]


def _read(name: str, source: _Source, split: Split, root: Path | None) -> tuple[_Raw, _Raw, float, float]:
    """Pixels and labels as stored, and the lowest and highest value that a pixel can have."""
    files = source.files[split]
    if name == "digits":
        return *_digits(split), 0, _DIGITS_MAX
    if name == "usps":
        return *_usps(_checked(source, files[0], root), split), -_USPS_UNIT, _USPS_UNIT
    pixels = _idx(_checked(source, files[0], root), _IDX_IMAGES, files[0])
    return pixels, _idx(_checked(source, files[1], root), _IDX_LABELS, files[1]), 0, 255


def _checked(source: _Source, file: str, root: Path | None) -> bytes:
    """The bytes of a data file, after their checksum: what is parsed is what was checked."""
    if root is None:
        raise DataError(f"{file} is needed and no data folder is set; point TACIT_DATA (or --data) to it")
    path = root / file
    try:
        content = path.read_bytes()
    except OSError as error:
        hint = "TACIT_DATA (or --data) must point to the folder that holds it"
        raise DataError(f"cannot read {path} ({error.strerror}); {hint}") from error
    _check_sum(str(path), content, source.sha256[file])
    return content


def _check_sum(what: str, content: bytes, expected: str) -> None:
    found = hashlib.sha256(content).hexdigest()
    if found != expected:
        shown = f"expected sha256 {expected[:_SHOWN]}…, found {found[:_SHOWN]}…"
        raise DataError(f"{what} is not the published file: {shown}; copy it again")


def _idx(content: bytes, magic: int, file: str) -> _Bytes:
    """A gzipped idx file of unsigned bytes: u32 magic, u32 per dimension, then the values (big endian)."""
    try:
        body = gzip.decompress(content)
    except (OSError, EOFError, zlib.error) as error:
        raise DataError(f"{file} is not a whole gzip file: {error}") from error
    dims = magic & 0xFF
    if len(body) < 4 * (1 + dims) or struct.unpack_from(">I", body)[0] != magic:
        raise DataError(f"{file} is not an idx file: it does not begin with {magic:#010x}")
    shape = struct.unpack_from(f">{dims}I", body, 4)
    values = np.frombuffer(body, np.uint8, offset=4 * (1 + dims))
    if values.size != int(np.prod(shape)):
        raise DataError(f"{file} has {values.size} values where its header says {shape}")
    return values.reshape(shape)


def _usps(content: bytes, split: Split) -> tuple[_Raw, _Raw]:
    with np.load(io.BytesIO(content), allow_pickle=False) as arrays:
        return arrays[f"x_{split}"], arrays[f"y_{split}"]


def _digits(split: Split) -> tuple[_Raw, _Raw]:
    """Rows 0 to 1436 (train) or 1437 to 1796 (test) of a fixed permutation of the 1,797 bundled digits."""
    from sklearn.datasets import (
        load_digits,
    )  # here: its import takes a second that other datasets need not pay

    bunch = load_digits()
    table = np.column_stack([bunch.data, bunch.target]).astype(np.uint8)
    _check_sum("scikit-learn's bundled digits", table.tobytes(), _DIGITS_SHA256)
    # RandomState's streams are frozen by numpy's policy: the split is the same on every machine and version.
    order = np.random.RandomState(_DIGITS_SEED).permutation(len(table))
    rows = order[:_DIGITS_TRAIN] if split == "train" else order[_DIGITS_TRAIN:]
    return table[rows, :-1], table[rows, -1]
