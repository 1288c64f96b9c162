"""`tacit replay`: a run's journal file folded again, by the same role, to the same bits."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tacit.errors import DataError

if TYPE_CHECKING:
    from tacit.algorithms.vafl import People
    from tacit.config import RunFile

LABELS = Path("state/labels.safetensors")
SALT = "tacit"


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
    data: Annotated[
        Path | None, typer.Option(envvar="TACIT_DATA", help="folder of the data: a vertical run's labels are not in it")
    ] = None,
    labels: Annotated[
        Path, typer.Option(envvar="TACIT_LABELS", help="noisy labels of a vertical run, as they were drawn")
    ] = LABELS,
    salt: Annotated[str, typer.Option(envvar="TACIT_SALT", help="what a vertical run's records are named with")] = SALT,
    as_json: Annotated[bool, typer.Option("--json", help="print JSON")] = False,
) -> None:
    """Fold a run's journal again and print the model's SHA-256: that of model.safetensors and summary.json."""
    found = fold(file, data, labels, salt)
    if as_json:
        typer.echo(json.dumps(asdict(found), indent=2))
        return
    if found.torn_bytes:
        typer.echo(f"{file}: the last record is torn ({found.torn_bytes} bytes) and left out", err=True)
    after = f" after the first {found.begins_after}" if found.begins_after else ""
    typer.echo(f"run {found.run}: {found.records} accepted messages{after}, version {found.version}")
    typer.echo(f"model sha256 {found.model_sha256}")
    typer.echo(f"ended: {found.halted}" if found.halted else "the run has not ended")


def fold(path: Path, data: Path | None = None, labels: Path = LABELS, salt: str = SALT) -> Replayed:
    """Raises DataError (no file, or no data of a vertical run), WireError (not a journal, or altered)."""
    import hashlib

    from services.edge.main import schema_hash
    from services.runtime import entries, journal, state
    from services.runtime.weights import weights
    from tacit.algorithm_sections import Vafl
    from tacit.algorithms import roles
    from tacit.errors import ServiceError, WireError

    with journal.opened(path) as file:
        reader = journal.Reader(file, str(path))
        header, run = reader.header, reader.header.parameters
        model = run.build_model()
        people = _people(run, data, labels, salt) if isinstance(run.algorithm, Vafl) else None
        role, schema, records = roles.server(run, model, people), schema_hash(model), 0
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


def _people(run: RunFile, data: Path | None, labels: Path, salt: str) -> People:
    """A vertical run's labels: noisy ones are read, never drawn anew. Raises DataError, PrivacyError."""
    from services.aggregator import people
    from tacit import vertical_plan

    if vertical_plan.section(run).label_epsilon is not None and not labels.exists():
        raise DataError(f"--labels {labels}: no such file; this run's noisy labels were drawn once, and kept there")
    return people.load(run, data, salt, labels)
