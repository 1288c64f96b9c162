"""Local data: public facts, checksums, and every way in which a file can be wrong."""

from __future__ import annotations

import gzip
import os
import socket
import struct
from pathlib import Path

import numpy as np
import pytest
import torch

from tacit.datasets import Dataset, available, load, load_groups, load_labels, shape_of, train_size
from tacit.datasets.benchmarks.image_files import IMAGES, LABELS
from tacit.datasets.benchmarks.image_files import idx as read_idx
from tacit.errors import ConfigError, DataError

ROOT = Path(os.environ.get("TACIT_DATA", Path(__file__).parents[4] / "shared" / "data"))
PICTURES = ("digits", "mnist", "fashion-mnist", "usps", "cifar10")
NAMES = (*PICTURES, "adult", "vehicle", "pd-speech", "credit-default", "breast-vfl")


def needs(name: str) -> None:
    if not available(name, ROOT):
        pytest.skip(f"{name} is not in {ROOT}; set TACIT_DATA")


@pytest.fixture
def usps(tmp_path: Path) -> Path:
    """Return a data folder with its own copy of the USPS file, to be damaged."""
    needs("usps")
    (tmp_path / "usps").mkdir()
    (tmp_path / "usps" / "usps.npz").write_bytes((ROOT / "usps" / "usps.npz").read_bytes())
    return tmp_path


@pytest.mark.parametrize("name", NAMES)
def test_public_facts_agree_with_the_data(name: str) -> None:
    needs(name)
    train, test = load(name, "train", ROOT), load(name, "test", ROOT)
    shape, classes = shape_of(name)
    assert len(train) == train_size(name)
    assert train.x.shape == (len(train), *shape)
    assert train.x.dtype == torch.float32
    assert train.y.dtype == torch.int64
    assert (
        set(train.y.tolist())
        == set(test.y.tolist())
        == set(range(classes))
        == set(range(train.classes))
    )
    if name in PICTURES:
        assert (train.x.min().item(), train.x.max().item()) == (0, 1)
    assert bool(torch.isfinite(train.x).all())
    assert (train.name, test.name) == (f"{name}/train", f"{name}/test")
    assert torch.equal(load_labels(name, "test", ROOT), test.y)


def test_digits_is_a_fixed_split_of_every_row() -> None:
    train, test = load("digits", "train", None), load("digits", "test", None)
    assert (len(train), len(test)) == (1437, 360)
    again = load("digits", "train", None)
    assert torch.equal(train.x, again.x)
    assert torch.equal(train.y, again.y)
    # The first labels of both halves, as recorded: the split may never move (partition.py says
    # why).
    assert train.y[:8].tolist() == [5, 0, 0, 0, 1, 3, 6, 5]
    assert test.y[:8].tolist() == [8, 9, 9, 2, 2, 8, 3, 5]
    rows = {tuple(row) for half in (train, test) for row in half.x.flatten(1).tolist()}
    assert len(rows) == 1797  # no image is in both halves, or twice


def test_usps_values_are_the_thousandths_mapped_to_the_unit_interval() -> None:
    needs("usps")
    with np.load(ROOT / "usps" / "usps.npz", allow_pickle=False) as arrays:
        expected = (arrays["x_test"][:5].astype(np.float64) / 1000 + 1) / 2
    assert np.allclose(load("usps", "test", ROOT).x[:5].flatten(1).numpy(), expected, atol=1e-7)


def test_mnist_test_labels_have_the_known_beginning() -> None:
    needs("mnist")
    assert load_labels("mnist", "test", ROOT)[:10].tolist() == [7, 2, 1, 0, 4, 1, 4, 9, 5, 9]


def test_rows_selects_before_scaling_what_take_selects_after() -> None:
    rows = torch.tensor([5, 3, 3, 100])
    loaded = load("digits", "train", None, rows=rows)
    taken_after = load("digits", "train", None).take(rows)
    assert torch.equal(loaded.x, taken_after.x)
    assert torch.equal(loaded.y, taken_after.y)
    assert len(load("digits", "train", None, rows=rows[:0])) == 0


