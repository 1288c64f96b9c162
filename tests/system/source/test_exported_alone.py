"""A low-rank addition that was trained and exported, used where neither tacit nor its run is.

The lines are those of the folder's own README.md.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import textwrap
from importlib.metadata import PackageNotFoundError, distribution
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from tacit import exported
from tests.conftest import ROOT
from tests.helpers.extras import needs
from tests.helpers.own_simulation import simulated
from tests.helpers.processes import PATIENCE
from tests.helpers.wheels import Venv

LORA = ROOT / "examples" / "lora"
SMALLER = {
    "updates = 300": "updates = 4",
    "pushes = 150": "pushes = 2",
    "rows = 4000": "rows = 40",
    "batch = 200": "batch = 10",
    "epsilon = 4.0": "epsilon = 50.0",
}
ASKED = 3  # rows
_REQUIRED = re.compile(r"^[A-Za-z0-9._-]+")
# Reads rows of numbers, and writes what the network says of them.
ASK = """
import json
import sys

assert not [name for name in sys.modules if name.startswith("tacit")]
rows = torch.tensor(json.load(open(sys.argv[1])))
network.eval()
with torch.no_grad():
    json.dump(network(rows).tolist(), open(sys.argv[2], "w"))
"""
ASK_ONNX = """
import json
import sys

import numpy
import onnxruntime

assert "torch" not in sys.modules
session = onnxruntime.InferenceSession("model.onnx")
rows = numpy.array(json.load(open(sys.argv[1])))
json.dump(session.run(["scores"], {"rows": rows})[0].tolist(), open(sys.argv[2], "w"))
"""


def nets(folder: Path) -> ModuleType:
    """Return the module of the networks in `folder`."""
    spec = spec_from_file_location("nets_of_lora", folder / "nets.py")
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Train low-rank additions for a little, and return the exported folder with rows to ask."""
    place = tmp_path_factory.mktemp("lora")
    shutil.copy(LORA / "nets.py", place)
    text = (LORA / "run.toml").read_text()
    for before, after in SMALLER.items():
        assert before in text
        text = text.replace(before, after)
    (place / "run.toml").write_text(text)
    module, draw = nets(place), np.random.default_rng(1)
    torch.manual_seed(1)
    save_file(module.with_additions(module.Net().state_dict()), place / "base.safetensors")
    for name, count in (("notes", 80), ("public", 20)):
        line = draw.integers(module.CHARACTERS, size=(count, module.PLACES + 1))
        np.savez(place / f"{name}.npz", x=line[:, :-1], y=line[:, 1:])
    simulated(place / "run.toml", place / "out")
    exported.export(place / "out", place / "model", with_onnx=True)
    rows = np.load(place / "public.npz")["x"][:ASKED]
    (place / "model" / "rows.json").write_text(json.dumps(rows.tolist()))
    return place / "model"


def expected(folder: Path) -> torch.Tensor:
    """Return what tacit's own model says of the rows."""
    model = exported.read(folder, trust_code=True)
    up = [value for name, value in model.model.unflatten(model.params).items() if "up" in name]
    assert all(value.any() for value in up)  # they were trained
    rows = torch.tensor(json.loads((folder / "rows.json").read_text()))
    with torch.no_grad():
        return model.model.logits(model.params, rows)


def script(folder: Path, *, with_onnx: bool) -> Path:
    """Write a script of the README's own lines that asks the model, and return it."""
    card = (folder / "README.md").read_text(encoding="utf-8")
    _, _, after = card.partition("or in Python, in this folder:\n\n")
    lines, _, told = after.partition("\n\nRows")
    if with_onnx:
        assert "(`pip install onnxruntime`):\n`model.onnx` takes `rows`" in told
        lines = ASK_ONNX
    else:
        assert "the lines need `pip install torch safetensors`" in told
        lines = "import torch\n" + textwrap.dedent(lines) + ASK
    path = folder / f"ask_{'onnx' if with_onnx else 'torch'}.py"
    path.write_text(lines)
    return path


def check_answers(folder: Path, answers: Path) -> None:
    said = torch.tensor(json.loads(answers.read_text()))
    answers.unlink()
    assert torch.allclose(said, expected(folder), rtol=1e-4, atol=1e-5)


def only(packages: list[str], place: Path) -> Path:
    """Return a folder with these packages and what they require, by links, and no other."""
    place.mkdir()
    waiting = list(packages)
    linked: set[str] = set()
    while waiting:
        name = waiting.pop()
        try:
            installed = distribution(name)
        except PackageNotFoundError:  # of another platform
            continue
        if installed.name in linked:
            continue
        linked.add(installed.name)
        for top in {file.parts[0] for file in installed.files or ()} - {"..", "__pycache__"}:
            source = Path(str(installed.locate_file(top)))
            if source.exists() and not (place / top).exists():
                (place / top).symlink_to(source)
        for line in installed.requires or ():
            required = _REQUIRED.match(line)
            if required is not None and "extra ==" not in line:
                waiting.append(required[0])
    return place


@needs("onnxruntime")
@pytest.mark.parametrize("with_onnx", [False, True])
def test_it_answers_the_same_beside_the_packages_that_its_card_names(
    folder: Path, tmp_path: Path, with_onnx: bool
) -> None:
    packages = ["onnxruntime", "numpy"] if with_onnx else ["torch", "safetensors"]
    path = only(packages, tmp_path / "only")
    assert not list(path.glob("tacit*"))
    begin = f"import runpy, sys; sys.path.append({str(path)!r}); sys.argv = sys.argv[1:]; "
    program = begin + "runpy.run_path(sys.argv[0], run_name='__main__')"
    asked = [str(script(folder, with_onnx=with_onnx)), "rows.json", str(tmp_path / "said.json")]
    completed = subprocess.run(
        [sys._base_executable, "-I", "-S", "-c", program, *asked],  # type: ignore[attr-defined]
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert completed.returncode == 0, completed.stderr
    check_answers(folder, tmp_path / "said.json")


@pytest.mark.exhaustive
@pytest.mark.parametrize("with_onnx", [False, True])
def test_it_answers_the_same_in_an_empty_environment(
    folder: Path, tmp_path: Path, with_onnx: bool
) -> None:
    made = [sys.executable, "-m", "venv", "--without-pip", str(tmp_path / "venv")]
    subprocess.run(made, check=True, timeout=PATIENCE)
    empty = Venv(tmp_path / "venv")
    if with_onnx:
        wanted = [f"onnxruntime=={distribution('onnxruntime').version}"]
    else:
        wanted = [f"safetensors=={distribution('safetensors').version}", "torch"]
        wanted[1] += "==" + torch.__version__.partition("+")[0]
    empty.pip("install", "--quiet", *wanted)
    asked = [str(script(folder, with_onnx=with_onnx)), "rows.json", str(tmp_path / "said.json")]
    completed = empty.run("python", *asked, cwd=folder)
    assert completed.returncode == 0, completed.stderr
    assert empty.run("python", "-c", "import tacit").returncode != 0
    check_answers(folder, tmp_path / "said.json")
