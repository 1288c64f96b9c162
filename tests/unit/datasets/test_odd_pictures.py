"""Pictures and arrays of kinds that were read wrongly without a word: read right, or refused."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image, ImageDraw
from safetensors.torch import save_file

from tacit.datasets.own.array_values import Bounds, Values
from tacit.datasets.own.arrays import ArraysReader
from tacit.datasets.own.images import ImagesReader
from tacit.errors import DataError

READER = ImagesReader((28, 28), 1, ("a", "b"), "path", "label", None)


def drawing(mode: str) -> Image.Image:
    """Return a black stroke on a transparent ground, or on white paper."""
    ground = (0, 0, 0, 0) if mode == "RGBA" else (255, 255, 255)
    picture = Image.new(mode, (28, 28), ground)
    ink = (0, 0, 0, 255) if mode == "RGBA" else (0, 0, 0)
    ImageDraw.Draw(picture).line([4, 4, 20, 20], fill=ink, width=3)
    return picture


def pixels(picture: Image.Image, path: Path) -> np.ndarray:
    picture.save(path)
    [x] = READER.inputs(path)
    first: np.ndarray = x[0, 0]
    return first


def test_a_transparent_drawing_is_as_on_white_paper(tmp_path: Path) -> None:
    on_paper = pixels(drawing("RGB"), tmp_path / "paper.png")
    assert 0 < (on_paper == 0).mean() < 0.5
    for name, picture in (
        ("rgba.png", drawing("RGBA")),
        ("la.png", drawing("RGBA").convert("LA")),
        ("palette.png", drawing("RGBA").quantize(16)),
    ):
        assert pixels(picture, tmp_path / name) == pytest.approx(on_paper, abs=0.01), name


def test_a_palette_and_sixteen_bits_are_read_by_what_is_seen(tmp_path: Path) -> None:
    grey = Image.fromarray(np.tile(np.arange(28, dtype=np.uint8) * 9, (28, 1)))
    wanted = pixels(grey, tmp_path / "grey.png")
    assert pixels(grey.convert("P"), tmp_path / "palette.png") == pytest.approx(wanted, abs=0.03)
    deep = Image.fromarray(np.asarray(grey).astype(np.uint16) * 257)
    assert pixels(deep, tmp_path / "deep.png") == pytest.approx(wanted, abs=0.01)


def test_pictures_of_floats_are_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="pixels are floats; save it in 8 or 16 bits"):
        pixels(Image.fromarray(np.full((28, 28), 0.5, np.float32)), tmp_path / "a.tif")


def test_a_linked_folder_is_not_passed_over(tmp_path: Path) -> None:
    for folder in ("disk", "train/a", "train/b"):
        (tmp_path / folder).mkdir(parents=True)
        drawing("RGB").save(tmp_path / folder / "1.png")
    assert len(READER.files(tmp_path / "train")) == 2
    (tmp_path / "train" / "a" / "more").symlink_to(tmp_path / "disk")
    with pytest.raises(DataError, match="a folder of pictures is a link"):
        READER.files(tmp_path / "train")


def test_a_damaged_picture_by_a_relative_path_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "new").mkdir()
    drawing("RGB").save(tmp_path / "new" / "1.png")
    whole = (tmp_path / "new" / "1.png").read_bytes()
    (tmp_path / "new" / "1.png").write_bytes(whole[: len(whole) // 2])
    monkeypatch.chdir(tmp_path)
    for place in ("new/1.png", "new", "./new/../new/1.png"):
        with pytest.raises(DataError, match="is not a whole picture"):
            list(READER.inputs(Path(place)))


@pytest.mark.parametrize("kind", [torch.bfloat16, torch.float16, torch.float32, torch.uint8])
def test_arrays_of_any_float_are_read(tmp_path: Path, kind: torch.dtype) -> None:
    x = torch.tensor([[0.0, 1.0], [1.0, 0.0], [0.0, 0.0]]).to(kind)
    save_file({"x": x, "y": torch.arange(3) % 2}, tmp_path / "rows.safetensors")
    reader = ArraysReader("x", "y", None, Values((2,), Bounds(0.0, 1.0), 2))
    [part] = reader.read(tmp_path / "rows.safetensors")
    assert part.x.tolist() == x.float().tolist()
