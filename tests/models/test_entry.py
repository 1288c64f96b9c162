"""Entries: code is named, never received, and known by its hash."""

from __future__ import annotations

from pathlib import Path

import pytest

from tacit.errors import ConfigError
from tacit.models.entry import load_entry

NETS = "from helper import width\n\ndef Net():\n    return width\n"


def folder(path: Path, nets: str = NETS, helper: str = "width = 3\n") -> Path:
    path.mkdir(exist_ok=True)
    (path / "nets.py").write_text(nets)
    (path / "helper.py").write_text(helper)
    return path


def test_an_entry_beside_the_run_file_is_found_with_what_it_imports(tmp_path: Path) -> None:
    entry = load_entry("nets:Net", folder(tmp_path / "a"))
    assert entry.target() == 3
    # The same code elsewhere has the same digest; a change of what it imports has another.
    assert load_entry("nets:Net", folder(tmp_path / "b")).digest == entry.digest
    changed = load_entry("nets:Net", folder(tmp_path / "c", helper="width = 4\n"))
    assert changed.digest != entry.digest
    assert changed.target() == 4


def test_the_code_of_the_folder_that_is_asked_for_is_run(tmp_path: Path) -> None:
    assert load_entry("one:make", _one(tmp_path / "a", 1)).target() == 1
    assert load_entry("one:make", _one(tmp_path / "b", 2)).target() == 2


def _one(path: Path, value: int) -> Path:
    path.mkdir()
    (path / "one.py").write_text(f"def make():\n    return {value}\n")
    return path


def test_an_installed_package_is_found() -> None:
    assert load_entry("torch.nn:Linear", Path("/")).target(2, 1).in_features == 2


@pytest.mark.parametrize(
    "entry",
    [
        "nets.py:Net",
        "../nets:Net",
        "/tmp/nets:Net",
        "https://example.org/nets:Net",
        "nets",
        "nets:",
        ":Net",
        "a b:c",
        "nets:Net.x",
        "",
        "nets:Net;x",
    ],
)
def test_what_is_not_a_name_is_refused(tmp_path: Path, entry: str) -> None:
    load_entry("nets:Net", folder(tmp_path))  # a control
    with pytest.raises(ConfigError, match=r"^model\.entry="):
        load_entry(entry, tmp_path)


@pytest.mark.parametrize(
    "entry", ["os:system", "subprocess:run", "nowhere:Net", "builtins:exec", "tests.models:x"]
)
def test_what_is_neither_beside_the_run_file_nor_installed_is_refused(
    tmp_path: Path, entry: str
) -> None:
    with pytest.raises(
        ConfigError, match=r"no module .* beside the run file or among the installed packages"
    ):
        load_entry(entry, tmp_path)


def test_a_link_that_leads_out_of_the_folder_is_refused(tmp_path: Path) -> None:
    outside, inside = folder(tmp_path / "out"), tmp_path / "in"
    inside.mkdir()
    (inside / "linked.py").symlink_to(outside / "nets.py")
    with pytest.raises(ConfigError, match="no module linked"):
        load_entry("linked:Net", inside)


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("x = 1\n", "has no class or function Net"),
        ("Net = 3\n", "has no class or function Net"),
        ("def Net(:\n", "cannot be read"),
        ("raise RuntimeError('one\\ntwo')\n", "importing broken failed: RuntimeError: one"),
    ],
)
def test_code_that_does_not_give_an_entry_is_one_line(tmp_path: Path, code: str, said: str) -> None:
    (tmp_path / "broken.py").write_text(code)
    with pytest.raises(ConfigError, match=said) as refused:
        load_entry("broken:Net", tmp_path)
    assert "\n" not in str(refused.value)
