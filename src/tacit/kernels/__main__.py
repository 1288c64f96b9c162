"""Fills the cache of compiled functions: `python -m tacit.kernels`, for this processor.

With `--every-level` for all of its kind, where an image is built that may run elsewhere. Nothing is
run, so that can be done on any of them.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import Any

import numba
import numpy as np

from tacit.kernels import jit, network, noise, sums, tape
from tacit.kernels.layout import LAYER
from tacit.kernels.loading import described
from tacit.kernels.tape_layout import OPERATION

_F32, _F64 = np.zeros(1, np.float32), np.zeros(1, np.float64)
_I32, _I64, _U64 = np.zeros(1, np.int32), np.zeros(1, np.int64), np.zeros(1, np.uint64)
_ROWS, _PAIRS, _USED = np.zeros((1, 1), np.float32), np.zeros((2, 1)), np.zeros(1, np.bool_)
_WORDS = np.frombuffer(bytes(8), dtype="<u8")  # read only, as a key stream's
_PLAN, _TAPE = np.zeros(1, LAYER), np.zeros(1, OPERATION)
_TEXTS = np.zeros((1, 1), np.int64)

# Every function that is called from Python, with arguments of the types that it is given.
_CALLS: tuple[tuple[Callable[..., Any], tuple[Any, ...]], ...] = (
    (noise.places, (_WORDS, _U64, _I32, 48, _I64)),
    (noise.normals, (_WORDS, _PAIRS, _F64)),
    (noise.add_on_grid, (_F64, 1.0, 1.0, _F64)),
    (sums.add_integers, (_ROWS, _F32, _USED, 1, _I32)),
    (sums.clip_integers, (_ROWS, 1.0, 1.0, 1, _I32)),
    (sums.clip_floats, (_ROWS, _USED, 1.0, _F64)),
    (sums.square, (_F32,)),
    (sums.factor_of, (_F64, 1.0)),
    (sums.add_part, (_F32, 1.0, 1.0, _I32)),
    (sums.add_part_floats, (_F32, 1.0, _F64)),
    (sums.outer_integers, (_ROWS, _ROWS, _I64, 1.0, 1.0, 1, _I32)),
    (sums.outer_floats, (_ROWS, _ROWS, _I64, _USED, 1.0, _F64)),
    (network.deltas, (_F32, _ROWS, _I64, _I64, True, _ROWS)),
    (
        network.gradients,
        (_PLAN, _F32, _ROWS, _I64, _I64, _F32, _I32, _I32, True, np.float32(0), _ROWS),
    ),
    (
        tape.tape_gradients,
        (_TAPE, _F32, _ROWS, _TEXTS, _TEXTS, _I64, _F32, _F64, 1, np.float32(0), _ROWS),
    ),
)


# It takes as long as all others, so a process of its own compiles it beside them.
_LONGEST = "tape_gradients"
_ALONE = "--longest"
# -P: nothing is imported from the current folder.
_COMMAND = (sys.executable, "-P", "-m", "tacit.kernels")


def fill() -> int:
    """Compile every function, in two processes, and mark the cache as filled for this level.

    Returns the exit code.
    """
    other = os.spawnv(os.P_NOWAIT, sys.executable, (*_COMMAND, _ALONE))  # noqa: S606 (our own)
    _compile(longest=False)
    _, status = os.waitpid(other, 0)
    code = os.waitstatus_to_exitcode(status)
    if code == 0 and jit.WRITABLE:
        jit.FILLED.touch()
    return code


def _compile(*, longest: bool) -> None:
    for function, arguments in _CALLS:
        if (function.__name__ == _LONGEST) == longest:
            function.compile(tuple(map(numba.typeof, arguments)))  # type: ignore[attr-defined]


def fill_every_level() -> int:
    """Run `fill` in a process for each level, as numba has one target in a process.

    Returns the exit code.
    """
    codes = [
        os.spawnve(  # noqa: S606 (our own)
            os.P_WAIT, sys.executable, _COMMAND, os.environ | {"NUMBA_CPU_NAME": level}
        )
        for level in jit.LEVELS
    ]
    return max(codes)


if __name__ == "__main__":
    if sys.argv[1:] == [_ALONE]:
        _compile(longest=True)
        sys.exit()
    if sys.argv[1:] == ["--every-level"] and jit.LEVEL in jit.LEVELS:
        sys.exit(fill_every_level())
    if code := fill():
        sys.exit(code)
    sys.stdout.write(f"kernels: {described()}\n")
