"""Runs one script of MAPA's testbed in its own venv: `in_testbed.py SCRIPT released|repaired`.

Repaired: every socket has TCP_NODELAY, and the server's accountant, which integrates numerically
every thirty steps while everybody waits, measures nothing. Both are set from outside, before the
script begins. In either case it gets two things. One is `torchvision.transforms.ToTensor`, the only
part that it uses of torchvision, whose wheels ask for CUDA. The other is BATCH_SIZE, a name that
the server's script uses and does not define.
"""

import math
import runpy
import socket
import sys
import types
from pathlib import Path

import numpy as np
import torch


def repair() -> None:
    """Mend its two stalls; that torch has one thread is the environment's."""
    connect = socket.create_connection

    def at_once(*arguments, **options):  # type: ignore[no-untyped-def]
        connection = connect(*arguments, **options)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return connection

    socket.create_connection = at_once
    if Path(sys.path[0], "ComputePrivacy.py").is_file():
        import ComputePrivacy  # type: ignore[import-not-found]

        ComputePrivacy.ComputePrivacy = lambda *_: math.nan


def to_tensor() -> types.ModuleType:
    """Return a torchvision with ToTensor alone, of an image of floats (height, width, 1)."""
    torchvision = types.ModuleType("torchvision")
    transforms = types.ModuleType("transforms")

    def make(image: np.ndarray) -> torch.Tensor:
        return torch.from_numpy(image.transpose(2, 0, 1))

    transforms.ToTensor = lambda: make  # type: ignore[attr-defined]
    torchvision.transforms = transforms  # type: ignore[attr-defined]
    sys.modules["torchvision.transforms"] = transforms
    return torchvision


if __name__ == "__main__":
    script, how = sys.argv[1:]
    sys.path[0] = str(Path(script).parent)
    sys.modules["torchvision"] = to_tensor()
    if how == "repaired":
        repair()
    runpy.run_path(script, init_globals={"BATCH_SIZE": 48}, run_name="__main__")
