"""The layout that a plan of rows and the kernels share: codes, fields and sizes, without numba.

A plan of a network is an array of `LAYER`, a record a layer.
"""

from __future__ import annotations

from typing import Final

import numpy as np

# A layer's `kind`: a convolution of few channels, one of many, a dense layer.
PLANES, PATCHES, DENSE = 0, 1, 2
# A layer's `activation`.
RELU, TANH, LINEAR = 0, 1, 2
# depth, side, kernel, width, out: channels and side of the input, padding included; of the window;
# channels and side of the output. pooled, activation, groups (0: not normalized): what comes after
# it; chosen: 1 where only the places that the pool chose have a gradient. own_pad, pad: around the
# input, and around the next layer's. taps: numbers that an output adds up; line: those of an
# output's plane. The rest is where its numbers begin: weight, bias among the parameters; places
# (the pool's choice), all (every place), where (of a line that is pooled) among the places; the
# others in memory.
FIELDS: Final = (
    *("kind", "depth", "side", "kernel", "width", "out", "pooled", "activation", "groups"),
    *("chosen", "own_pad", "pad", "taps", "line", "weight", "bias", "places", "all", "where"),
    *("a", "da", "z", "dz", "patches", "planes", "flat", "inverse"),
)
LAYER: Final = np.dtype([(name, np.int64) for name in FIELDS])

LANES = 16  # float32 numbers that a processor works on at a time, at most
SLACK = 64  # numbers behind those that a kernel uses, as nothing checks an index
FIVE = 5  # outputs, or lines of a window, whose sums are in registers at a time
SUMS = 8 * FIVE  # numbers of a window's sums: eight columns of each line
MAX_NORM = 2.0**60  # a longer row is about to overflow: it counts as non-finite
