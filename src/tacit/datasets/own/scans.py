"""Medical scans as grey pictures: a DICOM's frame, a NIfTI volume's plane, by public constants.

A value is what the scanner stands for (slope and intercept of the file are applied). The public
window maps it: center - width/2 and below becomes 0, center + width/2 and above becomes 1. A file
is bounded by its header before its pixels are decoded.
"""

from __future__ import annotations

import gzip
import logging
import struct
import warnings
import zlib
from dataclasses import dataclass
from importlib.util import find_spec
from io import BufferedReader, BytesIO
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from tacit.regular_file import opened

SUFFIXES = (".dcm", ".dicom", ".nii", ".gz")  # of a file that is asked for by its name
MOST_BYTES = 1 << 29  # of a file, and of a volume unpacked
_DEFLATED = "1.2.840.10008.1.2.1.99"
_NIFTI_AT = 344
_NO_NUMBERS = (128, 2304, 32, 1792, 2048)  # NIfTI's types of colours, and of complex numbers
_NIFTI = b"n+1\0"
_GZIP = b"\x1f\x8b"
Kind = Literal["DICOM", "NIfTI"]
Plane = npt.NDArray[np.float32]
_LOGGERS = ("pydicom", "nibabel.global")
# What pydicom and nibabel end in at damaged files.
_DAMAGED = (
    OSError,
    EOFError,
    ValueError,
    TypeError,
    KeyError,
    IndexError,
    AttributeError,
    ArithmeticError,
    LookupError,
    RuntimeError,
    AssertionError,
    struct.error,
    zlib.error,
)


class ScanError(Exception):
    """A scan that is not read. Its text has no value of the file."""


class LargeScanError(ScanError):
    """A scan has more pixels than are decoded."""


@dataclass(frozen=True, slots=True)
class GreyWindow:
    """The public constants of scans: the values that are told apart, and which plane is read.

    plane: counted from 0; None: the middle one.
    """

    center: float
    width: float
    plane: int | None = None

    def grey(self, values: npt.NDArray[Any]) -> Plane:
        """Return values (height, width) as float32 in [0, 1]; of nan, which is no value, 0."""
        low = self.center - self.width / 2
        scaled = np.clip((values.astype(np.float64) - low) / self.width, 0.0, 1.0)
        return np.nan_to_num(scaled, nan=0.0).astype(np.float32)

    def place(self, planes: int) -> int:
        """Return the plane that is read of so many. Raises ScanError."""
        if self.plane is None:
            return planes // 2
        if self.plane >= planes:
            raise ScanError(f"a scan has no plane {self.plane} (data.slice, from 0)")
        return self.plane


def scan_kind(file: Path) -> Kind | None:
    """Return which kind of scan the file is, by its first bytes; None: it is another picture."""
    with opened(file) as content:
        head = content.read(_NIFTI_AT + 4)
        if head[128:132] == b"DICM":
            return "DICOM"
        if head.startswith(_GZIP):
            content.seek(0)
            try:
                with gzip.open(content) as unpacked:
                    head = unpacked.read(_NIFTI_AT + 4)
            except (EOFError, zlib.error, OSError):
                return None
    if head[_NIFTI_AT:] == _NIFTI:
        return "NIfTI"
    return None


def scan(file: Path, kind: Kind, window: GreyWindow | None, most: int) -> Plane:
    """Return the scan as float32 (height, width) in [0, 1].

    most: pixels of a plane. Raises ScanError.
    """
    module = {"DICOM": "pydicom", "NIfTI": "nibabel"}[kind]
    if find_spec(module) is None:
        raise ScanError(f"a picture is {kind}, which needs {module}; pip install 'tacit[medical]'")
    if window is None:
        raise ScanError(
            f"a picture is {kind}, whose values need a public window; set data.window = [center, "
            "width]"
        )
    for name in _LOGGERS:
        logging.getLogger(name).disabled = True  # a line may quote the header, which names people
    damaged: tuple[type[BaseException], ...] = (*_own_errors(kind), *_DAMAGED)
    try:
        with warnings.catch_warnings(), opened(file) as content:
            warnings.simplefilter("ignore")  # as above
            if kind == "DICOM":
                return _dicom(file, content, window, most)
            return _nifti(content, window, most)
    except damaged as error:
        raise ScanError(f"a {kind} is damaged, or packed in a way that is not read") from error


