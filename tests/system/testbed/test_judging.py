"""A run that judges at its edges, over a real broker: noisy figures, ledgers of two sides."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from tacit import config
from tacit.datasets.benchmarks.load import Dataset
from tacit.datasets.held_out import UnitSplit
from tacit.models import evaluate
from tacit.privacy.accounting import epsilon_pld
from tacit.privacy.accounting.history import by_side
from tacit.privacy.ledger import read_chains
from tests.helpers.clinic import tacit

ROWS, EDGES, LOOKS = 6_000, 3, 3
FILE = """
run.updates = 45
data.kind = "table"
data.train = "people.csv"
data.target = "y"
data.unit = "id"
data.unit_rows = 2
data.rows = 2000
data.columns.a = { low = 0, high = 1 }
data.columns.b = { low = 0, high = 1 }
data.columns.y = { values = ["no", "yes"] }
model.name = "logistic"
algorithm.name = "fedasync"
algorithm.learning_rate = 1.0
edges.count = 3
edges.grace = 20
privacy.epsilon = 4.0
privacy.clip = 1.0
evaluation.at = "edges"
evaluation.epsilon = 1.5
evaluation.looks = 3
"""


@pytest.fixture(scope="module")
def clinic(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with a table of people, on which a run was judged at its edges."""
    random = np.random.default_rng(3)
    a, b = random.random(ROWS), random.random(ROWS)
    yes = random.random(ROWS) < 1 / (1 + np.exp(-8 * (a - b)))
    lines = [
        f"{number},{x:.4f},{z:.4f},{'yes' if y else 'no'}"
        for number, (x, z, y) in enumerate(zip(a, b, yes, strict=True))
    ]
    folder = tmp_path_factory.mktemp("judging") / "clinic"
    folder.mkdir()
    (folder / "people.csv").write_text("id,a,b,y\n" + "\n".join(lines) + "\n")
    (folder / "run.toml").write_text(FILE)
    completed = tacit(folder, "run", "run.toml", "--journal", "journal.bin")
    assert completed.returncode == 0, completed.stderr + completed.stdout
    (folder / "said").write_text(completed.stdout)
    return folder


def ledgers(folder: Path) -> list[Path]:
    return sorted((folder.parent / "home").rglob("edge-*.db"))


def looks_of(folder: Path) -> list[dict[str, Any]]:
    looks: list[dict[str, Any]] = json.loads((folder / "out" / "run" / "looks.json").read_text())
    return looks


def held_out(folder: Path) -> Dataset:
    """Return all rows that the edges have held out, by the keys in their ledgers."""
    source = config.load(folder / "run.toml").define().source
    xs, ys = [], []
    for number, path in enumerate(ledgers(folder)):
        with closing(sqlite3.connect(path)) as db:
            ((key, share),) = db.execute("SELECT key, held_out FROM split").fetchall()
        assert float.fromhex(share) == 0.2
        part = source.edge(number, None, folder.parent / f"keep-{number}", UnitSplit(key, 0.2))
        assert part.held_out is not None
        rows = part.held_out.for_edge(2)
        xs.append(rows.x[:-1])
        ys.append(rows.y[:-1])
    return Dataset(torch.cat(xs), torch.cat(ys), 2, "held out")


def test_each_look_has_figures_with_intervals_of_all_edges(clinic: Path) -> None:
    looks = looks_of(clinic)
    assert [look["version"] for look in looks] == [15, 30, 45]
    summary = json.loads((clinic / "out" / "run" / "summary.json").read_text())
    assert summary["looks"] == looks
    assert summary["judged"] == looks[-1]
    last = looks[-1]
    assert (last["look"], last["looks"], last["edges"], last["of"]) == (LOOKS, LOOKS, EDGES, EDGES)
    for figure in last["metrics"].values():
        assert figure["low"] <= figure["value"] <= figure["high"]
    assert {"accuracy", "auc"} <= last["metrics"].keys()
    screen = (clinic / "said").read_text()
    assert "judged at edges" in screen
    assert "look 3 of 3, 3 of 3 edges" in screen


def test_the_figures_are_those_of_the_rows_that_were_held_out(clinic: Path) -> None:
    definition = config.load(clinic / "run.toml").define()
    model = definition.build_model()
    layers = load_file(clinic / "out" / "run" / "model.safetensors")
    params = torch.cat([layers[name].flatten() for name, _ in model.layout])
    rows = held_out(clinic)
    assert abs(len(rows) / ROWS - 0.2) < 0.03
    exact, _ = evaluate(model, params, rows)
    figure = looks_of(clinic)[-1]["metrics"]["accuracy"]
    half = (figure["high"] - figure["low"]) / 2
    assert 0 < half < 0.1
    assert abs(figure["value"] - exact) < 2 * half  # 4 standard deviations


def test_the_ledgers_have_each_release_on_its_side_and_cost_the_larger(clinic: Path) -> None:
    summary = json.loads((clinic / "out" / "run" / "summary.json").read_text())
    for number, path in enumerate(ledgers(clinic)):
        (chain,) = read_chains(path)
        chain.verify()
        history = chain.history()
        counts = dict.fromkeys(("training", "held_out"), 0)
        for row in history:
            counts[row.side] += row.count
        assert counts["held_out"] == LOOKS
        edge = summary["privacy"]["edges"][f"edge-{number}"]
        assert edge["pushes"] == counts["training"]  # nothing is charged in vain
        assert edge["charged"]["count"] == counts["training"] + LOOKS
        trained, judged = (epsilon_pld(rows, 1e-5) for rows in by_side(history))
        assert judged <= 1.5 < trained <= 4.0
        assert edge["epsilon_pld"] == pytest.approx(trained)
    assert summary["privacy"]["epsilon"] == max(
        edge["epsilon_pld"] for edge in summary["privacy"]["edges"].values()
    )


def test_the_best_model_by_looks_lies_beside_the_last(clinic: Path) -> None:
    summary = json.loads((clinic / "out" / "run" / "summary.json").read_text())
    best = summary["models"]["best"]
    assert (clinic / "out" / "run" / best["file"]).is_file()
    assert best["look"] in (1, 2, 3)
    assert best["version"] == 15 * best["look"]


def test_a_replay_of_the_journal_ends_in_the_same_model(clinic: Path) -> None:
    completed = tacit(clinic, "replay", "journal.bin", "--json")
    assert completed.returncode == 0, completed.stderr
    replayed = json.loads(completed.stdout)
    summary = json.loads((clinic / "out" / "run" / "summary.json").read_text())
    assert replayed["model_sha256"] == summary["model_sha256"]
    assert (replayed["version"], replayed["halted"]) == (45, "all updates applied")


def test_another_share_is_refused_in_one_line_before_anything_is_spent(clinic: Path) -> None:
    before = [path.read_bytes() for path in ledgers(clinic)]
    (clinic / "other.toml").write_text(FILE + "evaluation.held_out = 0.3\nrun.name = 'other'\n")
    completed = tacit(clinic, "run", "other.toml")
    assert completed.returncode != 0
    assert "holds out 0.2 of its units" in completed.stdout + completed.stderr
    charged = [read_chains(path)[0].count for path in ledgers(clinic)]
    assert len(before) == len(charged) == EDGES
    summary = json.loads((clinic / "out" / "run" / "summary.json").read_text())
    assert charged == [
        summary["privacy"]["edges"][f"edge-{n}"]["charged"]["count"] for n in range(EDGES)
    ]
