"""Compile the loops of this package with numba, and cache the result beside this file.

Only the modules of this package import this one, and only `loading.library` imports them, so that a
process that computes nothing does not load numba.

Code is compiled for a level of processors (`x86-64-v3` is AVX2, `x86-64-v4` is AVX-512), not for
one model. So a cache that was filled where an image was built serves wherever it runs. The cache's
folder is named by the digest of the package's sources and numba's version, so nothing stale is
loaded. Its files are code, like the ones beside them. `python -m tacit.kernels` fills it when an
image is built, for a read-only container. Where the folder can neither be written nor is filled for
this processor, functions are compiled anew in every process.
"""

from __future__ import annotations

import hashlib
import os
import platform
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import numba
from llvmlite import binding
from numba.core import config
from numba.core.caching import UserProvidedCacheLocator

_Function = TypeVar("_Function", bound=Callable[..., Any])
_V3 = ("avx2", "bmi", "bmi2", "f16c", "fma", "lzcnt", "movbe")
_V4 = (*_V3, "avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl")
# LLVM's name of a level: what the processor must have, and what LLVM is told beside it.
LEVELS = {"x86-64-v4": (_V4, "-prefer-256-bit"), "x86-64-v3": (_V3, "")}
_HERE = Path(__file__).parent

# numba reads settings from a file of the current folder, too. With `disable_jit: 1` in it, other
# loops than these would run. From here on it reads the environment only.
config._config_fname = os.devnull
config.reload_config()


def _level() -> str:
    """Return the level that code is compiled for; "": LLVM looks for itself.

    It is this processor's, unless numba's setting `NUMBA_CPU_NAME` asks for another, to fill a
    cache for other machines.
    """
    if config.CPU_NAME is not None:
        return str(config.CPU_NAME)
    if platform.machine() not in ("x86_64", "AMD64"):
        return ""
    features = binding.get_host_cpu_features()
    able = (name for name, (needed, _) in LEVELS.items() if all(map(features.get, needed)))
    return next(able, "")


def _digest() -> str:
    digest = hashlib.sha256(numba.__version__.encode())
    for path in sorted(_HERE.glob("*.py")):
        digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


LEVEL = _level()
FOLDER = _HERE / "__pycache__" / f"kernels-{_digest()}"
FILLED = FOLDER / f"{LEVEL or platform.machine()}.filled"


def _writable() -> bool:
    try:
        FOLDER.mkdir(parents=True, exist_ok=True)
        probe = FOLDER / f"probe-{os.getpid()}"
        probe.touch()
        probe.unlink()
    except OSError:
        return False
    return True


WRITABLE = _writable()
CACHED = WRITABLE or FILLED.exists()


class Beside(UserProvidedCacheLocator):  # type: ignore[misc]
    """numba's cache in `FOLDER`, which need not be writable."""

    def __init__(self, function: Callable[..., Any], file: str) -> None:
        self._py_file, self._lineno = file, function.__code__.co_firstlineno
        self._cache_path = str(FOLDER)

    def ensure_cache_path(self) -> None:
        """Do nothing: the folder exists."""

    def get_source_stamp(self) -> str:
        """Return the digest of all sources: the same files elsewhere have other times."""
        return FOLDER.name

    @classmethod
    def from_function(cls, function: Callable[..., Any], file: str) -> Beside:
        """Return the folder for every function of this room."""
        return cls(function, file)


if LEVEL in LEVELS:
    config.CPU_NAME, config.CPU_FEATURES = LEVEL, LEVELS[LEVEL][1]


def entry(function: _Function) -> _Function:
    """Compile `function` at its first call from Python, and cache it.

    It holds Python's lock, so memory that belongs to a kernel is one thread's during a call.
    """
    before = config.CACHE_LOCATOR_CLASSES
    config.CACHE_LOCATOR_CLASSES = f"{__name__}.Beside"
    try:
        compiled: _Function = numba.njit(cache=CACHED, error_model="numpy")(function)
    finally:
        config.CACHE_LOCATOR_CLASSES = before
    if CACHED and not WRITABLE:
        compiled._cache.save_overload = lambda *_: None  # type: ignore[attr-defined]
    return compiled


def inner(function: _Function) -> _Function:
    """Compile `function` into its callers; a·b + c may become one operation.

    Sums keep the order in which they are written. `function` must neither make nor return an array:
    references to arrays are not counted (`_nrt`), so that views cost nothing.
    """
    compiled: _Function = numba.njit(error_model="numpy", fastmath={"contract"}, _nrt=False)(
        function
    )
    return compiled


def dot(function: _Function) -> _Function:
    """Compile as `inner`, but add in an order that the compiler chooses by the length alone."""
    flags = {"contract", "reassoc", "nsz"}
    compiled: _Function = numba.njit(error_model="numpy", fastmath=flags, _nrt=False)(function)
    return compiled


def viewing(function: _Function) -> _Function:
    """Compile a function that returns a view of an array, or calls one that does."""
    compiled: _Function = numba.njit(error_model="numpy")(function)
    return compiled
