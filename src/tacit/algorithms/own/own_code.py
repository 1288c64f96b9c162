"""Calls of a user's own algorithm: what it raises becomes one line that names its place."""

from __future__ import annotations

import traceback
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from pydantic import ValidationError
from torch import Tensor

from tacit.errors import FROM_OWN_CODE, ConfigError, TacitError


@contextmanager
def calling(entry: str, what: str) -> Iterator[None]:
    """Call a user's method in the block.

    Raises ConfigError for what it raises, but a ValidationError as it is.
    """
    try:
        yield
    except (TacitError, ValidationError):
        raise
    except FROM_OWN_CODE as error:
        reason = (str(error).splitlines() or [""])[0]
        frame = traceback.extract_tb(error.__traceback__)[-1]
        raise ConfigError(
            f"algorithm.entry={entry}: {what} failed: {type(error).__name__}: {reason} "
            f"({frame.filename.rpartition('/')[2]}, line {frame.lineno})"
        ) from error


def like_model(entry: str, what: str, moved: object, params: Tensor) -> Tensor:
    """Return what a method gave as a model. Raises ConfigError unless it can be one.

    params: a model (d,), whose shape and type it must have, of finite numbers.
    """
    expected = f"a tensor of {params.dtype} and shape {tuple(params.shape)} was expected"
    if not isinstance(moved, Tensor):
        raise ConfigError(
            f"algorithm.entry={entry}: {what} gave a {type(moved).__name__}; {expected}"
        )
    if (moved.shape, moved.dtype) != (params.shape, params.dtype):
        raise ConfigError(
            f"algorithm.entry={entry}: {what} gave {moved.dtype} and shape {tuple(moved.shape)}; "
            f"{expected}"
        )
    if not torch.isfinite(moved).all():
        raise ConfigError(
            f"algorithm.entry={entry}: {what} gave numbers that are not finite; a smaller step "
            "size may help"
        )
    return moved
