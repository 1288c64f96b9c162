"""DICOM and NIfTI as own pictures: values by a public window, hostile files in a line."""

from __future__ import annotations

import contextlib
import gzip
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tacit.datasets.own.images import ImagesReader
from tacit.datasets.own.scans import GreyWindow
from tacit.errors import DataError
from tests.helpers.extras import needs
from tests.helpers.real_files import dicom, nifti

pytestmark = [needs("pydicom"), needs("nibabel")]
HOUNSFIELD = np.linspace(-1000, 1000, 20 * 16).reshape(20, 16).round()
WINDOW = GreyWindow(40.0, 400.0)
EXPECTED = np.clip((HOUNSFIELD + 160) / 400, 0, 1)


def reader(
    window: GreyWindow | None = WINDOW, channels: int = 1, most: int = 10_000
) -> ImagesReader:
    return ImagesReader((20, 16), channels, ("a", "b"), "path", "label", None, most, window)


def picture(path: Path, of: ImagesReader | None = None) -> np.ndarray:
    [x] = (of or reader()).inputs(path)
    first: np.ndarray = x[0]
    return first


def test_a_dicom_is_read_by_slope_intercept_and_window(tmp_path: Path) -> None:
    stored = ((HOUNSFIELD + 1024) * 2).astype(np.uint16)
    path = dicom(tmp_path / "a.dcm", stored, RescaleSlope=0.5, RescaleIntercept=-1024)
    np.testing.assert_allclose(picture(path)[0], EXPECTED, atol=1e-6)
    coloured = picture(path, reader(channels=3))
    assert coloured.shape == (3, 20, 16)
    np.testing.assert_array_equal(coloured[0], coloured[2])


def test_a_signed_dicom_and_one_whose_smallest_value_is_white(tmp_path: Path) -> None:
    stored = HOUNSFIELD.astype(np.int16)
    np.testing.assert_allclose(picture(dicom(tmp_path / "a.dcm", stored))[0], EXPECTED, atol=1e-6)
    path = dicom(tmp_path / "b.dcm", stored, PhotometricInterpretation="MONOCHROME1")
    np.testing.assert_allclose(picture(path)[0], 1 - EXPECTED, atol=1e-6)


def test_the_plane_is_a_public_constant(tmp_path: Path) -> None:
    frames = np.stack([np.full((20, 16), value, np.int16) for value in (-160, 40, 240)])
    path = dicom(tmp_path / "a.dcm", frames)
    assert picture(path).mean() == pytest.approx(0.5)
    assert picture(path, reader(GreyWindow(40, 400, 2))).mean() == pytest.approx(1.0)
    with pytest.raises(DataError, match="a scan has no plane 3"):
        picture(path, reader(GreyWindow(40, 400, 3)))


def test_a_nifti_is_read_by_its_axes_packed_or_not(tmp_path: Path) -> None:
    volume = np.zeros((16, 20, 3), np.float32)
    volume[:, :, 1] = HOUNSFIELD[::-1].T  # the front is up
    for name in ("a.nii", "a.nii.gz"):
        x = picture(nifti(tmp_path / name, volume))
        np.testing.assert_allclose(x[0], EXPECTED, atol=1e-6)
    flipped = nifti(tmp_path / "b.nii", volume[::-1].copy(), np.diag([-1.0, 1, 1, 1]))
    np.testing.assert_allclose(picture(flipped)[0], EXPECTED, atol=1e-6)


def test_without_a_window_a_scan_is_refused(tmp_path: Path) -> None:
    path = dicom(tmp_path / "a.dcm", HOUNSFIELD.astype(np.int16))
    with pytest.raises(DataError, match=r"a picture is DICOM, whose values need a public window"):
        picture(path, reader(None))


def test_more_pixels_than_are_allowed_are_refused_by_the_header(tmp_path: Path) -> None:
    path = dicom(tmp_path / "a.dcm", HOUNSFIELD.astype(np.int16))
    volume = nifti(tmp_path / "a.nii", np.zeros((16, 20, 3), np.float32))
    for file in (path, volume):
        with pytest.raises(DataError, match=r"over data\.pixels_max=300"):
            picture(file, reader(most=300))


def test_a_nifti_that_says_more_than_it_has_is_refused(tmp_path: Path) -> None:
    whole = bytearray(nifti(tmp_path / "a.nii", np.zeros((16, 20, 3), np.float32)).read_bytes())
    whole[42:48] = np.array([30_000] * 3, "<i2").tobytes()
    (tmp_path / "b.nii").write_bytes(whole)
    (tmp_path / "c.nii.gz").write_bytes(gzip.compress(bytes(whole)))
    for name in ("b.nii", "c.nii.gz"):
        with pytest.raises(DataError, match="less than its header says"):
            picture(tmp_path / name)


@pytest.mark.parametrize("name", ["a.dcm", "a.nii", "a.nii.gz"])
def test_any_damaged_byte_gives_a_picture_or_a_line(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    if name == "a.dcm":
        dicom(path, HOUNSFIELD.astype(np.int16))
    else:
        nifti(path, np.zeros((16, 20, 3), np.float32))
    whole = path.read_bytes()
    generator = np.random.default_rng(7)
    for place in generator.integers(min(len(whole), 900), size=150):
        content = bytearray(whole)
        content[place] = int(generator.integers(256))
        path.write_bytes(bytes(content[: len(content) - int(generator.integers(3))]))
        with contextlib.suppress(DataError):
            assert np.isfinite(picture(path)).all()


def test_the_run_file_states_window_and_slice(tmp_path: Path) -> None:
    from tacit.config.own_arrays import ImagesData

    stated: dict[str, Any] = {
        "kind": "images",
        "train": "scans",
        "rows": 10,
        "classes": ["a", "b"],
        "size": [20, 16],
        "channels": 1,
    }
    plain = ImagesData.model_validate(stated).plain_reader(tmp_path)
    section = ImagesData.model_validate(stated | {"window": [40, 400], "slice": 1})
    windowed = section.plain_reader(tmp_path)
    assert isinstance(windowed, ImagesReader)
    assert windowed.window == GreyWindow(40, 400, 1)
    assert windowed.digest() != plain.digest()
    for bad in ({"slice": 1}, {"window": [40, 0]}, {"window": [40]}):
        with pytest.raises(ValueError, match=r"window"):
            ImagesData.model_validate(stated | bad)


@pytest.mark.parametrize("kind", [np.complex64, np.complex128])
def test_a_nifti_of_complex_numbers_is_refused(tmp_path: Path, kind: type) -> None:
    """Its real part alone would be another picture."""
    path = nifti(tmp_path / "a.nii", np.ones((16, 20, 3), kind))
    with pytest.raises(DataError, match="a NIfTI has no plane of numbers"):
        picture(path)
