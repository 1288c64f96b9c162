"""A user's own code: found by its name, hashed, loaded.

An entry is "module:name", of a module beside the run file or installed.

Only a name is ever received; what it names is on this machine already, and its SHA-256 is in the
run definition, so that everybody runs the same code. A path, a URL, a part of Python itself, or a
module outside the run file's folder and the installed packages is refused.
"""

from __future__ import annotations

import hashlib
import importlib
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from importlib import metadata
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from typing import Any

from torch import nn

from tacit.errors import FROM_OWN_CODE, ConfigError
from tacit.user_code.loaded_sources import PACKAGES, NotSourceError, Scan, UnseenError, serve

_ENTRY = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*")


@dataclass(frozen=True, slots=True)
class Entry:
    """What an entry names, and the SHA-256 (hexadecimal) of its code.

    from_folder: whether that is the user's own code, and not an installed package's.
    """

    target: Any
    digest: str
    from_folder: bool


def load_entry(entry: str, folder: Path, field: str = "model.entry") -> Entry:
    """Return the function or class that `entry` names, in `folder` or an installed package.

    folder: the run file's. Its module is executed: of the folder, the very bytes that the SHA-256
    is of, and nothing else of it. Raises ConfigError, which names `field`.
    """
    module_name, _, name = _checked(entry, field).partition(":")
    folder = folder.resolve()
    where = f"{field}={entry}"
    scan = _scanned(module_name, folder, where)
    digest = _digest(_contents(scan, module_name, folder, where))
    if scan is not None:
        serve(scan, folder)
    module = _imported(module_name, where)
    if not callable(target := getattr(module, name, None)):
        raise ConfigError(f"{where}: {module_name} has no class or function {name}")
    return Entry(target, digest, from_folder=scan is not None)


def load_module(
    entry: str, arguments: Mapping[str, Any], folder: Path, field: str = "model.entry"
) -> tuple[Callable[[], nn.Module], str]:
    """Return a function that makes the torch module of `entry`, tried once, and its code's SHA-256.

    It calls `entry` with `arguments`. Raises ConfigError, also where it gives no torch module, or
    names of an installed package anything but a class of one.
    """
    loaded = load_entry(entry, folder, field)
    if not loaded.from_folder and not _a_module(loaded.target):
        raise ConfigError(
            f"{field}={entry}: of an installed package, only a class of torch.nn.Module can be "
            "named; write a function beside the run file"
        )
    factory: Callable[[], nn.Module] = partial(loaded.target, **arguments)
    try:
        module = factory()
    except FROM_OWN_CODE as error:
        if str(error):
            why = str(error).splitlines()[0]
        else:
            why = ""
        raise ConfigError(
            f"{field}={entry}: calling it with its arguments failed: {type(error).__name__}: {why}"
        ) from error
    if not isinstance(module, nn.Module):
        raise ConfigError(
            f"{field}={entry}: gives a {type(module).__name__}, not a torch.nn.Module"
        )
    return factory, loaded.digest


def _a_module(target: object) -> bool:
    return isinstance(target, type) and issubclass(target, nn.Module)


def entry_digest(entry: str, folder: Path, field: str = "model.entry") -> str:
    """Return SHA-256 (hexadecimal) of the code that `entry` names, as `load_entry` gives it.

    Executes nothing. Raises ConfigError.
    """
    module_name, _, _ = _checked(entry, field).partition(":")
    folder = folder.resolve()
    where = f"{field}={entry}"
    return _digest(_contents(_scanned(module_name, folder, where), module_name, folder, where))


def entry_files(entry: str, folder: Path, field: str = "model.entry") -> list[Path]:
    """Return the files in `folder` that the entry's code is in, relative to it.

    None of an installed package. Executes nothing. Raises ConfigError.
    """
    module_name, _, _ = _checked(entry, field).partition(":")
    folder = folder.resolve()
    where = f"{field}={entry}"
    scan = _scanned(module_name, folder, where)
    if scan is None:
        _installed(module_name, where)
        return []
    return sorted(source.path.resolve().relative_to(folder) for source in scan.sources.values())


def _checked(entry: str, field: str) -> str:
    if not _ENTRY.fullmatch(entry):
        raise ConfigError(
            f'{field}={entry!r}: expected "module:name", of a module beside the run file or '
            f"installed"
        )
    return entry


def _scanned(module: str, folder: Path, field: str) -> Scan | None:
    """Return the code of `module` and its imports from `folder`; None of an installed one."""
    top = module.partition(".")[0]
    package = folder / top / "__init__.py"
    if not any(path.exists() for path in (folder / f"{top}.py", package)):
        return None
    _no_other(top, field)
    scan = Scan(folder)
    try:
        scan.import_hook(module)
    except NotSourceError as error:
        raise ConfigError(f"{field}: {error}") from error
    # Brackets in brackets without end: MemoryError is what Python's parser says of them.
    except (SyntaxError, OSError, ValueError, RecursionError, MemoryError) as error:
        raise ConfigError(
            f"{field}: {module} cannot be read: {str(error) or 'too deep'}"
        ) from error
    except ImportError as error:
        raise ConfigError(f"{field}: no module {module} beside the run file") from error
    for name in scan.sources:
        _no_other(name.partition(".")[0], field)
    return scan


def _no_other(top: str, field: str) -> None:
    if top in sys.stdlib_module_names or _spec([top], PACKAGES) is not None:
        raise ConfigError(
            f"{field}: {top} is a name of Python's own or of an installed package, too; "
            "rename yours"
        )


def _contents(scan: Scan | None, module: str, folder: Path, field: str) -> dict[str, bytes]:
    """Return what is hashed, by a name that is the same on all machines.

    Of an installed package it is its file, by its name and the package's version.
    """
    if scan is None:
        version = _version(module.partition(".")[0])
        return {f"{module} {version}": _installed(module, field).read_bytes()}
    return {
        str(source.path.relative_to(folder)): source.content for source in scan.sources.values()
    }


def _spec(parts: list[str], places: list[str]) -> ModuleSpec | None:
    """Return where a module is, without running a package that it is in."""
    path: Sequence[str] = places
    spec = None
    for count in range(1, len(parts) + 1):
        spec = PathFinder.find_spec(".".join(parts[:count]), path)
        if spec is None:
            return None
        path = spec.submodule_search_locations or []
    return spec


def _installed(module: str, field: str) -> Path:
    spec = _spec(module.split("."), PACKAGES)
    if spec is None or not spec.origin or not spec.has_location:
        raise ConfigError(
            f"{field}: no module {module} beside the run file (for tacit freeze: in the current "
            "folder) or among the installed packages"
        )
    return Path(spec.origin).resolve()


def _version(top: str) -> str:
    """Return the version of the package that has the module `top`; "" of one that has none."""
    names = metadata.packages_distributions().get(top)
    if names:
        return metadata.version(names[0])
    return ""


def _imported(module: str, field: str) -> Any:
    try:
        return importlib.import_module(module)
    except UnseenError as error:
        raise ConfigError(f"{field}: {error}") from error
    except FROM_OWN_CODE as error:
        if str(error):
            why = str(error).splitlines()[0]
        else:
            why = ""
        raise ConfigError(
            f"{field}: importing {module} failed: {type(error).__name__}: {why}"
        ) from error


def _digest(contents: Mapping[str, bytes]) -> str:
    """Return SHA-256 over names and contents, in the order of the names."""
    digest = hashlib.sha256()
    for name, content in sorted(contents.items()):
        digest.update(f"{name}\0{len(content)}\0".encode() + content)
    return digest.hexdigest()
