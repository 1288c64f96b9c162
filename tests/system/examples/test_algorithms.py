"""Every algorithm of examples/algorithms: it conforms, and its run file trains and is tuned."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import tomlkit
import torch
from tacit_services.conformance.played_run import Rehearsal
from tacit_services.conformance.suite import conform
from tacit_services.project.public_rows import public_rows
from tacit_services.project.tuning import tune
from tacit_services.testbed.simulated_run import Simulation

from tacit import config
from tacit.models.vectors import example_gradients
from tests.conftest import ROOT
from tests.helpers.nightly import nightly
from tests.helpers.processes import environment
from tests.system.examples.test_examples import trained

FOLDER = ROOT / "examples" / "algorithms"
NAMES = sorted(path.stem for path in FOLDER.glob("*.toml"))
LEARNING = ("dp_ftrl", "fedprox")
ASYNC = ("delay_adaptive", "fedadam")  # which are like each other over the broker
MOST_LINES = 80


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a copy of the examples: a module is taken from beside the run file."""
    return Path(shutil.copytree(FOLDER, tmp_path / "algorithms"))


def shortened(folder: Path, name: str, updates: int) -> Path:
    """Write a run file of at most so many updates, with the budget of its own number of pushes."""
    document = tomlkit.parse((folder / f"{name}.toml").read_text())
    document["run"]["updates"] = min(updates, document["run"]["updates"])
    file = folder / "short.toml"
    file.write_text(tomlkit.dumps(document))
    return file


def test_all_of_them_are_short() -> None:
    lines = {path.name: path.read_text().count("\n") for path in FOLDER.glob("*.py")}
    assert sorted(name.removesuffix(".py") for name in lines) == NAMES
    assert max(lines.values()) <= MOST_LINES, lines


@pytest.mark.parametrize(
    "name", ["dp_ftrl", *nightly("moments", "adaptive_clipping", "fedprox", *ASYNC)]
)
def test_it_conforms(name: str, folder: Path) -> None:
    uploads = config.load(folder / f"{name}.toml").define().traits.uploads
    run = config.load(shortened(folder, name, 24 // uploads + 2))
    failed = [result for result in conform(Rehearsal(run, 1)) if result.why is not None]
    assert not failed


@pytest.mark.parametrize("name", [*LEARNING, *nightly(*sorted({*NAMES} - {*LEARNING}))])
def test_it_learns_in_the_simulator(name: str, folder: Path) -> None:
    definition = config.load(folder / f"{name}.toml").define()
    simulation = Simulation(definition, None)
    test = definition.source.test(None)
    assert test is not None
    measured = simulation.measured(definition.metrics(), test)
    assert measured is not None
    assert measured["accuracy"] > 0.85
    assert all(record.spent for record in simulation.role.edges.values())


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", ["dp_ftrl", *nightly("fedprox", "adaptive_clipping", "moments", *ASYNC)]
)
def test_it_trains_over_the_broker(name: str, folder: Path, tmp_path: Path) -> None:
    file = shortened(folder, name, 200)
    summary, _ = trained(file, tmp_path / "out", environment(XDG_DATA_HOME=str(tmp_path / "home")))
    assert summary["applied"] == config.load(file).run.updates
    assert 0 < summary["privacy"]["epsilon"] <= config.load(file).privacy.epsilon
    assert summary["test_accuracy"] > 2 * summary["constant"]["accuracy"]


def test_a_statistic_is_the_gradient_whatever_the_parameters_are(folder: Path) -> None:
    """So a model that a server sends asks no other question, and each row's vector is its own."""
    definition = config.load(folder / "moments.toml").define()
    model = definition.build_model()
    test = definition.source.test(None)
    assert test is not None
    x, y = test.x[:20], test.y[:20]
    moments = example_gradients(model, torch.zeros(model.size), x, y)
    other = torch.randn(model.size, generator=torch.Generator().manual_seed(1))
    assert torch.equal(moments, example_gradients(model, other, x, y))
    rows = x.flatten(1)
    u = rows / rows.norm(dim=1, keepdim=True)
    second = torch.einsum("ni,nj->nij", u, u).flatten(1)
    cross = torch.einsum("ni,nj->nij", u, torch.eye(10)[y]).flatten(1)
    assert torch.allclose(moments, -torch.cat([second, cross], dim=1), atol=1e-6)
    assert moments.norm(dim=1).max() <= definition.privacy.constant_clip + 1e-6


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", NAMES)
def test_it_is_tuned(name: str, folder: Path, tmp_path: Path) -> None:
    run = config.load(folder / f"{name}.toml")
    result = tune(run, public_rows(run, "digits", None, tmp_path), trials=12, seed=1)
    assert any(key.startswith("algorithm.") for key in result.best.values)
    assert (result.best.metric or 0.0) > 0.8
