"""`tacit replay`: a run's journal file folded again, by the same role, to the same bits."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated

import typer


@dataclass(frozen=True, slots=True)
class Replayed:
    """What came out of a journal file."""

    run: str
    fingerprint: str
    seed: int
    begins_after: int  # accepted messages before the file's first
    records: int
    torn_bytes: int  # of a last record that was being written; left out
    version: int
    halted: str
    model_sha256: str


def replay(
    file: Annotated[Path, typer.Argument(help="journal file of TACIT_JOURNAL_FILE or tacit run --journal")],
    as_json: Annotated[bool, typer.Option("--json", help="print JSON")] = False,
) -> None:
    """Fold a run's journal again and print the model's SHA-256: that of model.safetensors and summary.json."""
    found = fold(file)
    if as_json:
        typer.echo(json.dumps(asdict(found), indent=2))
        return
    if found.torn_bytes:
        typer.echo(f"{file}: the last record is torn ({found.torn_bytes} bytes) and left out", err=True)
    after = f" after the first {found.begins_after}" if found.begins_after else ""
    typer.echo(f"run {found.run}: {found.records} accepted messages{after}, version {found.version}")
    typer.echo(f"model sha256 {found.model_sha256}")
    typer.echo(f"ended: {found.halted}" if found.halted else "the run has not ended")


def fold(path: Path) -> Replayed:
    """Raises DataError (no file), WireError (not a journal, or altered)."""
    import hashlib

    from services.edge.main import schema_hash
    from services.runtime import entries, journal, state
    from services.runtime.weights import weights
    from tacit.algorithms import roles
    from tacit.errors import ServiceError, WireError

    with journal.opened(path) as file:
        reader = journal.Reader(file, str(path))
        header, run = reader.header, reader.header.parameters
        model = run.build_model()
        role, schema, records = roles.server(run, model), schema_hash(model), 0
        try:
            if header.base.state:
                tensors, values = state.loads(header.base.state)
                role.restore(tensors, values["role"])
            for records, kept in enumerate(reader, 1):  # noqa: B007  (counts)
                role.on_message(entries.read(kept.payload, schema, model.size))
        except ServiceError as error:
            raise WireError("journal", f"{path}: {error}") from error
        except WireError as error:
            raise error if error.reason == "journal" else WireError("journal", f"{path}: {error}") from error
    digest = hashlib.sha256(weights(model, role.params)).hexdigest()
    return Replayed(
        header.run, run.fingerprint(), run.run.seed, header.base.cursor, records, reader.torn, role.version,
        role.halted, digest,
    )  # fmt: skip
