"""A first run on Credit where no row is public, beside one that was given a public sample.

`python -m tacit_lab.studies.first_run [seed ...]` measures what lab/measured/first-run.json does
not have yet, and prints the table of docs/judging.md. The default is seeds 1 to 5. It takes a
minute or so for each on one core. TACIT_DATA names the folder of data sets. A measurement that has
ended is not repeated, so it may be ended and started again at any time.

Five sites of unequal sizes have 24,000 rows, dealt by Dirichlet's proportions of the two classes.
The first run knows the names of its columns. It asks the sites at ε = 0.2 and begins a project from
the answers, as `tacit new --answers` does. It trains at 3.3 and is judged on a fifth of the rows at
0.5.
The other one has 1,000 rows as a public sample, from which `tacit new` has bounds and steps, and
spends 4.0 on training on all rows. Numbers of a file that are edited are in `_edited`. Both are
scored on 5,000 rows that neither has read. The roles run in the simulator, with noise from a seed:
no release.
"""

from __future__ import annotations

import csv
import gzip
import json
import os
import re
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
import torch
from tacit_services.aggregator.reporting.run_answers import RunAnswers
from tacit_services.aggregator.reporting.run_looks import RunLooks
from tacit_services.project import ask_file, new_folder
from tacit_services.project.draft import LOGISTIC, DraftRequest
from tacit_services.testbed.simulated_run import Simulation

from tacit import config
from tacit.config import RunFile
from tacit.datasets.held_out import UnitSplit
from tacit.datasets.partition import all_shards
from tacit.models.ranks import area
from tacit.privacy.accounting import History, epsilon_pld
from tacit.privacy.accounting.history import by_side
from tacit_lab.checkout import ROOT
from tacit_lab.studies.eight_projects import encoded

OUT = ROOT / "lab" / "measured" / "first-run.json"
CREDIT = "credit-default/UCI_Credit_Card.csv.gz"
TARGET = "defaulted"
SITES = 5
ASKED, TRAINED, JUDGED, PLAIN = 0.2, 3.3, 0.5, 4.0
_PUBLIC, _TEST = 1000, 5000
_MOST = 24_000  # public: as many as all sites have, so no dealing is refused
_ALPHA = 1.0
_LAST = "PAY_0"  # how late the last payment was: the column that tells most
_CODES = ("SEX", "EDUCATION", "MARRIAGE", _LAST, *(f"PAY_{month}" for month in range(2, 7)))
_WEIGHT = 4.0  # of the question about the last payment
_SLACK = 1.05  # of an edge's pushes: who has spent its budget judges no more
_SHARES = "0.05 0.1 0.25 0.5 0.75 0.9 0.95"
_ROWS = f"""[data]
kind = "table"
train = "site{{edge}}.csv"
rows = {_MOST}

[edges]
count = {SITES}
"""
_JUDGED = f"""
at = "edges"
epsilon = {JUDGED}
"""


@dataclass(frozen=True, slots=True)
class CreditTable:
    """A header, and rows of text."""

    header: list[str]
    rows: list[list[str]]

    @property
    def parts(self) -> tuple[list[int], list[int], list[int]]:
        """Return the places of public rows, test rows and all others, in a fixed order."""
        order = np.random.default_rng(1).permutation(len(self.rows)).tolist()
        test = _PUBLIC + _TEST
        return order[:_PUBLIC], order[_PUBLIC:test], order[test:]

    def write(self, path: Path, places: Sequence[int]) -> None:
        """Write the rows at these places as a CSV."""
        with path.open("w", encoding="utf-8", newline="") as file:
            csv.writer(file).writerows([self.header, *(self.rows[place] for place in places)])

    def sites(self, seed: int) -> list[list[int]]:
        """Return the places of each site's rows."""
        _, _, private = self.parts
        labels = torch.tensor([int(self.rows[place][-1]) for place in private])
        shards = all_shards(labels, shards=SITES, method="dirichlet", seed=seed, alpha=_ALPHA)
        return [[private[number] for number in shard.tolist()] for shard in shards]

    def questions(self) -> dict[str, float]:
        """Return what is asked, each with its weight: bounds of numbers, and names of codes."""
        columns = [name for name in self.header if name not in ("ID", TARGET)]
        numbers = [name for name in columns if name not in _CODES]
        asked = [
            "count",
            *(f"quantile {name} {_SHARES}" for name in numbers),
            *(f"counts by {name}" for name in (*_CODES, TARGET)),
        ]
        return dict.fromkeys(asked, 1.0) | {f"counts by {_LAST}": _WEIGHT}


