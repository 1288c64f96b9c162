"""`import tacit`: runs planned, simulated and trained from Python, and what comes of them."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from tacit_services.interface import ended_run

import tacit
from tacit import config
from tacit.errors import ConfigError, DataError, PrivacyError

DIGITS = {
    "run": {"updates": 30, "seed": 1},
    "data": {"dataset": "digits"},
    "model": {"name": "logistic"},
    "algorithm": {"name": "mapa"},
    "privacy": {"epsilon": 4.0},
    "edges": {"count": 2},
}


@pytest.fixture(scope="module")
def simulated(tmp_path_factory: pytest.TempPathFactory) -> tacit.Results:
    return tacit.simulate(DIGITS, out=tmp_path_factory.mktemp("python") / "run")


def table(seed: int, rows: int = 300) -> pd.DataFrame:
    """Return rows of two numbers and a class that they tell."""
    draw = random.Random(seed)
    points = [(draw.gauss(0, 1), draw.gauss(0, 1)) for _ in range(rows)]
    return pd.DataFrame([{"a": a, "b": b, "y": "yes" if a + b > 0 else "no"} for a, b in points])


def clinic(**sections: Any) -> dict[str, Any]:
    """Return a run of two edges with a table each."""
    columns = {"a": {"low": -4, "high": 4}, "b": {"low": -4, "high": 4}}
    data = {
        "train": [table(1), table(2)], "test": table(3), "target": "y", "rows": 300,
        "columns": {**columns, "y": {"values": ["no", "yes"]}},
    }  # fmt: skip
    run = {"run": {"updates": 40}, "data": data, "privacy": {"epsilon": 4.0}, "edges": {"count": 2}}
    return run | {"model": {"name": "logistic"}, "algorithm": {"name": "mapa"}} | sections


def test_a_simulated_run_gives_its_history_its_ledger_and_its_epsilon(
    simulated: tacit.Results,
) -> None:
    summary = json.loads((simulated.folder / "summary.json").read_text())
    assert simulated.summary == summary
    assert simulated.epsilon == summary["privacy"]["epsilon"] < 4.0
    assert list(simulated.ledger["edge"]) == ["edge-0", "edge-1"]
    assert simulated.history["accuracy"].iloc[-1] == summary["test_accuracy"]
    assert len(simulated.plot().axes) >= 4


def test_the_same_seed_gives_the_same_run(simulated: tacit.Results, tmp_path: Path) -> None:
    again = tacit.simulate(simulated.folder.with_name("run-definition") / "run.toml", out=tmp_path)
    assert again.summary["model_sha256"] == simulated.summary["model_sha256"]
    other = tacit.simulate(DIGITS, out=tmp_path / "other", seed=2)
    assert other.summary["model_sha256"] != simulated.summary["model_sha256"]


def test_its_network_is_one_of_torch_with_the_weights_of_the_run(simulated: tacit.Results) -> None:
    network = simulated.model()
    x = torch.rand(5, 1, 8, 8, generator=torch.Generator().manual_seed(1))
    assert network(x).shape == (5, 10)
    torch.testing.assert_close(network(x)[:1], network(x[:1]))
    size = sum(weights.numel() for weights in network.parameters())
    assert size == simulated.summary["parameters"]
    network(x).sum().backward()
    assert all(weights.grad is not None for weights in network.parameters())


def test_without_pandas_tables_are_lists(
    simulated: tacit.Results, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ended_run, "find_spec", lambda name: None)
    assert [row["edge"] for row in simulated.ledger] == ["edge-0", "edge-1"]
    assert simulated.history[-1]["accuracy"] == simulated.summary["test_accuracy"]


def test_a_plan_is_that_of_the_run_file(tmp_path: Path) -> None:
    plans = tacit.plan(DIGITS, out=tmp_path / "run")
    file = tmp_path / "run-definition" / "run.toml"
    definition = config.load(file).define()
    assert plans == tuple(definition.plans.plan(number) for number in range(2))
    assert {plan.epsilon for plan in plans} == {4.0}
    assert tacit.plan(file) == plans


def arrays(seed: int, rows: int = 200) -> dict[str, Any]:
    """Return rows of four numbers and whether their sum is above 2, as arrays by name."""
    x = np.random.default_rng(seed).random((rows, 4)).astype("float32")
    return {"x": x, "y": (x.sum(1) > 2).astype(int)}


def of_arrays(**data: Any) -> dict[str, Any]:
    keys = {"shape": [4], "low": 0.0, "high": 1.0, "classes": 2, "rows": 200}
    train = [arrays(1), arrays(2)]
    return clinic(data={"train": train, **keys, **data}, run={"updates": 10})


def test_arrays_are_rows_for_training_rehearsing_and_predicting(tmp_path: Path) -> None:
    results = tacit.simulate(of_arrays(), public=arrays(3), out=tmp_path / "run", quiet=True)

    folder = tmp_path / "run-definition"
    assert sorted(path.name for path in folder.glob("*.npz")) == [
        "public.npz", "site0.npz", "site1.npz",
    ]  # fmt: skip
    assert all(path.stat().st_mode & 0o077 == 0 for path in folder.glob("*.npz"))
    rows = arrays(4, rows=30)
    torch_rows = {name: torch.from_numpy(values) for name, values in rows.items()}
    assert len(results.predict(rows)) == 30
    assert results.predict(torch_rows).equals(results.predict(rows))


def test_own_rows_are_rehearsed_on_public_ones_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "home"))
    run = clinic()
    with pytest.raises(ConfigError, match="a simulation charges no ledger"):
        tacit.simulate(run, out=tmp_path / "run")
    results = tacit.simulate(run, public=table(5, rows=200), out=tmp_path / "run", quiet=True)

    assert results.summary["privacy"]["simulated"] is True
    assert results.summary["applied"] == 40
    assert capsys.readouterr().out == ""
    assert not (tmp_path / "home").exists()  # no ledger was asked to pay, or made
    for private in (run["data"]["train"][1], table(1)):
        with pytest.raises(PrivacyError, match="is a training file, or a copy"):
            tacit.simulate(run, public=private, out=tmp_path / "run")


def test_a_network_becomes_a_graph_that_fits_the_rows(tmp_path: Path) -> None:
    network = torch.nn.Sequential(torch.nn.Linear(2, 4), torch.nn.Tanh(), torch.nn.Linear(4, 2))
    before = {name: value.clone() for name, value in network.state_dict().items()}
    tacit.plan(clinic(model=network), out=tmp_path / "run")
    file = tmp_path / "run-definition" / "run.toml"
    assert config.load(file).define().build_model().size == 4 * 2 + 4 + 2 * 4 + 2
    assert all(torch.equal(before[name], value) for name, value in network.state_dict().items())
    assert (file.parent / "site0.csv").stat().st_mode & 0o077 == 0


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"model": "nets:Net"}, "model: is a str; expected keys or a torch module"),
        ({"model": torch.nn.Linear(3, 2)}, "model Linear: "),
        ({"edges": {"cuont": 2}}, "edges.cuont"),
        ({"algorithm": {"name": object()}}, "run: "),
        ({"data": {"train": [table(1), "rows"]}}, "data.train: item 1 is no DataFrame"),
        ({"data": {"train": [table(1), {"x": np.zeros(3)}]}}, "each edge has rows of one kind"),
        ({"data": {"train": []}}, "data.train: is an empty list"),
        ({"data": {"train": {"x": np.array([None])}}}, "array x is of Python objects"),
    ],
)
def test_what_cannot_be_a_run_is_refused_in_one_line(
    change: dict[str, Any], words: str, tmp_path: Path
) -> None:
    with pytest.raises(ConfigError) as refused:
        tacit.plan(clinic(**change), out=tmp_path / "run")
    assert words in str(refused.value)


def test_a_folder_without_results_is_refused_in_one_line(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="name the folder of a run that has ended"):
        tacit.load(tmp_path)
    with pytest.raises(AttributeError, match="no attribute 'learn'"):
        tacit.learn  # noqa: B018


@pytest.mark.slow
def test_tables_are_trained_on_by_processes_and_new_rows_predicted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "home"))
    data = {name: section for name, section in clinic().items() if name not in ("run", "model")}
    run = data | {"algorithm": {"name": "least-squares"}}
    results = tacit.train(run, out=tmp_path / "run")
    assert results.epsilon is not None
    assert 0 < results.epsilon <= 4.0
    rows = table(4, rows=50)
    answers = results.predict(rows.drop(columns="y"))
    assert (answers["prediction"] == rows["y"]).mean() > 0.7
    assert ((answers["probability no"] + answers["probability yes"]).round(6) == 1).all()
