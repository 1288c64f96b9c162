"""Named local datasets as tensors. Parsers: `images`, `tables`, `text`; public facts: `sources`."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch

from tacit.datasets import features as frozen
from tacit.datasets.benchmarks import image_files, tables
from tacit.datasets.benchmarks.sources import RawArray, Split, Stored, checked, source_of
from tacit.datasets.benchmarks.text import Text, wikitext2
from tacit.datasets.edge_rows import EdgeRows
from tacit.datasets.features import Features
from tacit.errors import ConfigError

_DEFAULT_TEXT = Text()


@dataclass(frozen=True, slots=True, eq=False)
class Dataset:
    """A table of examples: inputs `x`, labels `y`, and what is known of each row.

    x: float32 (n, *shape), pixels in [0, 1] or features. y: int64 (n,) in [0, classes). Of text,
    both are int64 (n, T), numbers of words below `classes`, and an example is one sequence. ids:
    int64 (n,), who a row is: the published number, else its place in the split. groups: int64 (n,),
    what a row naturally belongs to (in Adult an education, in Vehicle a sensor), None if there is
    nothing.
    """

    x: torch.Tensor
    y: torch.Tensor
    classes: int
    name: str
    ids: torch.Tensor | None = None
    groups: torch.Tensor | None = None

    def __len__(self) -> int:
        return len(self.y)

    def for_edge(self, classes: int) -> EdgeRows:
        """Return these rows with the public row, all zeros, after them.

        A row with a label or a word outside [0, classes) becomes zeros, too. An error, now or when
        it is drawn, would reveal the row; so it counts like the public row, clipped to C.
        """
        valid = torch.ones(len(self), dtype=torch.bool)
        for values in (self.x, self.y):
            if not values.is_floating_point():
                inside = (values >= 0) & (values < classes)
                valid &= inside.view(len(self), math.prod(values.shape[1:])).all(1)
        return EdgeRows(_with_public_row(self.x, valid), _with_public_row(self.y, valid))

    def take(self, index: torch.Tensor) -> Dataset:
        """Return the rows numbered by `index` (int64 (m,)), in that order, copied."""
        if self.ids is None:
            ids = None
        else:
            ids = self.ids[index]
        if self.groups is None:
            groups = None
        else:
            groups = self.groups[index]
        return replace(self, x=self.x[index], y=self.y[index], ids=ids, groups=groups)


def _with_public_row(values: torch.Tensor, valid: torch.Tensor) -> torch.Tensor:
    rows = torch.where(valid.view(-1, *[1] * (values.dim() - 1)), values, 0)
    return torch.cat((rows, rows.new_zeros(1, *rows.shape[1:])))


def load(
    name: str,
    split: Split,
    root: Path | None,
    rows: torch.Tensor | None = None,
    features: Features = "none",
    text: Text = _DEFAULT_TEXT,
) -> Dataset:
    """Return one split of a named dataset, checked against its SHA-256.

    root: the data folder (ignored for "digits", which are a part of tacit). rows: int64 (m,), to
    have these rows only, so that an edge never holds the whole table. features: replace each image
    by a function of that image alone, computed here and kept in memory only. text: how wikitext-2
    is cut.

    Raises ConfigError for an unknown name and for features that do not fit, DataError for a file
    that is missing, altered or unreadable.

    >>> digits = load("digits", "train", root=None)
    >>> len(digits), digits.x.shape, digits.classes, digits.name
    (1437, torch.Size([1437, 1, 8, 8]), 10, 'digits/train')
    >>> len(load("digits", "train", None, rows=torch.arange(100)))
    100
    """
    shape, classes = shape_of(name, text=text)
    stored = _read(name, split, root, text)
    if rows is None:
        chosen = np.arange(len(stored.y))
    else:
        chosen = rows.numpy()
    if stored.ids is None:
        ids = chosen
    else:
        ids = stored.ids[chosen]
    x = torch.from_numpy(stored.x[chosen].reshape(-1, *shape))
    if not source_of(name).words:
        x = frozen.apply(
            features, x.to(torch.float32).sub_(stored.low).div_(stored.high - stored.low)
        )
    return Dataset(
        x=x,
        y=torch.from_numpy(stored.y[chosen].astype(np.int64)),
        classes=classes,
        name=f"{name}/{split}",
        ids=torch.from_numpy(ids.astype(np.int64)),
        groups=None
        if stored.groups is None
        else torch.from_numpy(stored.groups[chosen].astype(np.int64)),
    )


def splits(name: str, root: Path | None) -> tuple[Dataset, Dataset]:
    """Return the training rows and the test rows, as `load` gives them."""
    return load(name, "train", root), load(name, "test", root)


def load_labels(
    name: str, split: Split, root: Path | None, text: Text = _DEFAULT_TEXT
) -> torch.Tensor:
    """Return the labels only, int64 (n,), of text (n, T): what `partition.shard` needs.

    Raises as `load`.
    """
    source = source_of(name)
    files = source.files[split]
    if name.endswith("mnist"):  # the labels have a small file of their own
        labels: RawArray = image_files.idx(
            checked(source, files[1], root), image_files.LABELS, files[1]
        )
    elif name == "cifar10":
        labels = image_files.cifar10_labels(checked(source, files[0], root), split)
    else:
        labels = _read(name, split, root, text).y
    return torch.from_numpy(labels.astype(np.int64))


def load_groups(
    name: str, split: Split, root: Path | None, text: Text = _DEFAULT_TEXT
) -> torch.Tensor:
    """Return the natural group of every row, int64 (n,).

    Raises as `load`, and ConfigError where there are none.
    """
    if source_of(name).groups:
        groups = _read(name, split, root, text).groups
    else:
        groups = None
    if groups is None:
        raise ConfigError(
            f"data.partition = 'natural': data.dataset = {name!r} has no natural groups"
        )
    return torch.from_numpy(groups.astype(np.int64))


def available(name: str, root: Path | None) -> bool:
    """Check whether the files of `name` are there; contents are not read. Raises ConfigError."""
    files = source_of(name).sha256
    return all(root is not None and (root / file).is_file() for file in files)


def shape_of(
    name: str, features: Features = "none", text: Text = _DEFAULT_TEXT
) -> tuple[tuple[int, ...], int]:
    """Return the shape of one example as `load` gives it, and the number of classes.

    The data is not read. Raises ConfigError.
    """
    source = source_of(name)
    if not source.words:
        return frozen.shape_with(features, source.shape), source.classes
    return frozen.shape_with(features, (text.sequence,)), text.vocabulary


def train_size(name: str, text: Text = _DEFAULT_TEXT) -> int:
    """Return the public number of rows of the training split, without reading the data.

    Raises ConfigError.
    """
    source = source_of(name)
    if source.words:
        return text.rows(source.words)
    return source.train_rows


def is_text(name: str) -> bool:
    """Check whether a dataset's examples are sequences of words. Raises ConfigError."""
    return source_of(name).words > 0


