"""Applied updates/s of tacit and of others, side by side: `make bench-peers`.

The same network (convolutions of 10 and 10 channels, 62 classes: 12,752 parameters), the same batch
of 48, five edges, MNIST's rows, one machine. Rounds are interleaved, as a shared machine is twice
as fast in one minute as in the next. In each round, every system is started, warmed up and measured
for some seconds. A system that is not here, or does not run, is listed as "not run here". Writes
out/peers.json.

    python -m tacit_lab.bench.peers [--rounds 4] [--seconds 20] [--only tacit 2ff785b …]

Venvs of their own: out/peers/flower, out/peers/mapa (the Makefile makes them). MAPA_SOURCE: a
checkout of the reference testbed, IoTDATALab/MAPA.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from tacit_lab.bench.peers import flower, tacit_run, testbed
from tacit_lab.bench.peers.window import Rate
from tacit_lab.checkout import ROOT

EDGES = 5
BATCH = 48
BEFORE = "2ff785b"
VENVS = ROOT / "out" / "peers"
Measure = Callable[[Path, float], Rate]


def systems(data: Path, end: ExitStack) -> Iterator[tuple[str, Measure | str]]:
    """Yield each system's name, and what measures it in a folder; or why it is not run here."""

    def tacit(tree: Path) -> Measure:
        return lambda folder, seconds: tacit_run.rate(tree, folder, data, seconds, EDGES, BATCH)

    yield "tacit", tacit(ROOT)
    yield BEFORE, tacit(end.enter_context(tacit_run.checked_out(BEFORE)))
    source = os.environ.get("MAPA_SOURCE")
    python = VENVS / "mapa" / "bin" / "python"
    for name in ("testbed, repaired", "testbed, released"):
        if not source or not python.exists():
            yield name, "needs MAPA_SOURCE and the venv out/peers/mapa"
            continue
        yield name, _of_testbed(Path(source), python, data, repaired="repaired" in name)
    python = VENVS / "flower" / "bin" / "python"
    yield (
        "Flower simulation",
        _of_flower(python, data) if python.exists() else "needs out/peers/flower",
    )


def _of_testbed(source: Path, python: Path, data: Path, *, repaired: bool) -> Measure:
    def measure(folder: Path, seconds: float) -> Rate:
        testbed.write_rows(data, folder, EDGES)
        return testbed.rate(source, python, folder, seconds, EDGES, repaired=repaired)

    return measure


def _of_flower(python: Path, data: Path) -> Measure:
    return lambda folder, seconds: flower.rate(python, folder, data, seconds, EDGES, BATCH)


def measured(
    chosen: dict[str, Measure | str], rounds: int, seconds: float
) -> dict[str, list[Rate] | str]:
    """Return the rates of each system, a round after another; or why there are none."""
    results: dict[str, list[Rate] | str] = {
        name: how if isinstance(how, str) else [] for name, how in chosen.items()
    }
    for number in range(rounds):
        for name, how in chosen.items():
            rates = results[name]
            if isinstance(how, str) or isinstance(rates, str):
                continue
            with tempfile.TemporaryDirectory(prefix="peers-") as folder:
                try:
                    rates.append(how(Path(folder), seconds))
                except RuntimeError as error:
                    results[name] = f"does not run: {error}"
                    continue
            print(f"round {number + 1}, {name}: {rates[-1].per_s:.1f} updates/s", flush=True)
    return results


def table(results: dict[str, list[Rate] | str]) -> dict[str, Any]:
    """Return {system: {updates_per_s: [least, median, most], cpu_ms, tacit_over}}.

    tacit_over: the median of the rounds' ratios. A system that was not run has a sentence.
    """
    ours = results.get("tacit")
    rows = dict[str, Any]()
    for name, rates in results.items():
        if isinstance(rates, str):
            rows[name] = f"not run here: {rates}"
            continue
        each = [rate.per_s for rate in rates]
        rows[name] = {
            "updates_per_s": [min(each), statistics.median(each), max(each)],
            "cpu_ms": statistics.median(rate.cpu_ms for rate in rates),
        }
        if isinstance(ours, list):
            pairs = zip(ours, rates, strict=True)
            rows[name]["tacit_over"] = statistics.median(a.per_s / b.per_s for a, b in pairs)
    return rows


def show(rows: dict[str, Any]) -> None:
    """Print the table, as docs/performance.md has it."""
    print("| system | updates/s, median [range] | processor ms an update | tacit ÷ it |")
    print("|---|---|---|---|")
    for name, row in rows.items():
        if isinstance(row, str):
            print(f"| {name} | {row} | | |")
            continue
        least, median, most = row["updates_per_s"]
        if "tacit_over" in row:
            over = f"{row['tacit_over']:.2f}"
        else:
            over = ""
        print(f"| {name} | {median:.1f} [{least:.1f}–{most:.1f}] | {row['cpu_ms']:.1f} | {over} |")


def main() -> None:
    """Measure, print and write."""
    parser = argparse.ArgumentParser(prog="python -m tacit_lab.bench.peers")
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--only", nargs="*", help="some of the systems, by their names")
    parser.add_argument("--out", type=Path, default=Path("out/peers.json"))
    arguments = parser.parse_args()
    if "TACIT_DATA" not in os.environ:
        sys.exit("TACIT_DATA: names no folder with MNIST")
    with ExitStack() as end:
        everything = dict(systems(Path(os.environ["TACIT_DATA"]), end))
        chosen = {
            name: how for name, how in everything.items() if name in (arguments.only or everything)
        }
        rows = table(measured(chosen, arguments.rounds, arguments.seconds))
    show(rows)
    machine = {"cores": os.cpu_count(), "processor": platform.processor() or platform.machine()}
    about = {
        "date": time.strftime("%Y-%m-%d"),
        "rounds": arguments.rounds,
        "seconds": arguments.seconds,
    }
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    written = machine | about | {"edges": EDGES, "batch": BATCH, "systems": rows}
    arguments.out.write_text(
        json.dumps(written, indent=2, ensure_ascii=False) + "\n", encoding="utf-8"
    )


if __name__ == "__main__":
    main()
