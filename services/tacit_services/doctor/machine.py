"""This machine: room on the disk, memory."""

from __future__ import annotations

from pathlib import Path

import psutil

from tacit_services.doctor.diagnosis import Diagnosis, ill, near, well

_GIB = 1 << 30
_DISK = (64 << 20, _GIB)  # bytes: below the first nothing works; below the second not for long
_MEMORY = (256 << 20, _GIB)


def disk(folder: Path) -> Diagnosis:
    """Look at the room where `folder` is, or will be."""
    place = next(path for path in (folder.absolute(), *folder.absolute().parents) if path.is_dir())
    free = psutil.disk_usage(str(place)).free
    advice = f"make room on the disk of {place}: ledgers and files must be written"
    return _judged("disk", free, _DISK, f"{_size(free)} free at {place}", advice)


def memory() -> Diagnosis:
    """Look at the memory that a process may still take."""
    free = psutil.virtual_memory().available
    advice = "end other programs, or take a machine with more memory"
    return _judged("memory", free, _MEMORY, f"{_size(free)} available", advice)


def _judged(what: str, free: int, bounds: tuple[int, int], words: str, advice: str) -> Diagnosis:
    least, enough = bounds
    if free < least:
        return ill(what, words, advice)
    if free < enough:
        return near(what, words, advice)
    return well(what, words)


def _size(count: int) -> str:
    return f"{count / _GIB:.1f} GiB" if count >= _GIB else f"{count / (1 << 20):.0f} MiB"
