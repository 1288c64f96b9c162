"""Where a worker computes: `TACIT_DEVICE`, tried before anything is read."""

from __future__ import annotations

import torch

from tacit.errors import ConfigError


def tried(device: str) -> str:
    """Return the device, on which a number could be made.

    Raises ConfigError, with torch's reason.
    """
    try:
        torch.zeros(1, device=torch.device(device))
    except (RuntimeError, AssertionError) as error:  # the latter from a torch without CUDA
        raise ConfigError(f"TACIT_DEVICE={device!r}: {str(error).splitlines()[0]}") from error
    return device
