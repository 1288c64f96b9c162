"""`tacit recover`: puts back into a store what it has lost, out of the run's journal file."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Annotated

import typer

from tacit.errors import ConfigError
from tacit_services.cli.replay import LABELS, SALT, Code, Labels, Salt, VerticalData, opened
from tacit_services.cli.say import say
from tacit_services.extras import need


def recover(
    file: Annotated[
        Path, typer.Option("--from", help="journal file (TACIT_JOURNAL_FILE) of the run")
    ],
    store: Annotated[
        str, typer.Option(envvar="TACIT_STORE", help="the store: redis://… or sqlite:///…")
    ],
    empty: Annotated[
        str | None,
        typer.Option(
            metavar="RUN",
            help="the run's name: first forget all that the store has of it, where a part is lost "
            "or another history has gone on; the journal file is kept",
        ),
    ] = None,
    data: VerticalData = None,
    labels: Labels = LABELS,
    salt: Salt = SALT,
    code: Code = Path(),
) -> None:
    """Put back into a store what it has lost of a run. Stop the run's aggregator first."""
    need("aggregator")
    from tacit_services.aggregator import store_from_file
    from tacit_services.aggregator.run_journal import RunJournal
    from tacit_services.journal.journal_file import JournalReader, Writer, open_journal
    from tacit_services.journal.store import open_store

    writer = Writer(file)
    others = 0
    with (
        closing(writer),
        opened(file, data, labels, salt, code) as (reader, definition, model, role),
    ):
        run = reader.header.run
        if empty not in (None, run):
            raise ConfigError(f"--empty {empty}: the journal file is of run {run!r}")
        run_store = open_store(store, run)
        journal = RunJournal(
            run,
            role,
            model.schema_hash(),
            role.update_size,
            run_store,
            fingerprint=definition.fingerprint,
            snapshot_every=reader.header.parameters.run.snapshot_every,
        )
        try:
            if empty is not None:
                others = store_from_file.empty(run_store, writer, definition, reader.header)
            with open_journal(file) as now:  # as it is with what the store alone had
                records = JournalReader(now, str(file), code)
                back = store_from_file.put_back(journal, records, reader.header.base.cursor)
        finally:
            run_store.close()
    if others:
        say(f"{others} messages of the store were of another history, and are gone")
    say(
        f"run {run}: {back} messages put back, the store has {journal.cursor}, version "
        f"{role.version}; start the aggregator"
    )
