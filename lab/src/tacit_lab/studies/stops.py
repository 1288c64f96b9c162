"""What `run.stop` saves and loses on the eight tables, the digits, and a table learnt late.

`python -m tacit_lab.studies.stops [seed ...]` takes the runs of `eight_tables` as they are in
lab/measured/eight-tables.json. It trains the other two, writes lab/measured/stops.json, and prints
the table of docs/accuracy.md. What is lost is the whole run's last model less the last model at the
stop, on the test rows. Noise is the same up to the stop, as it is one run that is looked at twice.

The late learner is a product of two columns, and its model a network: nothing linear tells it.
"""

from __future__ import annotations

import json
import re
import sys
import tempfile
from dataclasses import replace
from pathlib import Path
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
learning_rate = 1.0"""


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
    tables = json.loads(EIGHT.read_text(encoding="utf-8")) if EIGHT.exists() else []
    print(as_markdown([*tables, *results]))


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
    made = project(PRODUCT, records(PRODUCT), folder / "project")
    run = _with_network(made).run(4.0, seed)
    watched = WatchedRun(run, folder / "run")
    whole = watched.finished(encoded(run, made.test))
    return {"epsilon": 4.0, "tacit": watched.stopped or whole, "whole run": whole}


def _with_network(made: Project) -> Project:
    """Return the project with a network, six times the updates, and a plain rate for it."""
    text = made.run_file.read_text(encoding="utf-8")
    for old, new in (
        (r'name = "logistic".*', NETWORK),
        (r'name = "audp".*', PLAIN_RATE),
        (r"(smoothness|radius|deviation) = .*\n", ""),
        (r"\nupdates = \S+", "\nupdates = 3000"),
        (r"\npushes = \S+", "\npushes = 600"),
        (r"\nevery = \S+", "\nevery = 30"),
    ):
        text = re.sub(old, new, text)
    file = made.run_file.with_name("network.toml")
    file.write_text(text, encoding="utf-8")
    return replace(made, run_file=file)


def as_markdown(results: list[dict[str, Any]]) -> str:
    """Return a row for each run: where it stops, the ε that is saved, and what is lost."""
    lines = [
        "| table | ε | updates at the stop | ε saved | accuracy lost, points | log loss gained |",
        "|---|---|---|---|---|---|",
    ]
    for row in results:
        now = row["tacit"]
        whole = row["whole run"]
        saved = 1 - now["spent"] / whole["spent"]
        lost = 100 * (whole["last"]["accuracy"] - now["last"]["accuracy"])
        more = now["last"]["log_loss"] - whole["last"]["log_loss"]
        where = f"{now['updates']} of {whole['updates']}"
        lines.append(
            f"| {row['table']} | {row['epsilon']:g} | {where} | {100 * saved:.0f} % | {lost:.2f} "
            f"| {more:.4f} |"
        )
    return "\n".join(lines)


if __name__ == "__main__":
    main()
