"""The layout that a tape and its kernels share: codes and fields, without numba.

A tape is an array of `OPERATION`: a record for each operation of a network on one row, in their
order. The gradient flows through it from its end. Numbers lie channel after channel at each place,
(places, channels). Zeros fill channels up to a multiple of `PAD`.
"""

from __future__ import annotations

from typing import Final

import numpy as np

PAD = 8  # numbers that a width is a multiple of, so that lanes never reach into the next place

# An operation's `kind`.
TAKE, EMBED, CONVOLVE, DEPTHWISE, NORMALIZE, ADD, ACTIVATE, MEAN, LSTM = range(9)
# What follows an operation; `ACTIVATE` has all of them, `NORMALIZE` and `ADD` the first two.
PLAIN, RISING, BENT, ROUNDED = range(4)  # nothing, ReLU, tanh, GELU

# x, other, out: where its inputs and its output begin in memory, and dx, d_other, d_out the loss's
# derivatives by them (-1: not asked for). fresh, fresh_other: whether it is the first to write dx,
# d_other. places, inputs, outputs: places of the output, width of a place of x, and of the output.
# weight, bias, turned, recurrent, back: where its parameters begin (-1: none); `turned` and `back`
# are copies for the way back. A convolution goes along `lines` of `across` places; side, wide:
# places of a line of x without and with its padding; padded: where x lies inside its padding; copy:
# memory for what else must be padded. A norm has `groups` of `channels` numbers altogether, over
# all places or over `each` of them; hat: normalized numbers, moments: a mean and 1/deviation for
# each channel. Of `other`, every stride-th place of a line of `side` is added. cells: memory of an
# LSTM.
TAPE_FIELDS: Final = (
    *("kind", "x", "dx", "fresh", "other", "d_other", "fresh_other", "out", "d_out"),
    *("places", "inputs", "outputs", "weight", "bias", "turned", "recurrent", "back"),
    *("lines", "across", "side", "wide", "kernel", "stride", "pad", "padded", "copy"),
    *("groups", "channels", "each", "hat", "moments", "follows", "cells"),
)
OPERATION: Final = np.dtype([(name, np.int64) for name in TAPE_FIELDS])
