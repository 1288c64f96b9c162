"""The numbers of a graph's weights: a safetensors file, which freezing writes beside it."""

from __future__ import annotations

from safetensors import SafetensorError
from safetensors.torch import load
from torch import Tensor

from tacit.errors import ConfigError

GRAPH_SUFFIX = ".graph.json"
MOST_VALUES = 1 << 32  # bytes of the file


def values_beside(file: str, field: str) -> str:
    """Return the name of the file of numbers beside a graph's `file`. Raises ConfigError.

    field: names the setting in messages.
    """
    if not file.endswith(GRAPH_SUFFIX):
        raise ConfigError(f"{field}={file!r}: expected NAME{GRAPH_SUFFIX}")
    return file.removesuffix(GRAPH_SUFFIX) + ".safetensors"


def tensors_in(content: bytes, where: str) -> dict[str, Tensor]:
    """Return all tensors of a safetensors file's bytes, by name. Raises ConfigError.

    Each has memory of its own, which torch aligns alike wherever it lay in the file.
    """
    try:
        return {name: value.clone() for name, value in load(content).items()}
    except (SafetensorError, KeyError, RuntimeError) as error:  # of a type or shape torch has not
        raise ConfigError(f"{where}: not a safetensors file: {error}") from error
