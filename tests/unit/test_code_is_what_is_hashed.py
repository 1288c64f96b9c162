"""What runs of the run file's folder is what was hashed, whatever else is in it."""

from __future__ import annotations

import importlib.machinery
import inspect
import os
import py_compile
import sys
from pathlib import Path

import pytest

from tacit.errors import ConfigError
from tacit.user_code import entry_digest, entry_files, load_entry


def test_a_planted_compiled_copy_is_not_run(tmp_path: Path) -> None:
    code = tmp_path / "bc_nets.py"
    code.write_text("def Net(): return 'evil'\n")
    copy = Path(str(py_compile.compile(str(code))))
    written = code.stat()
    code.write_text("def Net(): return 'good'\n")
    os.utime(code, ns=(written.st_atime_ns, written.st_mtime_ns))
    planted = copy.read_bytes()
    assert load_entry("bc_nets:Net", tmp_path).target() == "good"
    assert copy.read_bytes() == planted


def test_no_compiled_copy_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    (tmp_path / "nc_nets.py").write_text("def Net(): return 1\n")
    load_entry("nc_nets:Net", tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["nc_nets.py"]


@pytest.mark.parametrize("on_path", [False, True])
def test_a_planted_file_is_not_what_an_import_of_python_s_own_finds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, on_path: bool
) -> None:
    # aifc of Python's own imports chunk.
    (tmp_path / "chunk.py").write_text("raise SystemExit('executed')")
    (tmp_path / "tr_nets.py").write_text(
        "import warnings\nwarnings.simplefilter('ignore')\nimport aifc\ndef Net(): return aifc\n"
    )
    for name in ("aifc", "chunk"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    if on_path:  # as `python -m` has the folder that one is in
        monkeypatch.syspath_prepend(tmp_path)
    before = list(sys.path)
    aifc = load_entry("tr_nets:Net", tmp_path).target()
    assert not Path(sys.modules["chunk"].__file__ or "").is_relative_to(tmp_path)
    assert not Path(aifc.__file__).is_relative_to(tmp_path)
    assert sys.path == before
    assert entry_files("tr_nets:Net", tmp_path) == [Path("tr_nets.py")]


@pytest.mark.parametrize("where", ["us_late.py", "lib/us_late.py", "us_pack/us_late.py"])
def test_what_is_in_no_digest_is_not_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    for folder in ("lib", "us_pack"):
        (tmp_path / folder).mkdir()
    (tmp_path / "us_pack" / "__init__.py").write_text("")
    (tmp_path / where).write_text("raise SystemExit('executed')")
    name = "us_pack.us_late" if where.startswith("us_pack") else "us_late"
    (tmp_path / "us_nets.py").write_text(
        "import importlib, sys, us_pack\n"
        f"sys.path.insert(0, {str(tmp_path / 'lib')!r})\n"
        f"importlib.import_module({name!r})\n"
        "def Net(): return 1\n"
    )
    monkeypatch.setattr(sys, "path", list(sys.path))
    with pytest.raises(ConfigError, match=f"{name} is imported unseen"):
        load_entry("us_nets:Net", tmp_path)


def test_a_module_that_hides_its_file_is_refused_before_it_runs(tmp_path: Path) -> None:
    (tmp_path / "hf_late.py").write_text("del __file__\nraise SystemExit('executed')")
    code = "import importlib\nimportlib.import_module('hf_late')\ndef Net(): pass\n"
    (tmp_path / "hf_nets.py").write_text(code)
    with pytest.raises(ConfigError, match="hf_late is imported unseen"):
        load_entry("hf_nets:Net", tmp_path)


@pytest.mark.parametrize("changed", ["rw_nets.py", "rw_helper.py"])
def test_a_file_that_was_rewritten_runs_anew(tmp_path: Path, changed: str) -> None:
    (tmp_path / "rw_nets.py").write_text("from rw_helper import b\ndef Net(): return 1 * b\n")
    (tmp_path / "rw_loss.py").write_text("from rw_helper import b\ndef loss(): return b\n")
    (tmp_path / "rw_helper.py").write_text("b = 1\n")
    first = load_entry("rw_nets:Net", tmp_path)
    text = (tmp_path / changed).read_text()
    (tmp_path / changed).write_text(text.replace("1", "5"))
    load_entry("rw_loss:loss", tmp_path)  # reads the helper anew
    again = load_entry("rw_nets:Net", tmp_path)
    assert (first.target(), again.target()) == (1, 5)
    assert again.digest == entry_digest("rw_nets:Net", tmp_path) != first.digest
    assert "5" in inspect.getsource(sys.modules[changed.removesuffix(".py")])


def test_a_file_that_comes_or_goes_is_seen(tmp_path: Path) -> None:
    (tmp_path / "cg_nets.py").write_text(
        "try:\n    from cg_more import b\nexcept ImportError:\n    b = 0\ndef Net(): return b\n"
    )
    more = tmp_path / "cg_more.py"
    targets = [load_entry("cg_nets:Net", tmp_path).target()]
    more.write_text("b = 1\n")
    targets.append(load_entry("cg_nets:Net", tmp_path).target())
    more.unlink()
    targets.append(load_entry("cg_nets:Net", tmp_path).target())
    assert targets == [0, 1, 0]


def test_entries_of_one_folder_share_what_they_import(tmp_path: Path) -> None:
    (tmp_path / "sh_helper.py").write_text("class Out: pass\n")
    (tmp_path / "sh_nets.py").write_text("from sh_helper import Out\ndef Net(): return Out()\n")
    (tmp_path / "sh_loss.py").write_text("from sh_helper import Out\ndef loss(): return Out\n")
    network = load_entry("sh_nets:Net", tmp_path).target()
    assert isinstance(network, load_entry("sh_loss:loss", tmp_path).target())


def test_packages_and_imports_inside_functions_work(tmp_path: Path) -> None:
    inner = tmp_path / "rl_pack" / "inner"
    inner.mkdir(parents=True)
    (tmp_path / "rl_pack" / "__init__.py").write_text("from .inner.nets import Net\n")
    (tmp_path / "rl_pack" / "base.py").write_text("b = 2\n")
    (tmp_path / "rl_late.py").write_text("c = 3\n")
    (inner / "__init__.py").write_text("")
    (inner / "nets.py").write_text(
        "from ..base import b\ndef Net():\n    import rl_late\n    return b, rl_late.c\n"
    )
    assert load_entry("rl_pack:Net", tmp_path).target() == (2, 3)
    assert load_entry("rl_pack.inner.nets:Net", tmp_path).target() == (2, 3)


def test_the_text_that_is_shown_is_what_runs(tmp_path: Path) -> None:
    (tmp_path / "tx_nets.py").write_text("def Net():\n    return 1\n")
    net = load_entry("tx_nets:Net", tmp_path).target
    (tmp_path / "tx_nets.py").write_text("def Net():\n    return 'another'\n")
    assert inspect.getsource(net) == "def Net():\n    return 1\n"


def test_a_file_that_is_no_source_is_refused(tmp_path: Path) -> None:
    (tmp_path / "ns_nets.py").write_text("import ns_fast\ndef Net(): return 1\n")
    suffix = importlib.machinery.EXTENSION_SUFFIXES[0]
    (tmp_path / f"ns_fast{suffix}").write_bytes(b"")
    with pytest.raises(ConfigError, match="is no Python source"):
        load_entry("ns_nets:Net", tmp_path)


def test_a_helper_of_the_name_of_python_s_own_is_refused(tmp_path: Path) -> None:
    (tmp_path / "sd_nets.py").write_text("import json\ndef Net(): return json\n")
    (tmp_path / "json.py").write_text("raise SystemExit('executed')")
    with pytest.raises(ConfigError, match="json is a name of Python's own"):
        load_entry("sd_nets:Net", tmp_path)
