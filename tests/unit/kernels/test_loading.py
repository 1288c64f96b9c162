"""Whether the compiled loops are loaded, by whom, and from where."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path

import pytest

from tacit.kernels import jit, loading
from tests.conftest import ROOT

pytestmark = pytest.mark.skipif(
    loading.library() is None and not os.environ.get("CI"), reason="numba is not installed"
)
SAME_BITS = """
import hashlib, torch
from tacit.kernels.loading import described
from tacit.privacy.private_sum.clipping import integer_sum
from tacit.privacy.noise.mechanisms import discrete_gaussian, gaussian
from tacit.privacy.noise.randomness import Random
rows = torch.randn(20, 999, generator=torch.Generator().manual_seed(1))
total = integer_sum(rows, 1.0, torch.ones(20, dtype=torch.bool), 2.0**-12).total
noisy = discrete_gaussian(total, 1.0, Random(1))
other = gaussian(total, 4096.0, Random(2))
print(hashlib.sha256(noisy.numpy().tobytes() + other.numpy().tobytes()).hexdigest())
print(described())
"""
USED = """
import importlib, os
import numba
import numpy as np
from tacit.kernels import jit
numba.njit(lambda x: x)(1)  # loads the rest of numba, which the other user may not be able to read
os.setgroups([]); os.setgid(65534); os.setuid(65534)
importlib.reload(jit)
from tacit.kernels import noise
words = np.frombuffer(bytes(80), dtype="<u8")
noise.normals(words, np.empty((2, 5)), np.empty(2))
(hits,) = noise.normals.stats.cache_hits.values() or [0]
print(jit.WRITABLE, jit.CACHED, hits)
"""


def child(script: str, source: Path = ROOT / "src") -> list[str]:
    """Return the lines that a new process prints."""
    process = subprocess.run(
        [sys.executable, "-c", script],
        env=os.environ | {"PYTHONPATH": str(source)},
        cwd="/",
        capture_output=True,
        text=True,
        timeout=300,
        check=True,
    )
    return list(process.stdout.splitlines())


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """Yield a folder that other users may read; pytest closes its own where a session begins."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o755)
        yield folder


def test_what_an_edge_is_made_of_does_not_load_numba() -> None:
    (loaded,) = child("import sys, tacit.algorithms.mapa.mapa; print('numba' in sys.modules)")
    assert loaded == "False"


@pytest.mark.exhaustive
def test_without_numba_the_same_bits_are_released() -> None:
    bits, way = child(SAME_BITS)
    without, other = child("import sys; sys.modules['numba'] = None\n" + SAME_BITS)

    assert bits == without
    assert way.startswith("numba ")
    assert other == "plain torch (numba is not installed)"


def test_a_plan_of_rows_is_made_without_numba() -> None:
    script = """
import sys
sys.modules['numba'] = None
from tacit.models import build
from tacit.privacy.private_sum.row_plan import planned
plan = planned(build("cnn", (1, 12, 12), 10, channels=(4, 6), kernel=3, hidden=(11,)))
print(plan.table()["kind"].tolist())
print(len(plan.order) > 0)
"""
    assert child(script) == ["[0, 1, 2, 2]", "True"]


def test_every_function_is_compiled_beforehand() -> None:
    from tacit.kernels import __main__ as filling

    library = loading.library()
    assert library is not None
    functions = {getattr(library, entry.name) for entry in fields(library)}
    assert functions == {function for function, _ in filling._CALLS}
    assert filling._LONGEST in {function.__name__ for function in functions}


def test_a_cache_serves_a_copy_of_the_sources_that_has_other_times(open_folder: Path) -> None:
    """So one image compiles for all."""
    assert loading.library() is not None
    if not jit.FILLED.exists():
        pytest.skip("the cache is not filled: python -m tacit.kernels")
    ignored = shutil.ignore_patterns("*.pyc")
    shutil.copytree(ROOT / "src", open_folder / "src", ignore=ignored, copy_function=shutil.copy)
    for source in (open_folder / "src" / "tacit" / "kernels").glob("*.py"):
        os.utime(source, (1, 1))
    hits = """
import numpy as np
from tacit.kernels import noise
words = np.frombuffer(bytes(80), dtype="<u8")
noise.normals(words, np.empty((2, 5)), np.empty(2))
print(list(noise.normals.stats.cache_hits.values()))
"""
    assert child(hits, open_folder / "src") == ["[1]"]


@pytest.mark.exhaustive
@pytest.mark.skipif(os.geteuid() != 0, reason="needs another user, who may not write")
def test_a_filled_cache_serves_whoever_may_only_read(open_folder: Path) -> None:
    shutil.copytree(ROOT / "src", open_folder / "src", ignore=shutil.ignore_patterns("__pycache__"))

    unfilled = child(USED, open_folder / "src")
    subprocess.run(
        [sys.executable, "-m", "tacit.kernels"],
        env=os.environ | {"PYTHONPATH": str(open_folder / "src")},
        cwd="/",
        timeout=300,
        check=True,
    )

    assert unfilled == ["False False 0"]
    assert child(USED, open_folder / "src") == ["False True 1"]
