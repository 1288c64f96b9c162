"""Runs whose bits are kept in a file, as no older commit can make them: questions, and tables.

`python -m tests.golden.kept_bits` writes kept/bits.json anew, where a change of bits is meant.
The sums of questions and of moments are whole numbers, and the steps of `ebm` are computed number by
number, so they are the same on any machine. What `least-squares` solves for is not: it has
eigenvectors of a library. So of it the moments are kept.
"""

from __future__ import annotations

import csv
import hashlib
import json
import tempfile
from pathlib import Path

from tacit_services.aggregator.reporting.run_answers import RunAnswers
from tacit_services.testbed.simulated_run import Simulation

from tacit import config

KEPT = Path(__file__).parent / "kept" / "bits.json"
EDGES = 3
_ROWS = 300
_TOWNS = ("Ulm", "Köln", "Vineta")
_ASKED = f"""
run.seed = 11
data.kind = "table"
data.train = "site{{edge}}.csv"
data.rows = {_ROWS}
data.unit = "who"
data.unit_rows = 2
data.columns.age = {{ low = 0, high = 110 }}
data.columns.pay = {{ low = 0, high = 9000 }}
data.columns.sex = {{ values = ["f", "m"] }}
data.columns.ward = {{ values = ["a", "b"] }}
edges.count = {EDGES}
privacy.epsilon = 4.0
ask.questions = [
    "count", "missing pay", "histogram age 0 110 11", "quantile age 0.25 0.5 0.75", "quantile debt 0.5",
    "mean pay", "std pay", "counts by sex", "counts by town", "crosstab sex ward", "correlation age pay",
]
"""
_TRAINED = f"""
run.seed = 11
data.kind = "table"
data.train = "site{{edge}}.csv"
data.rows = {_ROWS}
data.target = "sex"
data.columns.age = {{ low = 0, high = 110 }}
data.columns.pay = {{ low = 0, high = 9000, missing = 0 }}
data.columns.town = {{ values = ["Ulm", "Köln"] }}
data.columns.sex = {{ values = ["f", "m"] }}
edges.count = {EDGES}
privacy.epsilon = 4.0
"""
_PARTS = {"ebm": "model", "least-squares": "moments"}  # of each algorithm, what is kept


def made() -> dict[str, str]:
    """Return the digests that this tree makes, by name."""
    with tempfile.TemporaryDirectory(prefix="golden-") as name:
        folder = Path(name)
        _write_sites(folder)
        digests = {f"ask: {part}": digest for part, digest in _asked(folder).items()}
        for algorithm, part in _PARTS.items():
            digests[f"{algorithm}: {part}"] = _trained(algorithm, part, folder)
    return digests


def kept() -> dict[str, str]:
    """Return the digests that are kept, by name."""
    content: dict[str, str] = json.loads(KEPT.read_text(encoding="utf-8"))
    return content


def differences() -> list[str]:
    """Return a line for each digest that is not the one that is kept."""
    was, now = kept(), made()
    pairs = {name: (was.get(name, "absent"), now.get(name, "absent")) for name in was | now}
    return [f"{name}: was {old}, is {new}" for name, (old, new) in pairs.items() if old != new]


def _write_sites(folder: Path) -> None:
    for number in range(EDGES):
        with (folder / f"site{number}.csv").open("w", encoding="utf-8", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(["who", "age", "pay", "debt", "sex", "ward", "town"])
            writer.writerows(_row(number, row) for row in range(_ROWS))


def _finished(text: str, folder: Path) -> Simulation:
    """Return the run of `text` at its end, with the rows in `folder`."""
    definition = config.parse(text, "golden", folder=folder).define()
    parts = [definition.source.edge(n, None, folder / f"edge-{n}") for n in range(EDGES)]
    simulation = Simulation(definition, None, parts)
    simulation.simulator.run()
    return simulation


def _asked(folder: Path) -> dict[str, str]:
    simulation = _finished(_ASKED, folder)
    answers = RunAnswers(simulation.definition).of(simulation.reading())
    contents = {
        "sums": simulation.role.params.numpy().tobytes(),
        "answers": json.dumps(answers).encode(),
    }
    return {name: hashlib.sha256(content).hexdigest() for name, content in contents.items()}


def _trained(algorithm: str, part: str, folder: Path) -> str:
    simulation = _finished(f'{_TRAINED}algorithm.name = "{algorithm}"\n', folder)
    tensors, _ = simulation.role.state()
    tensor = simulation.role.params if part == "model" else tensors[part]
    return hashlib.sha256(tensor.numpy().tobytes()).hexdigest()


def _row(site: int, row: int) -> list[object]:
    """Return a row: two of three rows are of people with one, the others of people with two."""
    who = row if row % 3 else row - row % 6
    pay = "" if row % 10 == 0 else 31 * row % 9000
    town = _TOWNS[0] if row % 5 else _TOWNS[row % 3]
    age, sex, ward = 18 + (7 * row + site) % 80, "fm"[row % 2], "abc"[row % 7 % 3]
    return [f"{site}-{who}", age, pay, row * row - 900, sex, ward, town]


if __name__ == "__main__":
    KEPT.write_text(json.dumps(made(), indent=1) + "\n", encoding="utf-8")