def credit(root: Path) -> CreditTable:
    """Return Credit, its target called `defaulted`. Raises FileNotFoundError."""
    with gzip.open(root / CREDIT, "rt", encoding="utf-8", newline="") as file:
        header, *rows = csv.reader(file)
    return CreditTable([*header[:-1], TARGET], rows)


def main() -> None:
    """Measure what is missing, and print."""
    torch.set_num_threads(1)
    table = credit(Path(os.environ["TACIT_DATA"]))
    results: list[dict[str, Any]] = []
    if OUT.exists():
        results = json.loads(OUT.read_text(encoding="utf-8"))
    measured = {row["seed"] for row in results}
    for seed in [int(word) for word in sys.argv[1:]] or [1, 2, 3, 4, 5]:
        if seed in measured:
            continue
        with tempfile.TemporaryDirectory(prefix="tacit-first-") as folder:
            results.append(measure(table, seed, Path(folder)))
        OUT.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
        print(json.dumps(results[-1]), flush=True)
    print(as_markdown(results))


def measure(table: CreditTable, seed: int, folder: Path) -> dict[str, Any]:
    """Return what both runs reach on the test rows, and what the first one cost."""
    public, test, _ = table.parts
    sites = table.sites(seed)
    for name, places in (("public", public), ("test", test)):
        table.write(folder / f"{name}.csv", places)
    asked = _asked(table, sites, seed, folder / "asked")
    first = _trained(_first(table, sites, seed, folder), seed, folder / "test.csv")
    given = _trained(_given(table, sites, seed, folder), seed, folder / "test.csv")
    joint = max(
        _joint((*questions, *run)) for questions, run in zip(asked, first.histories, strict=True)
    )
    return {
        "seed": seed,
        "rows": [len(site) for site in sites],
        "first": {"auc": first.auc, "columns": first.columns, "epsilon": joint}
        | {"asked": ASKED, "trained": TRAINED, "judged": JUDGED, "look": first.look},
        "given": {"auc": given.auc, "columns": given.columns}
        | {"epsilon": max(map(_joint, given.histories))},
    }


def _asked(table: CreditTable, sites: list[list[int]], seed: int, folder: Path) -> list[History]:
    """Ask the sites, write answers.json into `folder`, and return what each has spent."""
    folder.mkdir()
    _write_sites(table, sites, folder)
    (folder / "run.toml").write_text(_ROWS, encoding="utf-8")
    asked = table.questions()
    file = ask_file.asked(folder / "run.toml", [*asked], [*asked.values()], ASKED)
    simulation = _simulation(_run(file, seed), folder)
    simulation.simulator.run(lambda role: None)
    documents = RunAnswers(simulation.definition).of(simulation.reading())
    (folder / "answers.json").write_text(json.dumps(documents), encoding="utf-8")
    return _histories(simulation)


def _first(table: CreditTable, sites: list[list[int]], seed: int, folder: Path) -> RunFile:
    """Return the run that begins from answers.json, judged at the edges."""
    answers = folder / "asked" / "answers.json"
    request = DraftRequest(None, TARGET, None, LOGISTIC, sites=SITES, answers=answers)
    project = folder / "first"
    new_folder.make(project, request, folder / "home")
    _write_sites(table, sites, project)
    _edited(project / "run.toml", TRAINED, _SLACK)
    with (project / "run.toml").open("a", encoding="utf-8") as file:
        file.write(_JUDGED)  # its last section is [evaluation]
    return _run(project / "run.toml", seed)


