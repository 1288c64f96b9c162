"""Embeddings that a party has released once for good, on its disk.

One that starts again sends them again, unpaid.
"""

from __future__ import annotations

from pathlib import Path

import safetensors.torch
from safetensors import SafetensorError
from torch import Tensor

from tacit.errors import PrivacyError, other_format
from tacit_services.disk import files
from tacit_services.journal import snapshot_file as state_file

_FORMAT = "1"  # beside the tensor


class KeptEmbeddings:
    """One file for each release, in `folder`, which belongs to the ledger that paid for them."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def get(self, name: str) -> Tensor | None:
        """Return what was released under `name`, (n, e). Raises PrivacyError if unreadable."""
        path = self._path(name)
        try:
            data = path.read_bytes()
            tensors: dict[str, Tensor] = safetensors.torch.load(data)
            if (number := state_file.metadata(data).get("tacit")) != _FORMAT:
                raise ValueError(other_format(number, _FORMAT))
            return tensors["embeddings"]
        except FileNotFoundError:
            return None
        except (OSError, SafetensorError, ValueError, KeyError) as error:
            raise PrivacyError(
                f"embeddings {path}: {error}; without the file they would be paid for anew"
            ) from error

    def put(self, name: str, vectors: Tensor) -> None:
        """Keep `vectors`; they are on disk when it returns.

        Raises PrivacyError when that fails: then they must not be sent.
        """
        path = self._path(name)
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            files.write(
                path,
                safetensors.torch.save({"embeddings": vectors.contiguous()}, {"tacit": _FORMAT}),
                files.SECRET,
            )
        except OSError as error:
            raise PrivacyError(
                f"embeddings {path}: {error.strerror or error}; they were not sent"
            ) from error

    def _path(self, name: str) -> Path:
        return self._folder / f"{name}.safetensors"
