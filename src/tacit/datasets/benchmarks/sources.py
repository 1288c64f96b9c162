"""Published data sets: the public facts about each, its files' SHA-256, and their checked bytes.

Nothing is fetched. A file is checked before it is parsed, so that two edges with "mnist" hold the
same rows in the same order. `partition.shard` and the public test set rely on it.
"""

from __future__ import annotations

import gzip
import hashlib
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from tacit.errors import ConfigError, DataError
from tacit.regular_file import opened

Split = Literal["train", "test"]
RawArray = npt.NDArray[Any]
RowNumbers = npt.NDArray[np.int64]

_SHOWN = 12  # characters of a checksum in a message


class Stored(NamedTuple):
    """One split as its file has it: x (n, …), of which `low` and `high` become 0 and 1, and y (n,).

    groups, ids: int64 (n,), what a row naturally belongs to (an education, a sensor) and who it is,
    where known.
    """

    x: RawArray
    y: RawArray
    low: float = 0
    high: float = 1
    groups: RowNumbers | None = None
    ids: RowNumbers | None = None


@dataclass(frozen=True, slots=True)
class BenchmarkSource:
    """The public facts about a dataset, and where its bytes are.

    These are {split: (file, ...)} and {file: sha256}. groups: how many natural groups its rows fall
    into, 0 for none. words: of running text, where it is that; its shape and rows then depend on
    how it is cut (`text.Text`). blocks: columns of each party, where it was published so.
    """

    shape: tuple[int, ...]
    train_rows: int
    files: dict[Split, tuple[str, ...]]
    sha256: dict[str, str]
    classes: int = 10
    groups: int = 0
    words: int = 0
    blocks: tuple[int, ...] = ()


def _idx_source(folder: str, sums: tuple[str, str, str, str]) -> BenchmarkSource:
    train = (f"{folder}/train-images-idx3-ubyte.gz", f"{folder}/train-labels-idx1-ubyte.gz")
    test = (f"{folder}/t10k-images-idx3-ubyte.gz", f"{folder}/t10k-labels-idx1-ubyte.gz")
    sha256 = dict(zip(train + test, sums, strict=True))
    return BenchmarkSource((1, 28, 28), 60_000, {"train": train, "test": test}, sha256)


def _same_files(
    shape: tuple[int, ...],
    train_rows: int,
    sha256: dict[str, str],
    *,
    classes: int = 10,
    groups: int = 0,
    blocks: tuple[int, ...] = (),
) -> BenchmarkSource:
    """Return a source of which every file holds both splits."""
    files = tuple(sha256)
    return BenchmarkSource(
        shape, train_rows, {"train": files, "test": files}, sha256, classes, groups, blocks=blocks
    )


# The vocabulary is always that of the first.
_WIKITEXT = ("wikitext-2/train.txt.gz", "wikitext-2/test.txt.gz")

