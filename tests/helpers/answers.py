"""What a child may do that is asked for an answer: give one, die, raise, take or say too much."""

from __future__ import annotations

import os
import signal
import sys
import threading

import torch


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
    if how == "takes":
        return len(bytearray(int(word)))
    if how == "tensor":
        return torch.zeros(int(word), dtype=torch.uint8).numel()
    if how == "waits":
        sys.stdout.write(f"{os.getpid()}\n")
        sys.stdout.flush()
        threading.Event().wait()
    return {"word": word, "process": os.getpid()}
