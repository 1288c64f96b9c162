"""Loads a user's entry, "module:name": code that its owner has put beside the run file, or
installed.

Only a name is ever received; what it names is on this machine already, and its SHA-256 is in the
run definition, so that everybody runs the same code. A path, a URL, a part of Python itself, or a
module outside the run file's folder and the installed packages is refused.
"""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import re
import sys
import sysconfig
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from modulefinder import ModuleFinder
from pathlib import Path
from typing import Any

from tacit.errors import ConfigError

_OWN = Path(__file__).resolve().parents[1]  # the folder of tacit's own modules
_ENTRY = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*")


@dataclass(frozen=True, slots=True)
class Entry:
    """What an entry names, and the SHA-256 (hexadecimal) of its code."""

    target: Any
    digest: str


def load_entry(entry: str, folder: Path, field: str = "model.entry") -> Entry:
    """The function or class that `entry` names, in the run file's `folder` or in an installed
    package.

    Its module is executed, as any import is. Raises ConfigError, which names `field`.
    """
    module_name, _, name = _checked(entry, field).partition(":")
    files = _files(module_name, folder.resolve(), f"{field}={entry}")
    _forget_others(files, folder.resolve())
    module = _imported(module_name, folder.resolve(), f"{field}={entry}")
    if not callable(target := getattr(module, name, None)):
        raise ConfigError(f"{field}={entry}: {module_name} has no class or function {name}")
    return Entry(target, _digest(files))


def entry_digest(entry: str, folder: Path, field: str = "model.entry") -> str:
    """SHA-256 (hexadecimal) of the code that `entry` names, as `load_entry` gives it.

    Executes nothing. Raises ConfigError.
    """
    module_name, _, _ = _checked(entry, field).partition(":")
    return _digest(_files(module_name, folder.resolve(), f"{field}={entry}"))


def _checked(entry: str, field: str) -> str:
    if not _ENTRY.fullmatch(entry):
        raise ConfigError(
            f'{field}={entry!r}: expected "module:name", of a module beside the run file or '
            f"installed"
        )
    return entry


def _files(module: str, folder: Path, field: str) -> dict[str, Path]:
    """The code of `module` and of all that it imports from `folder`, by a name that is the same
    everywhere.
    """
    own = _own_file(module, folder)
    if own is None:
        spec = _installed(module, field)
        return {module: spec}
    finder = ModuleFinder(path=[str(folder)])
    try:
        finder.run_script(str(own))
    except (SyntaxError, OSError) as error:
        raise ConfigError(f"{field}: {own.name} cannot be read: {error}") from error
    names = (getattr(one, "__file__", None) for one in finder.modules.values())
    found = [Path(name).resolve() for name in names if name]
    inside = {str(path.relative_to(folder)): path for path in found if path.is_relative_to(folder)}
    return {**inside, str(own.relative_to(folder)): own}


def _own_file(module: str, folder: Path) -> Path | None:
    """The file of `module` in `folder`, if it is there and does not lead out of it."""
    place = folder.joinpath(*module.split("."))
    for path in (place.with_suffix(".py"), place / "__init__.py"):
        if path.is_file() and path.resolve().is_relative_to(folder):
            return path.resolve()
    return None


def _installed(module: str, field: str) -> Path:
    try:
        spec = importlib.util.find_spec(module)
    except (ImportError, ValueError):
        spec = None
    origin = Path(spec.origin).resolve() if spec and spec.origin and spec.has_location else None
    packages = [Path(sysconfig.get_path(kind)).resolve() for kind in ("purelib", "platlib")]
    packages.append(_OWN)  # wherever it is installed
    if origin is None or not any(origin.is_relative_to(one) for one in packages):
        raise ConfigError(
            f"{field}: no module {module} beside the run file or among the installed packages"
        )
    return origin


def _imported(module: str, folder: Path, field: str) -> Any:
    with _first_on_path(folder):
        try:
            return importlib.import_module(module)
        except Exception as error:
            why = str(error).splitlines()[0] if str(error) else ""
            raise ConfigError(
                f"{field}: importing {module} failed: {type(error).__name__}: {why}"
            ) from error


def _forget_others(files: dict[str, Path], folder: Path) -> None:
    """Modules of the same names that were loaded from elsewhere are loaded anew."""
    for path in files.values():
        if path.is_relative_to(folder):
            parts = path.relative_to(folder).with_suffix("").parts
            name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
            loaded = getattr(sys.modules.get(name), "__file__", None)
            if loaded and Path(loaded).resolve() != path:
                del sys.modules[name]


@contextmanager
def _first_on_path(folder: Path) -> Iterator[None]:
    """`folder` first on the path, as Python has it for a script."""
    importlib.invalidate_caches()
    sys.path.insert(0, str(folder))
    try:
        yield
    finally:
        sys.path.remove(str(folder))


def _digest(files: dict[str, Path]) -> str:
    """SHA-256 over names and contents, in the order of the names."""
    digest = hashlib.sha256()
    for name, path in sorted(files.items()):
        content = path.read_bytes()
        digest.update(f"{name}\0{len(content)}\0".encode() + content)
    return digest.hexdigest()