def test_take_keeps_name_and_classes() -> None:
    data = Dataset(torch.zeros(3, 2), torch.tensor([0, 1, 2]), 3, "toy/train")
    part = data.take(torch.tensor([2, 0]))
    assert (part.y.tolist(), part.classes, part.name) == ([2, 0], 3, "toy/train")
    assert part.ids is None


def test_ids_and_groups_follow_their_rows() -> None:
    rows = torch.tensor([7, 2, 2])
    some = load("digits", "train", None, rows=rows)
    assert some.ids is not None
    assert some.ids.tolist() == [7, 2, 2]
    part = Dataset(some.x, some.y, 10, "toy", some.ids, some.ids % 5).take(torch.tensor([1, 0]))
    assert part.ids is not None
    assert part.groups is not None
    assert (part.ids.tolist(), part.groups.tolist()) == ([2, 7], [2, 2])


def test_natural_groups_are_asked_for_where_there_are_some() -> None:
    with pytest.raises(
        ConfigError, match=r"data\.partition = 'natural'.*'digits' has no natural groups"
    ):
        load_groups("digits", "train", None)


def test_nothing_is_fetched(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket, "socket", None)
    assert len(load("digits", "test", None)) == 360


@pytest.mark.parametrize("ask", [shape_of, train_size, lambda name: load(name, "train", None)])
def test_unknown_name_names_the_field_and_the_known_ones(ask: object) -> None:
    with pytest.raises(
        ConfigError,
        match=r"data\.dataset = 'cifar'.*adult, .*digits, fashion-mnist, mnist.*wikitext-2",
    ):
        ask("cifar")  # type: ignore[operator]


def test_available_looks_for_every_file(tmp_path: Path) -> None:
    assert available("digits", None)
    assert not available("mnist", None)
    assert not available("usps", tmp_path)


def test_no_folder_says_how_to_name_one() -> None:
    with pytest.raises(
        DataError, match=r"mnist/train-images-idx3-ubyte\.gz.*TACIT_DATA \(or --data\)"
    ):
        load("mnist", "train", None)


def test_missing_file_says_where_it_was_looked_for(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"usps/usps\.npz \(No such file.*TACIT_DATA \(or --data\)"):
        load("usps", "train", tmp_path)


def test_one_altered_byte_is_refused(usps: Path) -> None:
    assert len(load("usps", "train", usps)) == 7291
    file = usps / "usps" / "usps.npz"
    content = bytearray(file.read_bytes())
    content[1000] ^= 1
    file.write_bytes(content)
    with pytest.raises(
        DataError, match=r"usps\.npz is not.*sha256 6b97f36298c5…, found [0-9a-f]{12}…"
    ):
        load("usps", "train", usps)
    assert available("usps", usps)  # it looks at presence only


def test_truncated_file_is_refused(usps: Path) -> None:
    file = usps / "usps" / "usps.npz"
    file.write_bytes(file.read_bytes()[:-100])
    with pytest.raises(DataError, match="expected sha256"):
        load("usps", "test", usps)


def idx(magic: int, *dims: int, values: bytes) -> bytes:
    return struct.pack(f">I{len(dims)}I", magic, *dims) + values


def test_idx_round_trip() -> None:
    archive = gzip.compress(idx(IMAGES, 2, 1, 3, values=bytes(range(6))))
    assert read_idx(archive, IMAGES, "f").tolist() == [[[0, 1, 2]], [[3, 4, 5]]]


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (gzip.compress(idx(LABELS, 3, values=b"abc"), mtime=0)[:-4], "not a whole gzip file"),
        (b"not gzip at all", "not a whole gzip file"),
        (gzip.compress(b"x" * 64, mtime=0)[:12] + b"\xff" * 20, "not a whole gzip file"),
        (gzip.compress(idx(IMAGES, 3, 1, 1, values=b"abc"), mtime=0), "not an idx file"),
        (gzip.compress(b"\x00\x00", mtime=0), "not an idx file"),
        (
            gzip.compress(idx(LABELS, 4, values=b"abc"), mtime=0),
            "has 3 values where its header says",
        ),
    ],
)
def test_bad_idx_is_one_line_that_names_the_file(content: bytes, reason: str) -> None:
    with pytest.raises(DataError, match=rf"^mnist/labels\.gz (is )?{reason}"):
        read_idx(content, LABELS, "mnist/labels.gz")
