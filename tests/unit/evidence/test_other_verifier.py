"""A verifier that was written from docs/verify.md alone agrees with `tacit verify`."""

from __future__ import annotations

import importlib.util
import shutil
from collections.abc import Callable, Iterable
from functools import cache
from pathlib import Path
from types import ModuleType

import pytest

from tests.conftest import ROOT
from tests.helpers.evidence import past_run, verdict_of
from tests.unit.evidence.test_forgeries import (
    Change,
    Scene,
    by_the_host,
    results_by_the_host,
    scene,
    strangers,
)

__all__ = ["scene"]  # a fixture
# What it leaves out, as it says: a fault that nothing else shows is none to it.
LEFT_OUT = {"page", "fold", "zip", "sbom", "attacks"}


@cache
def verifier() -> ModuleType:
    path = ROOT / "clients" / "verifier" / "verify_bundle.py"
    spec = importlib.util.spec_from_file_location("verify_bundle", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def anchors_of(scene: Scene, folder: Path) -> Path:
    path = folder / "anchors.txt"
    keys = {edge: signed.key for edge, signed in scene.run.statements.items()}
    path.write_text("".join(f"{edge} sha256:{key}\n" for edge, key in keys.items()))
    return path


def disagreements(
    scene: Scene, folder: Path, forgeries: Iterable[tuple[str, Change]]
) -> list[tuple[str, object]]:
    """Return the forgeries of which the two say different things, with what each says."""
    anchors = anchors_of(scene, folder)
    different: list[tuple[str, object]] = []
    for number, (name, change) in enumerate(forgeries):
        copy = folder / str(number)
        shutil.copytree(scene.folder, copy)
        change(copy)
        codes = {finding.code for finding in verdict_of(copy, scene.run.anchors()).refused}
        reasons = verifier().refused(copy, [anchors])
        if bool(codes - LEFT_OUT) != bool(reasons) and codes != {"page"}:
            different.append((name, (sorted(codes), reasons)))
        shutil.rmtree(copy)
    return different


def signed(scene: Scene, change: Change) -> Callable[[Path], None]:
    from tests.helpers.evidence import signed_anew

    def changed(folder: Path) -> None:
        change(folder)
        signed_anew(folder, scene.run.authority)

    return changed


def test_both_accept_a_true_bundle(scene: Scene, tmp_path: Path) -> None:
    assert verdict_of(scene.folder, scene.run.anchors()).ok
    assert verifier().refused(scene.folder.with_suffix(".zip"), [anchors_of(scene, tmp_path)]) == []


@pytest.mark.exhaustive
def test_both_refuse_results_that_promise_too_much(scene: Scene, tmp_path: Path) -> None:
    forgeries = [
        (name, signed(scene, change))
        for name, change, _ in results_by_the_host(scene)
        if "card" not in name
    ]
    assert disagreements(scene, tmp_path, forgeries) == []


@pytest.mark.exhaustive
def test_both_say_the_same_of_more_than_a_hundred_bundles(scene: Scene, tmp_path: Path) -> None:
    forgeries = [*strangers(scene), *by_the_host(scene)]
    assert len(forgeries) >= 130
    assert disagreements(scene, tmp_path, forgeries) == []


@pytest.mark.exhaustive
@pytest.mark.parametrize("edges", [1, 4])
def test_both_accept_true_bundles_of_other_runs(edges: int, tmp_path: Path) -> None:
    run = past_run(tmp_path / "run", edges=edges, updates=4 * edges)
    run.bundle(tmp_path / "bundle")
    assert verdict_of(tmp_path / "bundle").ok
    assert verifier().refused(tmp_path / "bundle", []) == []
