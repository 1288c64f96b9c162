"""What becomes of a row whose gradient raises: it is nan, and clipping makes zeros of it."""

from __future__ import annotations

import math
import signal
from collections.abc import Callable

from torch import Tensor


def write_or_nan(write: Callable[[], object], out: Tensor) -> None:
    """Call `write`, which writes one row's gradient into `out` (d,). If it raises, write nan.

    It catches any exception, as an exception is a message: it would end the edge, and the wire
    would say so. Guarantee: the call returns for every row. Nothing of the exception is kept: not
    its words, its kind or its traceback. `out` is a function of the row and the parameters, as far
    as what is written is. Proof: no statement after the `try` reads the exception. `out` is written
    as a whole in either case, as a copy that breaks off is overwritten.

    SystemExit, MemoryError and RecursionError are caught as well. So is KeyboardInterrupt where
    SIGINT does not raise it, and it comes from the code: an edge, a peer and a party hear of
    signals otherwise (tacit_services.signals). Not caught is what is no exception: `os._exit`, a
    crash of compiled code, a loop without an end.
    """
    try:
        write()
    except BaseException as error:
        if isinstance(error, KeyboardInterrupt) and _raised_by_signals():
            raise
        out.fill_(math.nan)


def _raised_by_signals() -> bool:
    """Check whether Ctrl-C raises KeyboardInterrupt in this process, as at a terminal."""
    return signal.getsignal(signal.SIGINT) is signal.default_int_handler
