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
import sysconfig
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from importlib import metadata
from importlib.machinery import ModuleSpec, PathFinder
from modulefinder import ModuleFinder
from pathlib import Path
from typing import Any

from torch import nn

from tacit.errors import ConfigError

# Where installed packages are, and tacit, wherever it is.
_PACKAGES = [
    *(str(Path(sysconfig.get_path(kind)).resolve()) for kind in ("purelib", "platlib")),
    str(Path(__file__).resolve().parents[1]),
]
_ENTRY = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*")


@dataclass(frozen=True, slots=True)
class Entry:
    """What an entry names, and the SHA-256 (hexadecimal) of its code.

    own: whether that is the user's own code, and not an installed package's.
    """

    target: Any
    digest: str
    own: bool


def load_entry(entry: str, folder: Path, field: str = "model.entry") -> Entry:
    """The function or class that `entry` names, in the run file's `folder` or in an installed
    package.

    Its module is executed, as any import is. Raises ConfigError, which names `field`.
    """
    module_name, _, name = _checked(entry, field).partition(":")
    folder = folder.resolve()
    files = _files(module_name, folder, f"{field}={entry}")
    _forget_others(files, folder)
    module = _imported(module_name, folder, f"{field}={entry}", set(files.values()))
    if not callable(target := getattr(module, name, None)):
        raise ConfigError(f"{field}={entry}: {module_name} has no class or function {name}")
    own = all(path.is_relative_to(folder) for path in files.values())
    return Entry(target, _digest(files), own)


def load_module(
    entry: str, arguments: Mapping[str, Any], folder: Path, field: str = "model.entry"
) -> tuple[Callable[[], nn.Module], str]:
    """What makes the module that `entry` gives when it is called with `arguments`, tried once, and
    the SHA-256 of its code.

    Raises ConfigError, also where it gives no torch module, or names of an installed package
    anything but a class of one.
    """
    found = load_entry(entry, folder, field)
    if not found.own and not _a_module(found.target):
        raise ConfigError(
            f"{field}={entry}: of an installed package, only a class of torch.nn.Module can be "
            "named; write a function beside the run file"
        )
    factory: Callable[[], nn.Module] = partial(found.target, **arguments)
    try:
        made = factory()
    except Exception as error:  # a user's code may raise anything
        why = str(error).splitlines()[0] if str(error) else ""
        raise ConfigError(
            f"{field}={entry}: calling it with its arguments failed: {type(error).__name__}: {why}"
        ) from error
    if not isinstance(made, nn.Module):
        raise ConfigError(f"{field}={entry}: gives a {type(made).__name__}, not a torch.nn.Module")
    return factory, found.digest


def _a_module(target: object) -> bool:
    return isinstance(target, type) and issubclass(target, nn.Module)


def entry_digest(entry: str, folder: Path, field: str = "model.entry") -> str:
    """SHA-256 (hexadecimal) of the code that `entry` names, as `load_entry` gives it.

    Executes nothing. Raises ConfigError.
    """
    module_name, _, _ = _checked(entry, field).partition(":")
    return _digest(_files(module_name, folder.resolve(), f"{field}={entry}"))


def entry_files(entry: str, folder: Path, field: str = "model.entry") -> list[Path]:
    """The files in `folder` that the entry's code is in, relative to it; none of an installed
    package. Executes nothing. Raises ConfigError.
    """
    module_name, _, _ = _checked(entry, field).partition(":")
    files = _files(module_name, folder.resolve(), f"{field}={entry}")
    inside = (path for path in files.values() if path.is_relative_to(folder.resolve()))
    return sorted(path.relative_to(folder.resolve()) for path in inside)


def _checked(entry: str, field: str) -> str:
    if not _ENTRY.fullmatch(entry):
        raise ConfigError(
            f'{field}={entry!r}: expected "module:name", of a module beside the run file or '
            f"installed"
        )
    return entry


def _files(module: str, folder: Path, field: str) -> dict[str, Path]:
    """The code of `module` and of all that it imports from `folder`, by a name that is the same
    everywhere. Of an installed package: its file, by its name and the package's version.
    """
    top = module.partition(".")[0]
    elsewhere = _spec([top], _PACKAGES) is not None
    package = folder / top / "__init__.py"
    if not any(path.exists() for path in (folder / f"{top}.py", package)):
        return {f"{module} {_version(top)}": _installed(module, field)}
    if elsewhere or top in sys.stdlib_module_names:
        raise ConfigError(
            f"{field}: {top} is a name of Python's own or of an installed package, too; "
            "rename yours"
        )
    return _own_files(module, folder, field)


def _own_files(module: str, folder: Path, field: str) -> dict[str, Path]:
    finder = ModuleFinder(path=[str(folder)])
    try:
        finder.import_hook(module)
    except (SyntaxError, OSError) as error:
        raise ConfigError(f"{field}: {module} cannot be read: {error}") from error
    except ImportError as error:
        raise ConfigError(f"{field}: no module {module} beside the run file") from error
    names = (getattr(one, "__file__", None) for one in finder.modules.values())
    found = [Path(name) for name in names if name]
    for path in found:
        if not path.resolve().is_relative_to(folder):
            raise ConfigError(f"{field}: {path.name} leads out of the run file's folder")
    return {str(path.relative_to(folder)): path.resolve() for path in found}


def _spec(parts: list[str], places: list[str]) -> ModuleSpec | None:
    """Where a module is, looked for without running a package that it is in."""
    path: Sequence[str] = places
    spec = None
    for count in range(1, len(parts) + 1):
        spec = PathFinder.find_spec(".".join(parts[:count]), path)
        if spec is None:
            return None
        path = spec.submodule_search_locations or []
    return spec


def _installed(module: str, field: str) -> Path:
    spec = _spec(module.split("."), _PACKAGES)
    if spec is None or not spec.origin or not spec.has_location:
        raise ConfigError(
            f"{field}: no module {module} beside the run file or among the installed packages"
        )
    return Path(spec.origin).resolve()


def _version(top: str) -> str:
    """The version of the package that has the module `top`; "" of one that has none."""
    names = metadata.packages_distributions().get(top)
    return metadata.version(names[0]) if names else ""


def _imported(module: str, folder: Path, field: str, files: set[Path]) -> Any:
    """The module; all that it loads from `folder` must be among `files`, whose SHA-256 is known."""
    before = set(sys.modules)
    with _first_on_path(folder):
        try:
            loaded = importlib.import_module(module)
        except Exception as error:
            why = str(error).splitlines()[0] if str(error) else ""
            raise ConfigError(
                f"{field}: importing {module} failed: {type(error).__name__}: {why}"
            ) from error
    for name in set(sys.modules) - before:
        file = getattr(sys.modules[name], "__file__", None)
        path = Path(file).resolve() if file else None
        if path is not None and path.is_relative_to(folder) and path not in files:
            del sys.modules[name]
            raise ConfigError(f"{field}: {name} is imported unseen; write `import {name}`")
    return loaded


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
