"""Machines whose tacit is of another version than the tree's.

`under_name` gives a process this tree's code under another version's name: what its metadata says, which
stands first on the path. `wheel` is the whole of another version: a wheel that was kept, or one of
this tree with another number.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import zipfile
from importlib import metadata
from pathlib import Path

from tacit_services.versions import own_version

from tests.conftest import ROOT
from tests.helpers.wheels import built

BUILT = ("pyproject.toml", "README.md", "LICENSE", "src", "services", "clients")  # as the image


def apart_by(minors: int) -> str:
    """Return a version so many minor versions ahead of the tree's."""
    major, minor = map(int, own_version().split(".")[:2])
    number = 1000 * major + minor + minors  # as of `minors_apart`
    return f"{number // 1000}.{number % 1000}.0"


def under_name(folder: Path, version: str) -> dict[str, str]:
    """Return the environment of a process whose tacit is called so."""
    place = folder / f"tacit-{version}.dist-info"
    place.mkdir(parents=True)
    text = metadata.distribution("tacit").read_text("METADATA")
    assert text is not None
    text, count = re.subn(r"(?m)^Version: .*$", f"Version: {version}", text, count=1)
    assert count == 1
    (place / "METADATA").write_text(text)
    return _first_on_path(folder)


def wheel(folder: Path, version: str) -> Path:
    """Build the tree's wheel with another version's number."""
    tree = folder / "tree"
    tree.mkdir(parents=True)
    for name in BUILT:
        source = ROOT / name
        if source.is_file():
            shutil.copy(source, tree / name)
        else:
            ignored = shutil.ignore_patterns("__pycache__")
            shutil.copytree(source, tree / name, ignore=ignored)
    project = tree / "pyproject.toml"
    text, count = re.subn(
        r'(?m)^version = ".*"$', f'version = "{version}"', project.read_text(), count=1
    )
    assert count == 1
    project.write_text(text)
    return built(tree, folder)


def unpacked(wheel: Path, folder: Path) -> dict[str, str]:
    """Return the environment of a process that runs a wheel, with the libraries of this one."""
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder)
    return _first_on_path(folder)


def is_of(variables: dict[str, str], python: str) -> tuple[str, str]:
    """Return the version, and the folder of the code, of a process in such an environment."""
    code = (
        "import tacit_services as s; from tacit_services.versions import own_version as v; "
        "print(v(), s.__path__[0])"
    )
    completed = subprocess.run(
        [python, "-P", "-c", code],
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
        check=True,
    )
    version, folder = completed.stdout.split()
    return version, folder


def _first_on_path(folder: Path) -> dict[str, str]:
    others = filter(None, [os.environ.get("PYTHONPATH")])
    return {"PYTHONPATH": os.pathsep.join([str(folder), *others])}
