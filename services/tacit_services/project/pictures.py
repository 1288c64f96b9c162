"""A new run on pictures: classes and size, as a public folder of them has them.

All that is read here becomes public. So the folder must be, or be made up; it is never the private
one.
"""

from __future__ import annotations

from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

from tacit.errors import ConfigError, DataError
from tacit_services.project.draft import (
    AUDP,
    FEDASYNC,
    Draft,
    DraftRequest,
    check_unicode,
    own_model,
    quoted,
    whose_rows,
)

if TYPE_CHECKING:  # Pillow: only pictures need it
    from tacit.datasets.own.images import ImagesReader

_LOOKED_AT = 200  # pictures
_SIDE = 32  # side that large pictures, or ones of many sizes, are scaled to
# sides that are kept as they are
_LARGEST = 64
_LEAST = 8
_OWN_RATE = 1.0
# By channels: what the layer sees, and the step size for features of that length.
_SEEN = 28
_FEATURES = {
    1: 'features = ["scattering", { basis = "strokes" }]  # docs/own-data.md, "Features"',
    3: 'features = ["scattering"]  # docs/own-data.md, "Features"; grey ones have a basis, too',
}
_RATES = {1: 60.0, 3: 6.0}


def draft(request: DraftRequest, folder: Path) -> Draft:
    """Draft a run on pictures like those in `folder`. Raises ConfigError, DataError."""
    targets = (*filter(None, (request.target,)), *request.goal.columns)
    if request.unit is not None or targets:
        key, value = ("unit", request.unit) if request.unit else ("target", targets[0])
        raise ConfigError(
            f"--{key} {value}: a folder of pictures says only their classes; for more, train is a "
            "table of path, label and unit: docs/own-data.md"
        )
    classes = _classes(folder)
    (height, width), channels = _form(folder)
    if request.entry is not None:
        return Draft(
            title="pictures",
            data=_data(request, classes, (height, width), channels),
            model=own_model(request.entry, f"x has shape [{channels}, {height}, {width}]"),
            algorithm=[*FEDASYNC, f"learning_rate = {_OWN_RATE}"],
            nets=None,
            row="picture",
        )
    return Draft(
        title="pictures",
        data=[*_data(request, classes, (_SEEN, _SEEN), channels), _FEATURES[channels]],
        model=['name = "logistic"  # one layer: so few private pictures do not pay for more'],
        algorithm=[*AUDP, f"learning_rate = {_RATES[channels]}"],
        nets=None,
        row="picture",
        clip=0.1,
    )


def files(folder: Path) -> list[Path]:
    """Return the files of all pictures in `folder`, as a run reads them. Raises DataError."""
    return _reader().files(folder)


def content(folder: Path) -> str:
    """Return SHA-256 of all pictures in `folder`, as a ledger has it. Raises DataError."""
    return _reader().content(folder)


def _reader() -> ImagesReader:
    from tacit.datasets.own.images import ImagesReader

    return ImagesReader((1, 1), 1, (), "path", "label", None)


def _classes(folder: Path) -> list[str]:
    if not folder.is_dir():
        raise DataError(f"--images {folder}: no such folder")
    names = [
        path.name for path in folder.iterdir() if path.is_dir() and not path.name.startswith(".")
    ]
    if len(names) < 2:
        raise DataError(f"--images {folder}: expected a folder for each class, two or more")
    for name in names:
        check_unicode("--images: folder", name)
    return sorted(names)


def _form(folder: Path) -> tuple[tuple[int, int], int]:
    """Return (height, width) and channels of the pictures.

    The size is their own where they are small and alike.
    """
    from tacit.datasets.own.file_reading import PIXELS_MAX
    from tacit.datasets.own.images import FORMATS, TooLargeError, opened_picture

    every = files(folder)
    forms: set[tuple[tuple[int, int], str]] = set()
    for file in islice(every, 0, None, max(1, len(every) // _LOOKED_AT)):
        try:
            with opened_picture(file, PIXELS_MAX) as picture:
                forms.add(((picture.height, picture.width), picture.mode))
        except TooLargeError as error:
            raise DataError(
                f"--images: {file.relative_to(folder)}: has over {PIXELS_MAX:,} pixels; make it "
                "smaller (or write the run file, with data.pixels_max)"
            ) from error
        except (OSError, ValueError, SyntaxError) as error:
            raise DataError(
                f"--images: {file.relative_to(folder)}: is no picture of {', '.join(FORMATS)}"
            ) from error
    if not forms:
        raise DataError(f"--images {folder}: has no pictures")
    sizes = {size for size, _ in forms}
    size = next(iter(sizes))
    uniform = len(sizes) == 1 and min(size) >= _LEAST and max(size) <= _LARGEST
    grey = all(mode in ("1", "L", "LA") or mode.startswith("I") for _, mode in forms)
    return size if uniform else (_SIDE, _SIDE), 1 if grey else 3


def _data(
    request: DraftRequest, classes: list[str], size: tuple[int, int], channels: int
) -> list[str]:
    height, width = size
    if request.sites is None:
        what = "a folder a class, dealt to the edges; or a table of path and label"
    else:
        what = "site0 of edge 0, site1 of edge 1, …"
    lines = [
        'kind = "images"',
        *whose_rows(request, f"private pictures: {what}", "pictures"),
        'test = "public"  # public, and of other people',
        f"classes = {quoted(classes)}  # the folders' names",
        f"size = {height if height == width else [height, width]}  # that a picture is brought to",
        f"channels = {channels}  # 1: grey, 3: colours",
    ]
    if not request.apart:
        return [*lines, "# rows = 2000  # public: pictures of an edge; left out, they are counted"]
    return [*lines, "rows = 2000  # public: pictures that a site is taken to have; say your number"]
