"""Denormal numbers are taken for zero wherever rows are computed.

They make a processor up to a hundred times slower. A row of tiny numbers could otherwise be told
from any other by the time that its batch takes.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from tacit.errors import PrivacyError

_POOL_ELEMENTS = 2**20  # enough for torch to divide an operation among its threads


@contextmanager
def flushed() -> Iterator[None]:
    """Treat denormal numbers as zero within the block, in this thread; afterwards as before.

    Raises PrivacyError where the processor cannot do that (x86-64 and 64-bit ARM can).
    """
    before = sys.float_info.min / 2 == 0.0
    if not torch.set_flush_denormal(True):
        raise PrivacyError(
            "this processor cannot flush denormal numbers: the time of a step would depend on "
            "the rows"
        )
    try:
        yield
    finally:
        torch.set_flush_denormal(before)


def flush_pool() -> None:
    """Start the threads among which torch divides this thread's work, so that all of them flush.

    A thread begins with the setting of the one that starts it. To be called once, by the thread
    that computes, after `torch.set_num_threads` and before any work.
    """
    with flushed():
        torch.ones(_POOL_ELEMENTS).mul_(2.0)
