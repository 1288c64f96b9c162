"""The code that runs here: versions of libraries, and one SHA-256 of tacit's own files.

That SHA-256 is of the lines that a wheel's RECORD has of them, sorted, each with a line feed:

    tacit/errors.py,sha256=<urlsafe base64, no padding>,<bytes>

They are computed from the files on this disk. So a changed file shows. The RECORD of the
published wheel gives the same.
"""

from __future__ import annotations

import base64
import hashlib
import re
from functools import cache
from importlib import metadata, util
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field

from tacit.digests import Sha256

PACKAGES = ("tacit", "tacit_client", "tacit_services")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


class RunningCode(BaseModel):
    """The code that a machine has run.

    version: of tacit. files: SHA-256 over its files. libraries: versions by name, of what tacit
    needs and has here.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    version: str = Field(max_length=64)
    files: Sha256
    libraries: dict[str, str]


@cache
def running_code() -> RunningCode:
    """Return the code that runs in this process. Files are read once in its life."""
    lines = sorted(line for package in PACKAGES for line in _lines(package))
    digest = hashlib.sha256("".join(lines).encode()).hexdigest()
    return RunningCode(version=metadata.version("tacit"), files=digest, libraries=_libraries())


def _lines(package: str) -> list[str]:
    """Return the lines of a package that is installed; none of one that is not."""
    spec = util.find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        return []
    root = Path(next(iter(spec.submodule_search_locations)))
    files = [path for path in root.rglob("*") if path.is_file() and not _compiled(path)]
    return [_line(f"{package}/{path.relative_to(root).as_posix()}", path) for path in files]


def _compiled(path: Path) -> bool:
    return "__pycache__" in path.parts or path.suffix == ".pyc"


def _line(name: str, path: Path) -> str:
    content = path.read_bytes()
    digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
    return f"{name},sha256={digest},{len(content)}\n"


def _libraries() -> dict[str, str]:
    """Return versions of all that tacit requires, in steps, as far as it is installed here."""
    versions: dict[str, str] = {}
    due = ["tacit"]
    while due:
        name = due.pop()
        key = _normalized(name)
        if key in versions:
            continue
        try:
            version, needs = metadata.version(name), metadata.requires(name) or []
        except metadata.PackageNotFoundError:  # of an extra, or of another platform
            continue
        versions[key] = version
        due += [match[0] for need in needs if (match := _NAME.match(need))]
    versions.pop("tacit", None)
    return dict(sorted(versions.items()))


def _normalized(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()
