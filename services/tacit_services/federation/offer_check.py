"""The check of a run that was submitted: its model is built, its public test set read.

Its algorithm is imported, too, where the operator lets that run at the host.
"""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

from tacit.errors import ConfigError, DataError
from tacit_services.federation.run_facts import RunFacts
from tacit_services.offers.submitted_run import submitted_run


def checked(folder: Path, data: Path | None) -> RunFacts:
    """Return the facts of the run in `folder`. data: the folder of published test sets.

    Raises ConfigError, DataError where it cannot be run.
    """
    definition = submitted_run(folder).define()
    definition.build_model()
    definition.source.test(data)
    edges = definition.edges
    return RunFacts(
        edges.count, edges.min or edges.count, edges.wait, edges.grace, definition.run.updates
    )


def answer(folder: str, data: str) -> dict[str, object]:
    """Return what `checked` does, or what is wrong, for another process. data: "" of none."""
    try:
        return {"facts": asdict(checked(Path(folder), Path(data) if data else None))}
    except (ConfigError, DataError) as error:
        return {"wrong": str(error)}