def _given(table: CreditTable, sites: list[list[int]], seed: int, folder: Path) -> RunFile:
    """Return the run that begins from a public sample."""
    request = DraftRequest(folder / "public.csv", TARGET, None, LOGISTIC, sites=SITES)
    project = folder / "given"
    new_folder.make(project, request, folder / "home")
    _write_sites(table, sites, project)
    _edited(project / "run.toml", PLAIN)
    return _run(project / "run.toml", seed)


def _edited(file: Path, epsilon: float, slack: float = 1.0) -> None:
    """Edit what a user would: ε, the public numbers of a site's rows, and of its pushes."""
    text = file.read_text(encoding="utf-8")
    rows = f"{_MOST // SITES}\nrows_max = {_MOST}"
    (pushes,) = re.findall(r"(?m)^pushes = (\d+)", text)
    lines = {"epsilon": str(epsilon), "rows": rows, "pushes": str(int(slack * int(pushes)))}
    for key, value in lines.items():
        text, count = re.subn(rf"(?m)^{key} = .*", f"{key} = {value}", text)
        assert count == 1
    file.write_text(text, encoding="utf-8")


def _write_sites(table: CreditTable, sites: list[list[int]], folder: Path) -> None:
    for number, places in enumerate(sites):
        table.write(folder / f"site{number}.csv", places)


def _run(file: Path, seed: int) -> RunFile:
    return config.parse(file.read_text(encoding="utf-8"), str(file), folder=file.parent, seed=seed)


def _simulation(run: RunFile, folder: Path) -> Simulation:
    """Return the run in the simulator, with own rows; a split's keys come of the seed."""
    definition = run.define()
    judging = definition.judging
    parts = []
    for number in range(SITES):
        key = f"first run {run.run.seed} {number}".encode()
        split = None if judging is None else UnitSplit(key, judging.held_out)
        parts.append(definition.source.edge(number, None, folder / f"edge-{number}", split))
    return Simulation(definition, None, parts)


@dataclass(frozen=True, slots=True)
class TrainedRun:
    """A run at its end. columns: numbers of a row. look: its last look, as looks.json has it."""

    auc: float
    columns: int
    histories: list[History]
    look: dict[str, Any] | None


def _trained(run: RunFile, seed: int, path: Path) -> TrainedRun:
    simulation = _simulation(run, run.folder)
    simulation.simulator.run(lambda role: None)
    test = encoded(run, path)
    model = simulation.model
    scores = model.probabilities(model.logits(simulation.role.params, test.x))[:, 1]
    looks = RunLooks(simulation.definition).of(simulation.reading())
    return TrainedRun(
        round(area(scores, test.y == 1), 5),
        test.x.shape[1],
        _histories(simulation),
        looks[-1] if looks else None,
    )


def _histories(simulation: Simulation) -> list[History]:
    """Return what each edge has released, in the order of the edges."""
    edges = simulation.simulator.edges
    return [edges[name].releaser.ledger.history() for name in sorted(edges)]


def _joint(history: Sequence[Any]) -> float:
    """Return the ε of all that a site has released: that of the side that has cost more."""
    return round(max(epsilon_pld(rows, 1e-5) for rows in by_side(history)), 4)


def as_markdown(results: list[dict[str, Any]]) -> str:
    """Return a row for each seed, and the mean."""
    lines = ["| seed | no row public: ε | AUC | given bounds: ε | AUC |", "|---|---|---|---|---|"]
    for row in results:
        first, given = row["first"], row["given"]
        lines.append(
            f"| {row['seed']} | {first['epsilon']:.2f} | {first['auc']:.3f} "
            f"| {given['epsilon']:.2f} | {given['auc']:.3f} |"
        )
    means = [fmean(row[kind]["auc"] for row in results) for kind in ("first", "given")]
    lines.append(f"| mean | | {means[0]:.3f} | | {means[1]:.3f} |")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
