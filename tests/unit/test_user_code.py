"""Entries: code is named, never received, and known by its hash."""

from __future__ import annotations

from pathlib import Path

import pytest

from tacit.errors import ConfigError
from tacit.user_code import entry_digest, entry_files, load_entry

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
    assert load_entry("one:make", _write_entry(tmp_path / "a", 1)).target() == 1
    assert load_entry("one:make", _write_entry(tmp_path / "b", 2)).target() == 2


def _write_entry(path: Path, value: int) -> Path:
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
        ConfigError,
        match=r"no module .* beside the run file \(.*\) or among the installed packages",
    ):
        load_entry(entry, tmp_path)


def test_a_link_that_leads_out_of_the_folder_is_refused(tmp_path: Path) -> None:
    outside, inside = folder(tmp_path / "out"), tmp_path / "in"
    inside.mkdir()
    (inside / "linked.py").symlink_to(outside / "nets.py")
    with pytest.raises(ConfigError, match=r"linked.py leads out of the run file.s folder"):
        load_entry("linked:Net", inside)


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("x = 1\n", "has no class or function Net"),
        ("Net = 3\n", "has no class or function Net"),
        ("def Net(:\n", "cannot be read"),
        ("raise RuntimeError('one\\ntwo')\n", "importing broken failed: RuntimeError: one"),
        ("raise SystemExit(0)\n", "importing broken failed: SystemExit: 0"),
    ],
)
def test_code_that_does_not_give_an_entry_is_one_line(
    tmp_path: Path, code: str, message: str
) -> None:
    (tmp_path / "broken.py").write_text(code)
    with pytest.raises(ConfigError, match=message) as refused:
        load_entry("broken:Net", tmp_path)
    assert "\n" not in str(refused.value)


def test_a_package_runs_as_it_is_hashed(tmp_path: Path) -> None:
    # Given a module and a package of the same name, Python takes the package.
    (tmp_path / "nets").mkdir()
    (tmp_path / "nets" / "__init__.py").write_text("from .inner import Net")
    (tmp_path / "nets" / "inner.py").write_text("class Net: number = 1")
    (tmp_path / "nets.py").write_text("class Net: number = 2")
    entry = load_entry("nets:Net", tmp_path)
    assert entry.target.number == 1
    # When what it imports changes, then so does what is agreed on.
    for changed in ("nets/inner.py", "nets/__init__.py"):
        before = entry_digest("nets:Net", tmp_path)
        (tmp_path / changed).write_text((tmp_path / changed).read_text() + "\n# changed")
        assert entry_digest("nets:Net", tmp_path) != before


@pytest.mark.parametrize("linked", ["aside.py", "aside"])
def test_what_an_entry_imports_must_not_lead_out_of_the_folder(tmp_path: Path, linked: str) -> None:
    folder, outside = tmp_path / "run", tmp_path / "outside"
    folder.mkdir()
    (outside / "aside").mkdir(parents=True)
    for path in (outside / "aside.py", outside / "aside" / "__init__.py"):
        path.write_text("raise SystemExit('executed')")
    (folder / "nets.py").write_text("import aside\nclass Net: pass")
    (folder / linked).symlink_to(outside / linked)
    for read in (load_entry, entry_digest):
        with pytest.raises(ConfigError, match="leads out of the run file's folder"):
            read("nets:Net", folder)


def test_a_module_that_is_imported_unseen_is_refused(tmp_path: Path) -> None:
    (tmp_path / "hidden_helper.py").write_text("number = 1")
    code = "import importlib\nhelp = importlib.import_module('hidden_helper')\nclass Net: pass"
    (tmp_path / "unseen_nets.py").write_text(code)
    with pytest.raises(ConfigError, match="hidden_helper is imported unseen"):
        load_entry("unseen_nets:Net", tmp_path)
    (tmp_path / "seen_nets.py").write_text("import hidden_helper\nclass Net: pass")
    assert load_entry("seen_nets:Net", tmp_path).from_folder


@pytest.mark.parametrize("name", ["json", "safetensors"])
def test_a_name_that_python_or_a_package_has_is_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / f"{name}.py").write_text("class Net: pass")
    with pytest.raises(ConfigError, match="rename yours"):
        load_entry(f"{name}:Net", tmp_path)


def test_looking_for_a_module_runs_no_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "beside").mkdir()
    (tmp_path / "beside" / "__init__.py").write_text("raise SystemExit('executed')")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ConfigError, match=r"no module beside\.nets"):
        entry_digest("beside.nets:Net", tmp_path / "elsewhere")


HIDING = {
    "utf-7": b"# coding: utf-7\n# a comment +AAo-HIDDEN = 1\ndef Net(): return 1\n",
    "latin-1": b"# -*- coding: latin-1 -*-\ndef Net(): return 1\n",
    "utf-8 that is none": b"x = '\xff'\ndef Net(): return 1\n",
    "U+202E": "def Net(): return 1  # \u202e erom on\n".encode(),
    "U+2066": "def Net(): return '\u2066'\n".encode(),
    "U+200B": "def Net(): return 1  #\u200b\n".encode(),
    "U+FEFF": "x = 1\ufeff\ndef Net(): return 1\n".encode(),
    "U+3164": "def Net(\u3164=1): return \u3164\n".encode(),
    "U+E0101": "def Net(): return 'a\U000e0101'\n".encode(),
    "U+2028": "def Net(): return 1  # a\u2028b\n".encode(),
    "U+0000": b"x = 1 # \x00\ndef Net(): return 1\n",
    "U+000C": b"if False:\n    pass\n\x0c    x = 1\ndef Net(): return 1\n",
    "U+000D": b"# nothing here\rHIDDEN = 1\ndef Net(): return 1\n",
    "U+001B": b"# \x1b[8m\ndef Net(): return 1\n",
    "more than": b"#" * (1 << 20) + b"\ndef Net(): return 1\n",
}


@pytest.mark.parametrize("hidden", HIDING)
@pytest.mark.parametrize("helper", [False, True])
def test_source_that_looks_otherwise_than_it_runs_is_refused(
    tmp_path: Path, hidden: str, helper: bool
) -> None:
    name = "hd_helper" if helper else "hd_nets"
    (tmp_path / "hd_nets.py").write_bytes(b"from hd_helper import Net\n")
    (tmp_path / f"{name}.py").write_bytes(HIDING[hidden])
    for read in (load_entry, entry_digest, entry_files):
        with pytest.raises(ConfigError) as refused:
            read("hd_nets:Net", tmp_path)
        assert str(refused.value).isprintable()
        if hidden.startswith("U+"):
            assert hidden in str(refused.value)


def test_words_in_other_scripts_are_code_as_any(tmp_path: Path) -> None:
    text = "\ufeff# -*- coding: utf-8 -*-\r\n\tdef\r\n".replace("\tdef\r\n", "")
    text += "# Größe, 大きさ, גודל, é\r\ndef Net():\r\n\treturn 'ε ≤ 1'\r\n"
    (tmp_path / "ws_nets.py").write_bytes(text.encode())
    assert load_entry("ws_nets:Net", tmp_path).target() == "ε ≤ 1"


@pytest.mark.parametrize("code", ["-" * 100_000, "(" * 100_000, "x = " + "[" * 100_000])
def test_source_that_python_cannot_parse_for_depth_is_one_line(tmp_path: Path, code: str) -> None:
    (tmp_path / "dp_nets.py").write_text(code)
    with pytest.raises(ConfigError, match="dp_nets cannot be read"):
        load_entry("dp_nets:Net", tmp_path)
