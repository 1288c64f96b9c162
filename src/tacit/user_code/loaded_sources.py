"""Modules out of memory: the very bytes that were hashed are compiled and run.

No file is read twice, and no compiled copy of one (`__pycache__`) is read or written.
"""

from __future__ import annotations

import importlib
import linecache
import sys
import sysconfig
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from importlib.abc import MetaPathFinder, SourceLoader
from importlib.machinery import ModuleSpec, PathFinder
from importlib.util import decode_source, spec_from_file_location
from io import BytesIO
from modulefinder import ModuleFinder
from pathlib import Path
from types import ModuleType
from typing import Any

from tacit.user_code import readable

# Where installed packages are, and tacit, wherever it is. An environment may use another's
# (`python -m venv --system-site-packages`) or the user's own: they are on the path by such a name.
PACKAGES = [
    *(str(Path(sysconfig.get_path(kind)).resolve()) for kind in ("purelib", "platlib")),
    *(place for place in sys.path if Path(place).name in ("site-packages", "dist-packages")),
    str(Path(__file__).resolve().parents[2]),
]
_PYTHON = [str(Path(sysconfig.get_path(kind)).resolve()) for kind in ("stdlib", "platstdlib")]


class UnseenError(ImportError):
    """A module of the run file's folder is asked for, and is in no SHA-256."""


class NotSourceError(ValueError):
    """A module of the run file's folder is no Python source that can be read, or is outside."""


@dataclass(frozen=True, slots=True)
class SourceFile:
    """One file of Python, as it was read."""

    path: Path
    content: bytes

    @property
    def package(self) -> bool:
        """Whether it is a package's."""
        return self.path.name == "__init__.py"


class Scan(ModuleFinder):
    """Finds what a module imports from `folder`; reads each file once and executes nothing.

    sources: by the modules' names. Raises NotSourceError, and what ModuleFinder raises.
    """

    def __init__(self, folder: Path) -> None:
        super().__init__(path=[str(folder)])
        self._folder = folder
        self.sources: dict[str, SourceFile] = {}

    @property
    def missing(self) -> set[str]:
        """The names that were looked for in the folder, and not found."""
        return set(self.badmodules) - set(self.sources)

    def find_module(self, name: str, path: Any, parent: Any = None) -> Any:
        """Find a module as ModuleFinder does, but not a folder without `__init__.py`."""
        PathFinder.invalidate_caches()
        spec = PathFinder.find_spec(name, self.path if path is None else path)
        if spec is not None and spec.loader is None:
            raise ImportError(name)
        return super().find_module(name, path, parent)

    def load_module(self, fqname: str, fp: Any, pathname: str, file_info: Any) -> Any:
        """Load a module as ModuleFinder does, from bytes that are kept."""
        if pathname is None:  # it is built into Python
            return super().load_module(fqname, fp, pathname, file_info)
        path = Path(pathname)
        if not path.resolve().is_relative_to(self._folder):
            raise NotSourceError(f"{path.name} leads out of the run file's folder")
        if path.is_dir():
            return super().load_module(fqname, fp, pathname, file_info)
        if path.suffix != ".py":
            raise NotSourceError(f"{path.name} is no Python source; only .py files are run")
        source = self.sources[fqname] = SourceFile(path, fp.read(readable.MOST + 1))
        try:
            readable.check(source.content)
        except ValueError as error:
            raise NotSourceError(f"{path.relative_to(self._folder)}: {error}") from error
        stream: Any = BytesIO(source.content)
        return super().load_module(fqname, stream, pathname, file_info)


class _Loader(SourceLoader):
    """Runs one source. It knows no time of the file, so no compiled copy of it counts."""

    def __init__(self, source: SourceFile) -> None:
        self.source = source

    def get_filename(self, fullname: str) -> str:
        return str(self.source.path)

    def get_data(self, path: Any) -> bytes:
        if str(path) != str(self.source.path):
            raise OSError(f"{path}: not in memory")
        return self.source.content

    def exec_module(self, module: ModuleType) -> None:
        """Run the module. Its source (torch.jit compiles it) is the same bytes."""
        name = str(self.source.path)
        text = decode_source(self.source.content)
        lines = text.splitlines(keepends=True)
        linecache.cache[name] = (len(text), None, lines, name)  # None: never compared to the disk
        super().exec_module(module)


class Folder(MetaPathFinder):
    """The modules of a run file's folder: those whose bytes are known, and no others.

    All that are loaded are of one state of the folder.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._sources: dict[str, SourceFile] = {}
        self._missing: set[str] = set()

    def take(self, scan: Scan) -> None:
        """Give imports these sources from now on; what is loaded of others is forgotten."""
        sources = scan.sources
        changed = any(self._sources.get(name, source) != source for name, source in sources.items())
        if changed or self._missing & set(sources) or scan.missing & set(self._sources):
            self._forget(self._sources)
            self._sources = {}
            self._missing = set()
        self._sources.update(sources)
        self._missing |= scan.missing
        self._forget(name for name, source in sources.items() if _source(name) != source)

    def _forget(self, names: Iterable[str]) -> None:
        for name in names:
            sys.modules.pop(name, None)

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Find a module. Raises UnseenError for one that is in the folder and nowhere else."""
        if (source := self._sources.get(fullname)) is not None:
            # A package leads nowhere: what is in it comes from here, too.
            inside: list[str] | None = [] if source.package else None
            return spec_from_file_location(
                fullname, source.path, loader=_Loader(source), submodule_search_locations=inside
            )
        parent = fullname.rpartition(".")[0]
        if parent and parent not in self._sources:
            return None
        places = sys.path if path is None else path
        if not (self._beside(fullname) or self._inside(PathFinder.find_spec(fullname, places))):
            return None
        outside = [entry for entry in places if not self._holds(entry or ".")]
        if (spec := PathFinder.find_spec(fullname, outside)) is None:
            raise UnseenError(
                f"{fullname} is imported unseen; write `import {fullname}`", name=fullname
            )
        return spec

    def _beside(self, fullname: str) -> bool:
        place = self.folder.joinpath(*fullname.split(".")[:-1])
        spec = PathFinder.find_spec(fullname, [str(place)])
        return spec is not None and spec.loader is not None

    def _inside(self, spec: ModuleSpec | None) -> bool:
        if spec is None:
            return False
        places = [spec.origin] if spec.has_location else spec.submodule_search_locations or []
        return any(self._holds(str(entry)) for entry in places)

    def _holds(self, place: str) -> bool:
        path = Path(place).resolve()
        installed = any(path.is_relative_to(root) for root in (*PACKAGES, *_PYTHON))
        return path.is_relative_to(self.folder) and not installed


def _source(name: str) -> SourceFile | None:
    """Return what a loaded module was made of, if it was made here."""
    loader = getattr(sys.modules.get(name), "__loader__", None)
    if isinstance(loader, _Loader):
        return loader.source
    return None


def serve(scan: Scan, folder: Path) -> None:
    """Let imports ask `folder` first, and give them what `scan` has read."""
    importlib.invalidate_caches()
    folders = [
        finder for finder in sys.meta_path if isinstance(finder, Folder) and finder.folder == folder
    ]
    importer = folders[0] if folders else Folder(folder)
    sys.meta_path[:] = [importer, *(finder for finder in sys.meta_path if finder is not importer)]
    importer.take(scan)