def group_count(name: str) -> int:
    """Return the public number of natural groups, 0 where there are none. Raises ConfigError."""
    return source_of(name).groups


def party_columns(name: str) -> tuple[int, ...]:
    """Return the columns of each vertical party, guest first; none for an undivided dataset.

    Raises ConfigError.
    """
    return source_of(name).blocks


def _read(name: str, split: Split, root: Path | None, text: Text = _DEFAULT_TEXT) -> Stored:
    """Return one split as its files hold it, after checking their checksums."""
    source = source_of(name)
    files = source.files[split]
    content = [checked(source, file, root) for file in files]
    match name:
        case "digits":
            return image_files.digits(split)
        case "usps":
            return image_files.usps(content[0], split)
        case "cifar10":
            return image_files.cifar10(content[0], split)
        case "adult":
            return tables.adult(content[0], content[1], files)
        case "vehicle":
            return tables.vehicle(content[0], files[0], split)
        case "pd-speech":
            return tables.parkinson(content[0], files[0], split)
        case "credit-default":
            return tables.credit(content[0], files[0], split)
        case "breast-vfl":
            return tables.breast(content[0], content[1], split)
        case "wikitext-2":
            return wikitext2(content[0], content[1], (files[0], files[1]), text)
    return image_files.mnist(content[0], content[1], files)
