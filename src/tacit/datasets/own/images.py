"""Own pictures: a folder a class, or a table of path, label and, if it has one, whose a picture is.

A picture becomes x (channels, height, width), float32 in [0, 1], a function of its own file alone.
It is turned by its camera's mark, laid on white where it is transparent, made grey or coloured,
brought to `size`, and divided by 255.
"""

from __future__ import annotations

import hashlib
import json
import struct
import unicodedata
import warnings
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path
from typing import ClassVar

import numpy as np
from PIL import Image, ImageOps

from tacit.datasets.own.file_reading import PIXELS_MAX, digest_of
from tacit.datasets.own.rows import EncodedRows, Floats, RowError, each_its_own, marks_of
from tacit.datasets.own.scans import (
    SUFFIXES,
    GreyWindow,
    Kind,
    LargeScanError,
    ScanError,
    scan,
    scan_kind,
)
from tacit.datasets.own.table_form import MISSING_WORDS
from tacit.datasets.own.unit_ids import unit_ids, unit_text
from tacit.datasets.target import Target
from tacit.errors import DataError
from tacit.known_data.sketch import Marks
from tacit.regular_file import opened

FORMATS = ("PNG", "JPEG", "BMP", "GIF", "TIFF", "WEBP", "PPM")
_BLOCK_BYTES = 1 << 24  # the most bytes of x in a block
_PASSED_OVER = ("Thumbs.db", "desktop.ini")  # left by file managers; hidden names are skipped, too


@dataclass(frozen=True, slots=True)
class Picture:
    """A picture's file. label: its class, as in the folder or the table. unit: whose it is."""

    path: Path
    label: str | None = None
    unit: str | None = None


