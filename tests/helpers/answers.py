"""What a child may do that is asked for an answer: give one, die, raise, say too much."""

from __future__ import annotations

import os
import signal
import sys


def answer(how: str, word: str = "") -> object:
    """Return an answer, or do not."""
    sys.stdout.write(f"asked {how}\n")
    sys.stdout.flush()
    if how == "dies":
        os.kill(os.getpid(), signal.SIGKILL)
    if how == "raises":
        raise ValueError(word)
    if how == "floods":
        return "x" * (1 << 21)
    return {"word": word, "process": os.getpid()}