def _own_errors(kind: Kind) -> tuple[type[Exception], ...]:
    """Return the exceptions of the library that are of no kind of Python's own."""
    if kind == "DICOM":
        from pydicom.errors import BytesLengthException, InvalidDicomError

        return BytesLengthException, InvalidDicomError
    from nibabel.filebasedimages import ImageFileError
    from nibabel.spatialimages import HeaderDataError

    return ImageFileError, HeaderDataError


def _dicom(file: Path, content: BufferedReader, window: GreyWindow, most: int) -> Plane:
    from pydicom import dcmread
    from pydicom.filereader import read_file_meta_info
    from pydicom.pixels import pixel_array

    if content.seek(0, 2) > MOST_BYTES:
        raise LargeScanError
    content.seek(0)
    if read_file_meta_info(file).get("TransferSyntaxUID") == _DEFLATED:  # unpacks to any size
        raise ScanError("a DICOM is deflated as a whole; save it with another transfer syntax")
    header = dcmread(content, stop_before_pixels=True)
    if int(header.Rows) * int(header.Columns) > most:
        raise LargeScanError
    if "ModalityLUTSequence" in header:
        raise ScanError("a DICOM has a table of values (Modality LUT), which is not read")
    if int(header.get("SamplesPerPixel", 1)) != 1:
        raise ScanError("a DICOM has colours; save it as PNG")
    place = window.place(int(header.get("NumberOfFrames", 1) or 1))
    content.seek(0)
    stored = pixel_array(content, index=place)
    if stored.ndim != 2:
        raise ScanError("a DICOM is no plane of pixels")
    slope = float(header.get("RescaleSlope", 1) or 1)
    grey = window.grey(stored * slope + float(header.get("RescaleIntercept", 0) or 0))
    if header.get("PhotometricInterpretation") == "MONOCHROME1":  # the smallest value is white
        return 1 - grey
    return grey


def _nifti(content: BufferedReader, window: GreyWindow, most: int) -> Plane:
    """Return a plane as a reader of pictures has it: of an axial plane the front is up.

    The volume is turned to the axes that are closest to right, front and head.
    """
    from nibabel import Nifti1Image, as_closest_canonical

    head = content.read(2)
    content.seek(0)
    if head == _GZIP:
        with gzip.open(content) as unpacked:
            whole = unpacked.read(MOST_BYTES + 1)
    else:
        whole = content.read(MOST_BYTES + 1)
    if len(whole) > MOST_BYTES:
        raise LargeScanError
    _check_volume(whole)
    image = as_closest_canonical(Nifti1Image.from_stream(BytesIO(whole)))
    shape = image.shape
    if len(shape) not in (2, 3) and not (len(shape) > 3 and set(shape[3:]) == {1}):
        raise ScanError("a NIfTI has several volumes; save one a file")
    if shape[0] * shape[1] > most:
        raise LargeScanError
    if len(shape) == 2:
        plane = np.asarray(image.dataobj)
    else:
        values = image.dataobj[:, :, window.place(shape[2])]
        plane = np.asarray(values).reshape(shape[:2])
    return window.grey(plane.T[::-1])


def _check_volume(whole: bytes) -> None:
    """Raise ScanError where the header says more than the file has, or something that none says."""
    order = "<" if struct.unpack_from("<i", whole)[0] == 348 else ">"
    dimensions, *sizes = struct.unpack_from(f"{order}8h", whole, 40)
    kind, bits = struct.unpack_from(f"{order}2h", whole, 70)
    (offset,) = struct.unpack_from(f"{order}f", whole, 108)
    no_numbers = bits < 8 or kind in _NO_NUMBERS
    if not 2 <= dimensions <= 7 or min(sizes[:dimensions]) < 1 or no_numbers:
        raise ScanError("a NIfTI has no plane of numbers")
    voxels = 1
    for size in sizes[:dimensions]:
        voxels *= size
    if not 348 <= offset <= len(whole) or voxels * bits // 8 > len(whole) - offset:
        raise ScanError("a NIfTI has less than its header says")