@dataclass(frozen=True, slots=True)
class ImagesReader:
    """Reads pictures of `size` (height, width) and 1 or 3 `channels`.

    names: the classes, in the order of y. If `path` is a table, its columns `path`, `label` and, if
    it has a name, `unit` are read. Paths are relative to it. pixels_max: the most that a picture
    may have. One with more is refused by its header. window: how the values of scans are read.
    """

    size: tuple[int, int]
    channels: int
    names: tuple[str, ...]
    path: str
    label: str
    unit: str | None
    pixels_max: int = PIXELS_MAX
    window: GreyWindow | None = None

    folders: ClassVar[bool] = True

    @property
    def shape(self) -> tuple[int, ...]:
        """(channels, height, width)."""
        return (self.channels, *self.size)

    @property
    def integers(self) -> None:
        """None: pixels are float32."""

    @property
    def target(self) -> Target:
        """The classes."""
        return Target("classes", self.names)

    def digest(self) -> str:
        """Return SHA-256 of the schema: of all that a row depends on, so not of what is refused."""
        encoded = asdict(self)
        del encoded["pixels_max"]
        if self.window is None:  # as tacit 0.2 had it
            del encoded["window"]
        return hashlib.sha256(json.dumps(encoded, sort_keys=True).encode()).hexdigest()

    def content(self, path: Path) -> str:
        """Return SHA-256 of all pictures, and of the table that names them. Raises DataError."""
        files = [picture.path for picture in self.pictures(path)]
        return digest_of(files if path.is_dir() else [path, *files], _folder(path))

    def read(self, path: Path) -> Iterator[EncodedRows]:
        """Yield the pictures, in bounded memory. Raises DataError."""
        count = 0
        for block in self._blocks(self.pictures(path)):
            x = self._x(block, path)
            y = np.array([self._place(picture, _folder(path)) for picture in block], np.int64)
            units = [picture.unit for picture in block if picture.unit is not None]
            yield EncodedRows(x, y, unit_ids(units, "unit", count) if units else each_its_own(x, y))
            count += len(block)

    def inputs(self, path: Path) -> Iterator[Floats]:
        """Yield x of every picture: of one file, a table's, or all in a folder.

        Raises DataError.
        """
        for block in self._blocks(Picture(file) for file in self.files(path)):
            yield self._x(block, path)

    def marks(self, path: Path) -> Iterator[Marks]:
        """Yield what its pictures hold as they are read, and whose they are. Raises DataError."""
        return marks_of(self.read(path), self.unit)

    def remarks(self, path: Path, *, quoting: bool = False) -> Iterator[str]:
        """Yield nothing: no column is taken for another."""
        return iter(())

    def files(self, path: Path) -> list[Path]:
        """Return the pictures' files, in the order of `inputs`. Raises DataError."""
        if path.is_dir():
            return _files(path)
        if path.suffix.lower() in (*Image.registered_extensions(), *SUFFIXES):
            return [path]
        return [picture.path for picture in self._listed(path, [self.path])]

    def pictures(self, path: Path) -> Iterator[Picture]:
        """Yield the pictures of a folder or a table, in the order of names or rows.

        Raises DataError.
        """
        if not path.is_dir():
            if self.unit is None:
                unit = []
            else:
                unit = [self.unit]
            yield from self._listed(path, [self.path, self.label, *unit])
            return
        if self.unit is not None:
            raise DataError(
                f"{path.name}: is a folder, which cannot say whose a picture is; data.unit needs a "
                "table of path, label and unit"
            )
        for file in _files(path):
            yield Picture(file, file.relative_to(path).parts[0])

    def _listed(self, path: Path, columns: list[str]) -> Iterator[Picture]:
        from tacit.datasets.own.table_file import batches  # pyarrow: only tables need it

        row = 0
        for batch in batches(path, columns):
            for cells in zip(*(batch.column(name).to_pylist() for name in columns), strict=True):
                yield self._picture(path, columns, cells, row)
                row += 1

    def _picture(
        self, path: Path, columns: list[str], cells: tuple[object, ...], row: int
    ) -> Picture:
        texts = [_text(cell) for cell in cells]
        for column, cell in zip(columns, texts, strict=True):
            if cell is None:
                raise RowError(f"{path.name}: column {column!r}: a missing value", row)
        file, *label = texts[:2]
        unit = [unit_text(cell, f"{path.name}: column {self.unit!r}", row) for cell in cells[2:]]
        place = (path.parent / str(file)).resolve()
        if not place.is_relative_to(path.parent.resolve()) or not place.is_file():
            raise RowError(
                f"{path.name}: column {columns[0]!r}: no such picture in the table's folder", row
            )
        return Picture(place, *label, *unit)

    def _blocks(self, pictures: Iterable[Picture]) -> Iterator[list[Picture]]:
        step = max(1, _BLOCK_BYTES // (4 * self.channels * self.size[0] * self.size[1]))
        remaining = iter(pictures)
        while block := list(islice(remaining, step)):
            yield block

    def _x(self, block: list[Picture], path: Path) -> Floats:
        pixels = [self._pixels(picture.path, _folder(path)) for picture in block]
        return np.stack(pixels)

    def _place(self, picture: Picture, folder: Path) -> int:
        names = [_composed(name) for name in self.names]
        label = _composed(picture.label or "")
        if label not in names:
            file = _shown(picture.path, folder)
            raise RowError("a picture's class is not among data.classes", 0, file)
        return names.index(label)

    def _pixels(self, file: Path, folder: Path) -> Floats:
        """Return float32 (channels, height, width) in [0, 1]. Raises RowError."""
        try:
            kind = scan_kind(file)
            if kind is not None:
                return self._scan(file, kind)
            with opened_picture(file, self.pixels_max) as picture:
                image = _plain(picture, "L" if self.channels == 1 else "RGB")
                if image.size != self.size[::-1]:
                    image = image.resize(self.size[::-1], Image.Resampling.BILINEAR)
                pixels = np.asarray(image).reshape(*self.size, self.channels)
        except (TooLargeError, LargeScanError) as error:
            raise RowError(
                f"a picture has over data.pixels_max={self.pixels_max:,} pixels; make it smaller, "
                "or set the key higher: it is public",
                0,
                _shown(file, folder),
            ) from error
        except ScanError as error:
            raise RowError(str(error), 0, _shown(file, folder)) from error
        except FloatsError as error:
            raise RowError(
                "a picture's pixels are floats; save it in 8 or 16 bits, or as arrays with low and "
                "high",
                0,
                _shown(file, folder),
            ) from error
        except _NO_PICTURE as error:
            what = f"a file is not a whole picture ({', '.join(FORMATS)})"
            raise RowError(what, 0, _shown(file, folder)) from error
        return pixels.transpose(2, 0, 1).astype(np.float32) / np.float32(255)

    def _scan(self, file: Path, kind: Kind) -> Floats:
        """Return a scan; its values are not rounded to 8 bits. Raises ScanError."""
        plane = Image.fromarray(scan(file, kind, self.window, self.pixels_max))
        if plane.size != self.size[::-1]:
            plane = plane.resize(self.size[::-1], Image.Resampling.BILINEAR)
        grey = np.clip(np.asarray(plane, dtype=np.float32), 0.0, 1.0)
        return np.repeat(grey[None], self.channels, axis=0)


# What Pillow says of damaged files, by format; a division, an index or a struct out of its place.
_NO_PICTURE = (
    OSError,
    ValueError,
    SyntaxError,
    EOFError,
    IndexError,
    KeyError,
    TypeError,
    AttributeError,
    OverflowError,
    ZeroDivisionError,
    struct.error,
    zlib.error,
)


class FloatsError(ValueError):
    """A picture's pixels are floats, of which nobody says what is black and what is white."""


class TooLargeError(ValueError):
    """A picture has more pixels than are unpacked."""


@contextmanager
def opened_picture(file: Path, most: int) -> Iterator[Image.Image]:
    """Open the picture in `file`; only its header is read, and Pillow's warnings are hidden.

    Raises TooLargeError where it has over `most` pixels, and what Pillow raises.
    """
    with warnings.catch_warnings(), opened(file) as content:
        warnings.simplefilter("ignore")  # about its size, or a camera's notes in it
        try:
            picture = Image.open(content, formats=FORMATS)
        except Image.DecompressionBombError as error:
            raise TooLargeError(str(error)) from error
        with picture:
            if picture.width * picture.height > most:
                raise TooLargeError(f"{picture.width} × {picture.height} pixels")
            yield picture


def _plain(picture: Image.Image, mode: str) -> Image.Image:
    """Return the first picture of the file, upright, in `mode`; 16 bits become 8."""
    upright = ImageOps.exif_transpose(picture)
    if upright.mode == "F":
        raise FloatsError
    if upright.mode.startswith("I"):
        upright = Image.fromarray((np.asarray(upright).clip(0, 65_535) >> 8).astype(np.uint8))
    if upright.has_transparency_data:
        upright = _on_white(upright)
    return upright.convert(mode)


def _on_white(picture: Image.Image) -> Image.Image:
    """Return a picture with transparent parts as it looks on white paper."""
    layered = picture.convert("RGBA")
    return Image.alpha_composite(Image.new("RGBA", layered.size, "white"), layered).convert("RGB")


def _files(folder: Path) -> list[Path]:
    """Return all files in `folder` and below, by name; none that lies elsewhere.

    Raises DataError.
    """
    root = folder.resolve()
    files = []
    for path in sorted(folder.rglob("*")):
        hidden = any(part.startswith(".") for part in path.relative_to(folder).parts)
        if hidden or path.name in _PASSED_OVER:
            continue
        if path.is_dir():
            _refuse_linked(path)
            continue
        if path.is_symlink() and not path.resolve().is_relative_to(root):
            raise RowError("a picture is a link that leaves the folder", 0, path.name)
        if path.exists() and not path.is_file():  # opening a pipe would wait for ever
            raise RowError("a picture is no file but a pipe or a device", 0, path.name)
        files.append(path)
    return files


def _refuse_linked(folder: Path) -> None:
    """Raise RowError for a folder that is a link: what is behind it would be passed over."""
    if folder.is_symlink():
        raise RowError(
            "a folder of pictures is a link, and is not read; put the pictures themselves there",
            0,
            folder.name,
        )


def _shown(file: Path, folder: Path) -> str:
    """Return the file's name in `folder`, for its owner."""
    place = file.resolve()
    root = folder.resolve()
    if place.is_relative_to(root):
        return str(place.relative_to(root))
    return file.name


def _folder(path: Path) -> Path:
    if path.is_dir():
        return path
    return path.parent.resolve()


def _composed(name: str) -> str:
    """Return `name` in Unicode's composed form (NFC).

    A Mac's file names have é as two characters, and look like what the run file has.
    """
    return unicodedata.normalize("NFC", name)


def _text(cell: object) -> str | None:
    if cell is None:
        text = ""
    else:
        text = str(cell).strip()
    if text in MISSING_WORDS:
        return None
    return text
