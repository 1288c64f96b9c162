"""Runs by Python: planned, simulated, trained.

import tacit

results = tacit.train("clinic/run.toml")
results.epsilon, results.history, results.predict(new_rows)
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tacit import config
from tacit.errors import TacitError
from tacit.privacy.plan import Plan
from tacit_services.extras import need
from tacit_services.interface import row_files
from tacit_services.interface.ended_run import Results, load
from tacit_services.interface.run_objects import RunLike, run_file_of
from tacit_services.settings import data_home

OUT = Path("out") / "run"


def plan(run: RunLike, *, out: str | Path = OUT) -> tuple[Plan, ...]:
    """Return each edge's privacy plan: ε, δ, noise, sampling rate, releases. Nothing is spent.

    run: the path of a run file, or its sections as objects, which are written beside `out`. Raises
    ConfigError, DataError, PrivacyError.
    """
    definition = config.load(_run_file(run, Path(out))).define()
    return tuple(definition.plans.plan(number) for number in range(definition.edges.count))


def simulate(
    run: RunLike,
    *,
    public: Any = None,
    out: str | Path = OUT,
    data: str | Path | None = None,
    edges: int | None = None,
    seed: int | None = None,
    quiet: bool = False,
) -> Results:
    """Simulate a run in this process, under a virtual clock, on rows that are nobody's secret.

    The same seed gives the same results, and noise that protects nobody: ε is simulated. Own data
    needs `public`: public or made-up rows in the place of the private ones, which are not read.
    They are a DataFrame, arrays by name, or a path. Each edge draws as many of them as it will
    have, and a fifth is kept apart to test on. data: the folder of published data sets. edges,
    seed: in place of the run's. quiet: without a bar and a table of results. Raises TacitError,
    also where `public` has private rows that lie here or are known to a ledger.
    """
    need("figures")
    from tacit_services.testbed import simulated_run

    run_file = config.load(_run_file(run, Path(out)), edges=edges, seed=seed)
    definition = run_file.define()
    parts = None
    if public is not None:
        from tacit_services.project import public_rows

        path = _public_file(public, _definition_folder(Path(out)))
        rows = public_rows.public_rows(run_file, path, _folder(data), data_home())
        parts = public_rows.dealt(definition, rows, definition.run.seed)
    simulated_run.run(
        definition, out=Path(out), data=_folder(data), as_json=False, public=parts, quiet=quiet
    )
    return load(out)


def train(
    run: RunLike,
    *,
    out: str | Path = OUT,
    data: str | Path | None = None,
    edges: int | None = None,
    seed: int | None = None,
) -> Results:
    """Train as `tacit run`: broker, store, aggregator and edges as processes; returns the results.

    Own rows have a lasting ledger, which each run charges. An interrupt stops the run. data: the
    folder of published data sets. edges, seed: in place of the run's. Raises TacitError.
    """
    need("run")
    from tacit_services.children import preload
    from tacit_services.testbed import local_run

    file = _run_file(run, Path(out))
    preload.prepare(file)
    code = local_run.run(
        file, edges=edges, out=Path(out), serve=None, seed=seed, data=_folder(data), as_json=False
    )
    if code:
        raise TacitError(f"the run ended with status {code}; its logs are in {out}")
    return load(out)


def _run_file(run: RunLike, out: Path) -> Path:
    """Return the run file; of objects it is written beside `out`, which has results alone."""
    return run_file_of(run, _definition_folder(out))


def _definition_folder(out: Path) -> Path:
    return out.with_name(f"{out.name}-definition")


def _public_file(rows: Any, folder: Path) -> str:
    """Return the path of public rows, or what they are called; objects are written to `folder`."""
    if isinstance(rows, str | Path):
        return str(rows)
    folder.mkdir(parents=True, exist_ok=True)
    return str(row_files.write(rows, folder, "public"))


def _folder(data: str | Path | None) -> Path | None:
    return None if data is None else Path(data)
