"""How much memory and time a child process has for what a stranger has sent.

Without limits, one request could take the memory that other processes need. The system ends whom
it likes where memory is short.
"""

from __future__ import annotations

import contextlib
import os
import sys
from dataclasses import dataclass
from pathlib import Path

from tacit.errors import ServiceError

_GIB = 1 << 30
_LEAST = 2 * _GIB
_SHARE = 4  # one child has so large a part of the machine's memory at most
_OF_CONTAINER = Path("/sys/fs/cgroup/memory.max")
_FIRST_TO_GO = "1000"  # of Linux's scale, where memory is short all the same


class LimitPassed(ServiceError):  # noqa: N818 (a verdict on what was asked)
    """What was asked of a child process takes more memory or time than it may have."""


@dataclass(frozen=True, slots=True)
class ChildLimits:
    """What one child may take.

    memory: bytes, beyond what it begins with; only where Linux counts them. seconds: until its
    answer. answer: bytes of it.
    """

    memory: int
    seconds: float
    answer: int = 1 << 20

    @classmethod
    def of_machine(cls, seconds: float, answer: int = 1 << 20) -> ChildLimits:
        """Return limits with a quarter of the memory of this machine, or container; 2 GiB if more.

        So four children at a time leave the others alive.
        """
        return cls(max(_LEAST, _memory() // _SHARE), seconds, answer)

    def hold(self) -> None:
        """Let this process have no more memory from now on, and be the first that is ended."""
        if sys.platform != "linux":
            return
        import resource

        with contextlib.suppress(OSError):
            Path("/proc/self/oom_score_adj").write_text(_FIRST_TO_GO)
        pages = int(Path("/proc/self/statm").read_text().split()[0])
        most = pages * resource.getpagesize() + self.memory
        _, hard = resource.getrlimit(resource.RLIMIT_AS)
        if hard != resource.RLIM_INFINITY:
            most = min(most, hard)
        resource.setrlimit(resource.RLIMIT_AS, (most, most))

    def memory_passed(self) -> LimitPassed:
        """Return the error of a child that has asked for more memory."""
        return LimitPassed(f"takes more than {self.memory / _GIB:.1f} GiB of memory")

    def seconds_passed(self) -> LimitPassed:
        """Return the error of a child that has not answered in time."""
        return LimitPassed(f"takes more than {self.seconds:g} s")


def _memory() -> int:
    """Return the bytes of memory that this machine, or container, has; 0: it does not say."""
    if sys.platform != "linux":
        return 0
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    with contextlib.suppress(OSError, ValueError):  # "max", or another way to limit containers
        memory = min(memory, int(_OF_CONTAINER.read_text()))
    return memory


def short_of_memory(error: Exception) -> bool:
    """Return whether an error says that memory could not be had, in whose words ever."""
    words = ("allocate memory", "failed to map segment")
    return isinstance(error, MemoryError) or any(word in str(error) for word in words)
