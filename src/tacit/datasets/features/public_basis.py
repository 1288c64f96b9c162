"""A projection on public axes with whitening: what is common to all is taken out, what sets records
apart is lifted.

    u = s/|s|;  v = Mᵀ(u - μ);  x = 10·v/|v|

μ (d,) and M (d, k) are public constants in a file. They are mean and principal axes of public
records after the same steps, each axis scaled by (λ + 10⁻⁵)^(-whiten/2). Related: public second
moments as a preconditioner (arXiv:2508.18037).
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import files
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load, save_file
from torch import Tensor

from tacit.errors import ConfigError, DataError

LENGTH = 10.0  # |x|: a bias, whose input is 1, then takes little of a clipped gradient
_FLOOR = 1e-5  # added to a variance
_SAYS = "tacit.basis.2"  # format 1 had entries "format" and "says"
# By name: made by tacit.datasets.features.strokes.
SHIPPED = {"strokes": "strokes.safetensors", "strokes-8": "strokes-8.safetensors"}


@dataclass(frozen=True, slots=True)
class Projection:
    """The step of a run file: `axes` of the basis in the file at `path`, which has this SHA-256."""

    path: Path
    sha256: str
    axes: int
    whiten: float

    @property
    def constants(self) -> list[object]:
        """All that it depends on, wherever its file lies."""
        return [self.sha256, self.axes, self.whiten]

    def shape_of(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """Return (axes,).

        Raises ConfigError if the basis is of other records, or has fewer axes.
        """
        mean, axes = self._constants()
        width = torch.Size(shape).numel()
        if mean.numel() != width:
            raise ConfigError(
                f"data.features: basis {self.path.name} is of {mean.numel()} numbers, here are "
                f"{width}; it is made for the steps before it and the size of the images"
            )
        if self.axes > len(axes):
            raise ConfigError(f"data.features: axes={self.axes}: {self.path.name} has {len(axes)}")
        return (self.axes,)

    def of_record(self, record: Tensor) -> Tensor:
        """Return x (axes,) of one record (*shape), of Euclidean length `LENGTH`."""
        mean, axes = self._constants()
        flat = record.flatten()
        length = torch.linalg.vector_norm(flat)
        projected = torch.mv(axes[: self.axes], (flat / length.clamp_min(1e-12)).sub_(mean))
        return projected.mul_(LENGTH / torch.linalg.vector_norm(projected).clamp_min(1e-12))

    def _constants(self) -> tuple[Tensor, Tensor]:
        return _constants(self.path, self.sha256, self.whiten)


def shipped(name: str) -> Path:
    """Return the file of a basis that comes with tacit."""
    return Path(str(files("tacit.datasets.features") / "bases" / SHIPPED[name]))


def digest(path: Path) -> str:
    """Return SHA-256 of a basis, in hexadecimal. Raises ConfigError."""
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise ConfigError(f"data.features: basis {path}: {error.strerror or error}") from error


def write(path: Path, mean: Tensor, axes: Tensor, variances: Tensor, says: str) -> None:
    """Write a basis: mean (d,), axes (k, d), their variances (k,), and what it stands for.

    The same values make the same bytes, so the same hash.
    """
    content = {
        "mean": mean.to(torch.float32),
        "axes": axes.to(torch.float16).contiguous(),
        "variances": variances.to(torch.float32),
    }
    # One entry: the library writes several in any order, and the same axes are to have one hash.
    save_file(content, path, metadata={_SAYS: says})


def says(path: Path) -> str:
    """Return what a basis stands for. Raises DataError."""
    try:
        with safe_open(path, framework="pt") as file:
            noted = file.metadata() or {}
            return str(noted.get(_SAYS, noted.get("says", "")))
    except (SafetensorError, OSError) as error:
        raise DataError(f"basis {path}: is not one of tacit's: {error}") from error


@lru_cache(maxsize=16)
def _constants(path: Path, sha256: str, whiten: float) -> tuple[Tensor, Tensor]:
    """Return μ (d,) and Mᵀ (k, d).

    Raises ConfigError for a file with another SHA-256, DataError.
    """
    try:
        content = path.read_bytes()  # what is read is what was hashed
    except OSError as error:
        raise ConfigError(f"data.features: basis {path}: {error.strerror or error}") from error
    if hashlib.sha256(content).hexdigest() != sha256:
        raise ConfigError(
            f"data.features: basis {path.name} is another one than the run definition says"
        )
    try:
        mean, axes, variances = (load(content)[name] for name in ("mean", "axes", "variances"))
    except (SafetensorError, KeyError) as error:
        raise DataError(f"basis {path}: is not one of tacit's: {error}") from error
    _check(path, mean, axes, variances)
    scales = (variances + _FLOOR) ** (-whiten / 2)
    return mean, axes.to(torch.float32) * scales[:, None]


def _check(path: Path, mean: Tensor, axes: Tensor, variances: Tensor) -> None:
    shapes = mean.shape, axes.shape, variances.shape
    finite = all(bool(torch.isfinite(tensor).all()) for tensor in (mean, axes, variances))
    if shapes != ((axes.shape[-1],), (len(variances), len(mean)), (len(axes),)) or not finite:
        raise DataError(f"basis {path}: is not one of tacit's: shapes or numbers do not fit")
    if bool((variances < 0).any()):
        raise DataError(f"basis {path}: has a variance below 0")
