"""Hides from tacit's own code what only POSIX has; the libraries that it uses see all of it.

A copy of this file is a `sitecustomize`, so every process of an environment is hidden from, the
children too. Nothing but the standard library is imported here.
"""

from __future__ import annotations

import builtins
import importlib
import os
import shutil
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

MODULES = frozenset(
    ["fcntl", "pwd", "grp", "resource", "termios", "tty", "pty", "posix", "syslog", "readline"]
)
_PROCESSES = """fork forkpty geteuid getuid getegid getgid getgroups setuid setgid seteuid setegid
    setsid killpg getpgid getpgrp setpgid getsid wait wait3 wait4 waitid WNOHANG nice uname
    getpriority getloadavg register_at_fork posix_spawn posix_spawnp
    sched_getaffinity sched_setaffinity sched_yield pipe2 confstr sysconf ttyname"""
_FILES = """chown fchown lchown chroot fchmod mkfifo mknod fdatasync sync O_NONBLOCK O_CLOEXEC
    O_DIRECTORY O_NOFOLLOW O_DSYNC O_SYNC O_NOCTTY pread pwrite preadv pwritev sendfile statvfs
    fstatvfs posix_fadvise posix_fallocate lockf get_blocking set_blocking memfd_create fchdir"""
_SIGNALS = """SIGKILL SIGHUP SIGQUIT SIGUSR1 SIGUSR2 SIGALRM SIGCHLD SIGPIPE SIGSTOP SIGCONT
    SIGTSTP alarm setitimer getitimer pause pthread_kill pthread_sigmask sigwait siginterrupt"""
_MAPS = "MAP_PRIVATE MAP_ANONYMOUS MAP_SHARED PROT_READ PROT_WRITE MADV_HUGEPAGE"
_SOCKETS = "AF_UNIX SO_REUSEPORT SCM_RIGHTS CMSG_LEN AF_NETLINK"
NAMES: Mapping[str, frozenset[str]] = {
    "os": frozenset((_PROCESSES + _FILES).split()),
    "signal": frozenset(_SIGNALS.split()),
    "socket": frozenset(_SOCKETS.split()),
    "mmap": frozenset(_MAPS.split()),
    "select": frozenset(["poll", "epoll", "kqueue"]),
    "time": frozenset(["tzset", "clock_gettime", "pthread_getcpuclockid"]),
}
ARGUMENTS = frozenset(["pass_fds", "preexec_fn", "start_new_session", "umask", "dir_fd"])
_import = builtins.__import__


class Without(ModuleType):
    """A module of the standard library without the names that only POSIX has."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self._module = importlib.import_module(name)

    def __getattr__(self, name: str) -> Any:
        if name in NAMES[self.__name__]:
            raise AttributeError(f"{self.__name__}.{name}: is hidden")
        return getattr(self._module, name)


def hide() -> None:
    """Hide them from all that is imported from now on."""
    proxies = {name: Without(name) for name in NAMES}
    vars(proxies["os"])["name"] = "nt"  # what asks for it is to take the other way

    def hidden(
        name: str,
        globals: Mapping[str, object] | None = None,
        locals: Mapping[str, object] | None = None,
        fromlist: Sequence[str] | None = (),
        level: int = 0,
    ) -> ModuleType:
        asks = globals or {}
        if not level and str(asks.get("__package__") or asks.get("__name__")).startswith("tacit"):
            if name.partition(".")[0] in MODULES:
                raise ImportError(f"{name}: is hidden from {asks.get('__name__')}", name=name)
            if name in proxies:
                return proxies[name]
        return _import(name, globals, locals, fromlist, level)

    builtins.__import__ = hidden


def hidden_in(folder: Path) -> dict[str, str]:
    """Return the variables of an environment whose tacit has nothing of POSIX alone."""
    folder.mkdir()
    shutil.copy(__file__, folder / "sitecustomize.py")
    return {
        "PYTHONPATH": os.pathsep.join([str(folder), *filter(None, [os.environ.get("PYTHONPATH")])])
    }


if __name__ == "sitecustomize":
    hide()
    sys.modules.pop("sitecustomize", None)
