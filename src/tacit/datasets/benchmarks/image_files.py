"""Image files as arrays of whole numbers: idx (MNIST, Fashion-MNIST), USPS, CIFAR-10, and the
digits.

The digits come with tacit. They are the test part of "Optical Recognition of Handwritten Digits"
(E. Alpaydin and C. Kaynak, 1998, doi:10.24432/C50P49, CC BY 4.0), the same 1,797 that scikit-learn
ships.

The only normalisation is a fixed scaling of the pixel range to [0, 1]. A mean or a standard
deviation would be computed from private rows and would leave inside the model without a charge
(docs/privacy.md).
"""

from __future__ import annotations

import io
import struct
from pathlib import Path

import numpy as np
import numpy.typing as npt

from tacit.datasets.benchmarks.sources import RawArray, Split, Stored, check_sum, unzipped
from tacit.errors import DataError

_Bytes = npt.NDArray[np.uint8]

# idx magic: unsigned bytes in 3 dimensions, in 1 dimension
IMAGES = 0x803
LABELS = 0x801
_BYTE = 255
_USPS_UNIT = 1000  # usps.npz holds thousandths
_DIGITS = Path(__file__).with_name("digits.npz")  # (1797, 65): 64 pixels and the label
_DIGITS_TRAIN = 1437
_DIGITS_MAX = 16
_DIGITS_SEED = 1797
_DIGITS_SHA256 = "68aea062d35a127749050fa0e52dca09d6569ac08092c925610e0954e172dde2"


def mnist(images: bytes, labels: bytes, files: tuple[str, ...]) -> Stored:
    """Read a pair of idx files, named `files` in errors."""
    return Stored(idx(images, IMAGES, files[0]), idx(labels, LABELS, files[1]), high=_BYTE)


def idx(content: bytes, magic: int, file: str) -> _Bytes:
    """Read a gzipped idx file of unsigned bytes.

    It has u32 magic, u32 per dimension, then the values (big endian).
    """
    body = unzipped(content, file)
    dims = magic & 0xFF
    if len(body) < 4 * (1 + dims) or struct.unpack_from(">I", body)[0] != magic:
        raise DataError(f"{file} is not an idx file: it does not begin with {magic:#010x}")
    shape = struct.unpack_from(f">{dims}I", body, 4)
    values = np.frombuffer(body, np.uint8, offset=4 * (1 + dims))
    if values.size != int(np.prod(shape)):
        raise DataError(f"{file} has {values.size} values where its header says {shape}")
    return values.reshape(shape)


def usps(content: bytes, split: Split) -> Stored:
    """Read USPS, in thousandths from -1000 to 1000."""
    with np.load(io.BytesIO(content), allow_pickle=False) as arrays:
        return Stored(arrays[f"x_{split}"], arrays[f"y_{split}"], -_USPS_UNIT, _USPS_UNIT)


def cifar10(content: bytes, split: Split) -> Stored:
    """Read the balanced subset of 20,000 and 4,000 images (3, 32, 32).

    It is stored as differences along every axis.
    """
    with np.load(io.BytesIO(content), allow_pickle=False) as arrays:
        x = arrays[f"x_{split}_delta"]
        y = arrays[f"y_{split}"]
    for axis in (1, 2, 3):
        x = x.cumsum(axis, dtype=np.uint8)  # modulo 256
    return Stored(x, y, high=_BYTE)


def cifar10_labels(content: bytes, split: Split) -> RawArray:
    """Return the labels only; the pixels stay compressed."""
    with np.load(io.BytesIO(content), allow_pickle=False) as arrays:
        labels: RawArray = arrays[f"y_{split}"]
    return labels


def digits(split: Split) -> Stored:
    """Return rows 0 to 1436 (train) or 1437 to 1796 (test) of the 1,797 digits.

    They are in a fixed permutation.
    """
    with np.load(_DIGITS, allow_pickle=False) as arrays:
        table: RawArray = arrays["rows"]
    check_sum("the bundled digits", table.tobytes(), _DIGITS_SHA256)
    # RandomState's streams are frozen by numpy's policy: the split is the same on every machine and
    # version.
    order = np.random.RandomState(_DIGITS_SEED).permutation(len(table))
    if split == "train":
        rows = order[:_DIGITS_TRAIN]
    else:
        rows = order[_DIGITS_TRAIN:]
    return Stored(table[rows, :-1], table[rows, -1], high=_DIGITS_MAX)
