"""Own pictures: what is read of a folder, what is not, and what is refused without waiting."""

from __future__ import annotations

import os
import random
import unicodedata
import warnings
from dataclasses import replace
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest
from PIL import Image

from tacit.datasets.own.featured import FeaturedReader
from tacit.datasets.own.images import ImagesReader
from tacit.datasets.own.rows import EncodedRows, RowError
from tacit.datasets.own.rows_file import Dealt, rows_of
from tacit.errors import DataError

SIDE = 4
GREY = np.arange(SIDE * SIDE, dtype=np.uint8).reshape(SIDE, SIDE) * 10


class Counting(FeaturedReader):
    """Notes of how many rows features were computed."""

    featured: ClassVar[list[int]] = []

    def seen(self, rows: EncodedRows) -> EncodedRows:
        """Return the features, and note how many rows they are of."""
        self.featured.append(len(rows.y))
        return super().seen(rows)


def reader(*names: str, channels: int = 1) -> ImagesReader:
    return ImagesReader((SIDE, SIDE), channels, names or ("cat", "dog"), "path", "label", None)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a folder with a cat and a dog."""
    for name in ("cat", "dog"):
        (tmp_path / "train" / name).mkdir(parents=True)
        Image.fromarray(GREY).save(tmp_path / "train" / name / "0.png")
    return tmp_path / "train"


def pixels(folder: Path, read: ImagesReader) -> list[np.ndarray]:
    return [x for rows in read.read(folder) for x in rows.x]


def refused(folder: Path, read: ImagesReader) -> str:
    with pytest.raises(RowError) as caught:
        list(read.read(folder))
    assert not {"cat", "bird"} & set(str(caught.value).replace("/", " ").split())
    return caught.value.for_owner


@pytest.mark.parametrize("mode", ["L", "RGB", "RGBA", "P", "LA", "I;16"])
def test_a_grey_picture_is_the_same_in_every_mode(folder: Path, mode: str) -> None:
    image = Image.fromarray(GREY.astype(np.uint16) << 8) if mode == "I;16" else None
    (image or Image.fromarray(GREY).convert(mode)).save(folder / "cat" / "0.png")
    cat, dog = pixels(folder, reader())
    assert np.array_equal(cat, dog)
    assert np.allclose(dog[0], GREY / 255)


def test_pictures_of_other_sizes_are_brought_to_one(folder: Path) -> None:
    Image.new("L", (30, 17), 51).save(folder / "cat" / "0.png")
    cat, _ = pixels(folder, reader())
    assert cat.shape == (1, SIDE, SIDE)
    assert np.allclose(cat, 0.2)


@pytest.mark.parametrize("names", [("кошка", "犬"), ("café", "naïve")])
@pytest.mark.parametrize("form", ["NFC", "NFD"])
def test_classes_have_names_in_any_script(
    tmp_path: Path, names: tuple[str, str], form: str
) -> None:
    for name in names:
        class_folder = tmp_path / unicodedata.normalize(form, name)  # type: ignore[arg-type]
        class_folder.mkdir()
        Image.fromarray(GREY).save(class_folder / "0.png")
    [rows] = reader(*names).read(tmp_path)
    assert sorted(rows.y.tolist()) == [0, 1]


def test_a_class_that_is_not_named_is_said_to_the_owner(folder: Path) -> None:
    (folder / "bird").mkdir()
    Image.fromarray(GREY).save(folder / "bird" / "7.png")
    assert refused(folder, reader()).endswith("in bird/7.png of the data")


def test_a_picture_that_is_in_no_class_is_refused(folder: Path) -> None:
    Image.fromarray(GREY).save(folder / "loose.png")
    assert refused(folder, reader()).endswith("in loose.png of the data")


@pytest.mark.parametrize("content", [b"hello", b"", b"\x89PNG\r\n\x1a\n and no more"])
def test_what_is_no_picture_is_refused(folder: Path, content: bytes) -> None:
    (folder / "cat" / "1.png").write_bytes(content)
    assert "is not a whole picture" in refused(folder, reader())


def test_a_picture_that_unpacks_to_gigabytes_is_refused(folder: Path) -> None:
    Image.new("1", (20_000, 20_000)).save(folder / "cat" / "1.png")
    assert (folder / "cat" / "1.png").stat().st_size < 100_000
    assert "has over data.pixels_max=25,000,000 pixels" in refused(folder, reader())


def test_a_picture_is_refused_by_its_header_and_the_limit_is_a_public_key(folder: Path) -> None:
    # One record whose unpacking takes ten times as long would be seen in the time of the start.
    Image.new("1", (6_000, 5_000)).save(folder / "cat" / "1.png")
    content = (folder / "cat" / "1.png").read_bytes()
    (folder / "cat" / "1.png").write_bytes(content[:60])  # the header is all that is looked at
    assert "data.pixels_max=25,000,000" in refused(folder, reader())
    (folder / "cat" / "1.png").write_bytes(content)
    raised = replace(reader(), pixels_max=30_000_000)
    assert sum(len(rows.y) for rows in raised.read(folder)) == 3
    assert raised.digest() == reader().digest()  # what is kept, and whose ledger, stay the same


def test_pillow_warns_nobody_of_a_picture_that_is_refused(folder: Path) -> None:
    Image.new("1", (9_900, 9_900)).save(folder / "cat" / "1.png")  # Pillow would warn of it
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert "data.pixels_max" in refused(folder, reader())


@pytest.mark.parametrize("kind", ["png", "jpeg", "gif", "bmp", "tiff", "webp", "ppm"])
def test_a_damaged_picture_is_a_line_and_no_traceback(folder: Path, kind: str) -> None:
    chance, path = random.Random(kind), folder / "cat" / "1.png"
    Image.fromarray(GREY).resize((30, 20)).save(path, format=kind)
    intact = path.read_bytes()
    for _ in range(60):
        content = bytearray(intact)
        for _ in range(chance.choice([1, 2, 5])):
            content[chance.randrange(min(len(content), 200))] = chance.randrange(256)
        path.write_bytes(content[: chance.choice([len(content), len(content) // 2])])
        message = ""
        try:
            read = sum(len(rows.y) for rows in reader().read(folder))
        except DataError as error:
            read, message = 3, str(error)
        assert (read, message.count("\n")) == (3, 0)


def test_a_pipe_is_refused_and_not_waited_for(folder: Path) -> None:
    os.mkfifo(folder / "cat" / "1.png")
    assert "no file but a pipe or a device" in refused(folder, reader())


def test_a_link_that_leads_nowhere_or_elsewhere_is_refused(folder: Path) -> None:
    link = folder / "cat" / "1.png"
    link.symlink_to(folder / "gone.png")
    assert "is not a whole picture" in refused(folder, reader())
    link.unlink()
    Image.fromarray(GREY).save(folder.parent / "outside.png")
    link.symlink_to(folder.parent / "outside.png")
    assert "a link that leaves the folder" in refused(folder, reader())


@pytest.mark.parametrize("name", [".DS_Store", "Thumbs.db", "desktop.ini", ".git/x.png"])
def test_what_file_managers_leave_is_passed_over(folder: Path, name: str) -> None:
    (folder / "cat" / name).parent.mkdir(exist_ok=True)
    (folder / "cat" / name).write_text("no picture")
    assert len(pixels(folder, reader())) == 2


def test_features_are_computed_of_an_edges_own_pictures_alone(tmp_path: Path) -> None:
    for number in range(30):
        place = tmp_path / "train" / ("cat", "dog")[number % 2]
        place.mkdir(parents=True, exist_ok=True)
        grey = np.random.default_rng(number).integers(0, 256, (28, 28), np.uint8)
        Image.fromarray(grey).save(place / f"{number}.png")
    read = Counting(
        ImagesReader((28, 28), 1, ("cat", "dog"), "path", "label", None), ("scattering",)
    )
    [everybody] = read.read(tmp_path / "train")
    unsplit = {row.tobytes() for row in everybody.x}
    read.featured.clear()
    edges = [
        rows_of(tmp_path / "train", read, tmp_path / f"edge-{n}", Dealt(n, 3)) for n in range(3)
    ]
    assert sum(read.featured) == 30  # and not 90
    assert {row.numpy().tobytes() for rows in edges for row in rows.x[:-1]} == unsplit
