"""`tacit recover`: puts back into a store what it has lost, out of the run's journal file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tacit_services.cli.replay import LABELS, SALT, Code, Data, Labels, Salt, opened
from tacit_services.extras import need


def recover(
    file: Annotated[
        Path, typer.Option("--from", help="journal file (TACIT_JOURNAL_FILE) of the run")
    ],
    store: Annotated[
        str, typer.Option(envvar="TACIT_STORE", help="the store: redis://… or sqlite:///…")
    ],
    data: Data = None,
    labels: Labels = LABELS,
    salt: Salt = SALT,
    code: Code = Path(),
) -> None:
    """Put back into a store what it has lost of a run. Stop the run's aggregator first."""
    need("aggregator")
    from tacit_services.aggregator.recovery import put_back
    from tacit_services.aggregator.run_journal import RunJournal
    from tacit_services.journal.store import open_store

    with opened(file, data, labels, salt, code) as (reader, definition, model, role):
        run = reader.header.run
        kept = open_store(store, run)
        journal = RunJournal(
            run,
            role,
            model.schema_hash(),
            model.size,
            kept,
            fingerprint=definition.fingerprint,
            older=definition.older,
            snapshot_every=reader.header.parameters.run.snapshot_every,
        )
        try:
            back = put_back(journal, reader, reader.header.base.cursor)
        finally:
            kept.close()
    typer.echo(
        f"run {run}: {back} messages put back, the store has {journal.cursor}, version "
        f"{role.version}; start the aggregator"
    )