# docs/data.md says where each file came from.
_SOURCES: dict[str, BenchmarkSource] = {
    "digits": BenchmarkSource((1, 8, 8), 1437, {"train": (), "test": ()}, {}),
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
    "usps": _same_files(
        (1, 16, 16),
        7291,
        {"usps/usps.npz": "6b97f36298c5e8a9feccb74c61c67b7f0da6545e39449b26ffb829cbd9a7b0d5"},
    ),
    "cifar10": _same_files(
        (3, 32, 32),
        20_000,
        {
            "cifar10/cifar10_20k_4k.npz": (
                "a9b0440a6e37c93f8ce362c6029233ac3fbfcc8fd5d11fedb698c97fab01d78f"
            )
        },
    ),
    "adult": BenchmarkSource(
        (102,),
        32_561,
        {
            "train": ("adult/adult.names.gz", "adult/adult.data.gz"),
            "test": ("adult/adult.names.gz", "adult/adult.test.gz"),
        },
        {
            "adult/adult.names.gz": (
                "1e8ee543cb81fc9590b1a20392e41f28eab971ac9dbe519269cdf7d4658b62f2"
            ),
            "adult/adult.data.gz": (
                "171e93e0be014947c678f8e0fd17485ec99e8c273d1a7a0b506bb9139e95800b"
            ),
            "adult/adult.test.gz": (
                "88304f2ff4ca392efdb76452aa377e96dde27622ff90070ed0913c464bb7aa32"
            ),
        },
        classes=2,
        groups=16,
    ),
    "vehicle": _same_files(
        (100,),
        1496,
        {
            "vehicle/mytrain.json.gz": (
                "624add08981efda835bdccd60e716e9ee7f30520e00d0c6da04f78bad0dd39a8"
            )
        },
        classes=2,
        groups=23,
    ),
    "pd-speech": _same_files(
        (753,),
        203,
        {
            "pd-speech/pd_speech_features.csv.gz": (
                "f87205a3cd5c50e315d95490d7e32cc80c0b46973ca3ea2cfd1eda9986ccabfe"
            )
        },
        classes=2,
    ),
    "credit-default": _same_files(
        (23,),
        24_001,
        {
            "credit-default/UCI_Credit_Card.csv.gz": (
                "1a38cb2bf6c1b6d9a3833cd399d4164855da19713996f542715331c62ccb538f"
            )
        },
        classes=2,
        blocks=(13, 10),
    ),
    "breast-vfl": _same_files(
        (30,),
        456,
        {
            "breast-vfl/breast_hetero_guest.csv": (
                "6b258b1514181bd645ea37a9ba3795a014075f465dfa51af08ecf19f068baeae"
            ),
            "breast-vfl/breast_hetero_host.csv": (
                "8f9edc41763176ba12598f86646a177e347c1b85b5549896044f9532d964ea6f"
            ),
        },
        classes=2,
        blocks=(10, 20),
    ),
    "wikitext-2": BenchmarkSource(
        (),
        0,
        {"train": (_WIKITEXT[0], _WIKITEXT[0]), "test": _WIKITEXT},
        {
            _WIKITEXT[0]: "0dfccdbaa1b65cee8fe0caee5f086de10dfb53a9d10266efde2df0efbf7c5ac3",
            _WIKITEXT[1]: "a7f70ace9020b0d6daf21ea9f7666bc824aae4e8a3d5d7a1bd7820b2110da32d",
        },
        classes=0,
        groups=600,
        words=2_088_628,
    ),
}


def source_of(name: str) -> BenchmarkSource:
    """Return the public facts of dataset `name`. Raises ConfigError for an unknown one."""
    if name not in _SOURCES:
        raise ConfigError(
            f"data.dataset = {name!r} is not known; use one of: {', '.join(sorted(_SOURCES))}"
        )
    return _SOURCES[name]


def checked(source: BenchmarkSource, file: str, root: Path | None) -> bytes:
    """Return the bytes of a data file, whose checksum is right: parsed is what was checked.

    Raises DataError.
    """
    if root is None:
        raise DataError(
            f"{file} is needed and no data folder is set; point TACIT_DATA (or --data) to it"
        )
    path = root / file
    try:
        with opened(path) as stored:
            content = stored.read()
    except OSError as error:
        hint = "TACIT_DATA (or --data) must point to the folder that holds it"
        raise DataError(f"cannot read {path} ({error.strerror}); {hint}") from error
    check_sum(str(path), content, source.sha256[file])
    return content


def check_sum(what: str, content: bytes, expected: str) -> None:
    """Raise DataError, naming `what`, unless the SHA-256 of `content` is `expected`."""
    sha256 = hashlib.sha256(content).hexdigest()
    if sha256 != expected:
        mismatch = f"expected sha256 {expected[:_SHOWN]}…, found {sha256[:_SHOWN]}…"
        raise DataError(f"{what} is not the published file: {mismatch}; copy it again")


def unzipped(content: bytes, file: str) -> bytes:
    """Return the content of a gzip file. Raises DataError, naming `file`."""
    try:
        return gzip.decompress(content)
    except (OSError, EOFError, zlib.error) as error:
        raise DataError(f"{file} is not a whole gzip file: {error}") from error
