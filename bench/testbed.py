"""A paper's figure on the real testbed: each of its runs over MQTT, as `tacit run` does it, instead of simulated.

    python -m bench.testbed [--figure mapa-8] [--seeds 1] [--quick]     (MAPA's Fig. 8: 32 runs, about ten minutes)

The figure file is read as `tacit figures` reads it, without its [network]: how long things take is what it is. Draws
out/testbed/FIGURE.png, prints a verdict on every claim, and writes each curve's last point and ε to FIGURE.json.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

from services.commands.plan_measure import as_toml
from services.figures import draw, sweep, verdicts
from services.figures.files import Cell, Figure, cells, read
from tacit.sections import Network

FIGURES = Path(__file__).parent.parent / "experiments" / "figures"


def trained(cell: Cell) -> sweep.Result:
    """The series and the ε of one run over MQTT."""
    content = cell.run.model_dump(mode="json", exclude_unset=True, exclude={"network"})
    with tempfile.TemporaryDirectory() as folder:
        file, out = Path(folder) / "run.toml", Path(folder) / "out"
        file.write_text(as_toml(content), encoding="utf-8")
        command = [sys.executable, "-m", "services.cli", "run", str(file), "--out", str(out), "--json"]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        summary = json.loads((out / "summary.json").read_text(encoding="utf-8"))
        lines = (out / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    found: sweep.Result = {"series": [json.loads(line) for line in lines], "epsilon": summary["privacy"]["epsilon"]}
    return found


def measured(figure: Figure, wanted: list[Cell]) -> dict[str, sweep.Result]:
    """Every run in turn; a line for each."""
    found: dict[str, sweep.Result] = {}
    for number, cell in enumerate(wanted, 1):
        result = found[sweep.key(cell.run)] = trained(cell)
        last, panel, line = result["series"][-1], figure.panel[cell.panel], figure.line[cell.line]
        print(
            f"{number}/{len(wanted)} {panel.title}, {panel.noise} noise, {line.name}: accuracy {last['accuracy']:.4f} "
            f"after {last['version']} updates in {last['seconds']:.0f} s, ε {result['epsilon']}", flush=True,
        )  # fmt: skip
    return found


def main() -> None:
    """Run, draw, judge and write."""
    parser = argparse.ArgumentParser(prog="python -m bench.testbed")
    parser.add_argument("--figure", default="mapa-8")
    parser.add_argument("--seeds", type=int, default=1, help="of each run")
    parser.add_argument("--quick", action="store_true", help="the figure's quick form")
    parser.add_argument("--out", type=Path, default=Path("out/testbed"))
    arguments = parser.parse_args()
    figure = read(FIGURES / f"{arguments.figure}.toml")
    head = figure.figure.model_copy(update={"seeds": tuple(range(1, arguments.seeds + 1))})
    figure = figure.model_copy(update={"figure": head})
    wanted = [
        replace(cell, run=cell.run.model_copy(update={"network": Network()}))
        for cell in cells(figure, quick=arguments.quick)
    ]
    found = measured(figure, wanted)
    curves = verdicts.curves(figure, wanted, found)
    arguments.out.mkdir(parents=True, exist_ok=True)
    (arguments.out / f"{arguments.figure}.png").write_bytes(draw.png(figure, curves))
    rows: list[dict[str, Any]] = [
        {"panel": figure.panel[curve.panel].title, "noise": figure.panel[curve.panel].noise, "line": curve.name,
         "accuracy": round(float(curve.mean[-1]), 4), "epsilon": curve.epsilons}
        for curve in curves
    ]  # fmt: skip
    (arguments.out / f"{arguments.figure}.json").write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")
    for judged in verdicts.judge(figure, curves):
        print(f"{judged.claim.text}: {judged.verdict} ({judged.said})")


if __name__ == "__main__":
    main()
