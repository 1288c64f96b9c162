"""What `run.stop` saves and loses on the eight tables, the digits, and a table learnt late.

`python -m tacit_lab.studies.stops [seed ...]` takes the runs of `eight_tables` as they are in
lab/measured/eight-tables.json. It trains the other two, writes lab/measured/stops.json, and prints
the table of docs/accuracy.md. What is lost is the whole run's last model less the last model at the
stop, on the test rows. Noise is the same up to the stop, as it is one run that is looked at twice.

The late learner is a product of two columns, and its model a network: nothing linear tells it. With
so small a rate its loss is within 3 % of a constant's for the first 30 % of the run.
"""

from __future__ import annotations

import json
import re
import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from statistics import fmean
from typing import Any

import torch

from tacit import config
from tacit.config import RunFile
from tacit.config.fingerprint import differences
from tacit_lab.checkout import EXPERIMENTS, ROOT
from tacit_lab.studies.eight_projects import Project, encoded, project
from tacit_lab.studies.eight_tables import OUT as EIGHT
from tacit_lab.studies.eight_tables import WatchedRun
from tacit_lab.studies.tables_from_packages import PRODUCT, records

OUT = ROOT / "lab" / "measured" / "stops.json"
DIGITS = EXPERIMENTS / "audp-digits-strokes.toml"
NETWORK = """name = "mlp"
hidden = [16]
activation = "tanh\""""
PLAIN_RATE = """name = "audp"
learning_rate = 0.08"""


def main() -> None:
    """Measure what is missing, for the seeds on the command line (default: 1), and print."""
    torch.set_num_threads(1)
    results: list[dict[str, Any]] = []
    if OUT.exists():
        results = json.loads(OUT.read_text(encoding="utf-8"))
    measured = {(row["table"], row["seed"]) for row in results}
    for seed in [int(word) for word in sys.argv[1:]] or [1]:
        for name, measure in (("digits", _digits), ("product", _product)):
            if (name, seed) in measured:
                continue
            with tempfile.TemporaryDirectory(prefix="tacit-stops-") as folder:
                row = {"table": name, "seed": seed} | measure(seed, Path(folder))
            results.append(row)
            OUT.parent.mkdir(exist_ok=True)
            OUT.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    if EIGHT.exists():
        results = [*json.loads(EIGHT.read_text(encoding="utf-8")), *results]
    print(as_markdown(results))


def _digits(seed: int, folder: Path) -> dict[str, Any]:
    content = differences(config.load(DIGITS, seed=seed))
    content["run"] |= {"stop": "no better", "average": 0.5}
    content["evaluation"] = {"every": max(1, content["run"]["updates"] // 100)}
    run = RunFile.model_validate(content, context={"folder": DIGITS.parent})
    test = run.source.test(None)
    assert test is not None
    watched = WatchedRun(run, folder / "run")
    whole = watched.finished(test)
    return {"epsilon": run.privacy.epsilon, "tacit": watched.stopped or whole, "whole run": whole}


def _product(seed: int, folder: Path) -> dict[str, Any]:
    drafted = project(PRODUCT, records(PRODUCT), folder / "project")
    run = _with_network(drafted).run(4.0, seed)
    watched = WatchedRun(run, folder / "run")
    whole = watched.finished(encoded(run, drafted.test))
    return {"epsilon": 4.0, "tacit": watched.stopped or whole, "whole run": whole}


def _with_network(drafted: Project) -> Project:
    """Return the project with a network, six times the updates, and a plain rate for it."""
    text = drafted.run_file.read_text(encoding="utf-8")
    for old, new in (
        (r'name = "logistic".*', NETWORK),
        (r'name = "audp".*', PLAIN_RATE),
        (r"(smoothness|radius|deviation) = .*\n", ""),
        (r"\nupdates = \S+", "\nupdates = 3000"),
        (r"\npushes = \S+", "\npushes = 600"),
        (r"\nevery = \S+", "\nevery = 30"),
    ):
        text = re.sub(old, new, text)
    file = drafted.run_file.with_name("network.toml")
    file.write_text(text, encoding="utf-8")
    return replace(drafted, run_file=file)


def as_markdown(results: list[dict[str, Any]]) -> str:
    """Return a row for each table: its runs, and of those that were stopped what it brought."""
    lines = [
        "| table | runs | stopped | ε saved | accuracy lost | most | log loss lost |",
        "|---|---|---|---|---|---|---|",
    ]
    for name in [*dict.fromkeys(row["table"] for row in results), "all"]:
        rows = [row for row in results if name in (row["table"], "all")]
        ended = [row for row in rows if row["tacit"]["updates"] < row["whole run"]["updates"]]
        cells = _cells(ended) if ended else ["", "", "", ""]
        lines.append(f"| {name} | {len(rows)} | {len(ended)} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _cells(rows: list[dict[str, Any]]) -> list[str]:
    """Return the means of ε saved, of accuracy lost, the most of it, and of log loss lost."""
    saved = [1 - row["tacit"]["spent"] / row["whole run"]["spent"] for row in rows]
    lost = [-100 * _gained(row, "accuracy") for row in rows]
    more = [_gained(row, "log_loss") for row in rows]
    means = [f"{100 * fmean(saved):.0f} %", f"{fmean(lost):.2f}", f"{max(lost):.2f}"]
    return [*means, f"{fmean(more):.3f}"]


def _gained(row: dict[str, Any], score: str) -> float:
    """Return by how much the score at the stop is above that of the whole run."""
    return float(row["tacit"]["last"][score] - row["whole run"]["last"][score])


if __name__ == "__main__":
    main()
