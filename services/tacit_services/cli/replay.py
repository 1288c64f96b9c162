"""`tacit replay`: folds a run's journal file again, with the same role, to the same bits."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tacit.errors import DataError
from tacit_services.cli.say import say
from tacit_services.extras import need

if TYPE_CHECKING:
    from tacit.algorithms.base.labelled_records import LabelledRecords
    from tacit.algorithms.base.server import ServerRole
    from tacit.config import RunFile
    from tacit.config.definition import Definition
    from tacit.models import Model
    from tacit.protocol.messages import ServerInput as Message
    from tacit_services.journal.journal_file import JournalReader

LABELS = Path("state/labels.safetensors")
SALT = "tacit"
# What a journal file has not got, as whoever folds it names it.
VerticalData = Annotated[
    Path | None,
    typer.Option(
        envvar="TACIT_DATA", help="folder of the data: a vertical run's labels are not in it"
    ),
]
Labels = Annotated[
    Path,
    typer.Option(envvar="TACIT_LABELS", help="noisy labels of a vertical run, as they were drawn"),
]
Salt = Annotated[
    str, typer.Option(envvar="TACIT_SALT", help="what a vertical run's records are named with")
]
Code = Annotated[
    Path, typer.Option(help="folder of the run file, whose own module the run trained")
]


@dataclass(frozen=True, slots=True)
class Replayed:
    """The content of a journal file, and the model that it folds to."""

    run: str
    fingerprint: str
    seed: int
    begins_after: int  # accepted messages before the file's first
    records: int
    torn_bytes: int  # of an unfinished last record, which is left out
    version: int
    halt_reason: str | None  # why the run ended; None: it has not
    model_sha256: str

    def document(self) -> dict[str, Any]:
        """Return it as `--json` prints it: there the reason is `halted`, and "" for none."""
        content = asdict(self)
        reason = content.pop("halt_reason")
        return content | {"halted": reason or ""}


def replay(
    file: Annotated[
        Path, typer.Argument(help="journal file of TACIT_JOURNAL_FILE or tacit run --journal")
    ],
    data: VerticalData = None,
    labels: Labels = LABELS,
    salt: Salt = SALT,
    code: Code = Path(),
    as_json: Annotated[bool, typer.Option("--json", help="print JSON")] = False,
) -> None:
    """Fold a run's journal again and print the model's SHA-256, as model.safetensors has it."""
    need("edge")
    from tacit.protocol.wire import printable

    replayed = fold(file, data, labels, salt, code)
    if as_json:
        typer.echo(json.dumps(replayed.document(), indent=2))
        return
    if replayed.torn_bytes:
        say(f"{file}: the last record is torn ({replayed.torn_bytes} bytes) and left out", err=True)
    if replayed.begins_after:
        after = f" after the first {replayed.begins_after}"
    else:
        after = ""
    say(
        f"run {printable(replayed.run, 64)}: {replayed.records} accepted messages{after}, version "
        f"{replayed.version}"
    )
    say(f"model sha256 {replayed.model_sha256}")
    ended = replayed.halt_reason is not None
    say(f"ended: {replayed.halt_reason}" if ended else "the run has not ended")


def fold(
    path: Path,
    data: Path | None = None,
    labels: Path = LABELS,
    salt: str = SALT,
    code: Path = Path(),
) -> Replayed:
    """Fold the journal file at `path`. code: the folder that a user's own module lies in.

    Raises DataError (no file, or no data of a vertical run), WireError (no journal, or altered).
    """
    import torch

    from tacit.errors import ServiceError, WireError
    from tacit_services.display.progress import LongWork
    from tacit_services.journal.weights import Weights

    torch.set_num_threads(1)  # as the aggregator: a sum over many numbers depends on it
    with opened(path, data, labels, salt, code) as (reader, _, model, role):
        header = reader.header
        schema = model.schema_hash()
        records = 0
        try:
            if header.base.state:
                _restore(role, bytes(header.base.state))
            with LongWork("folding", path.stat().st_size) as work:
                messages = _messages(reader, schema, role.update_size)
                for records, message in enumerate(messages, 1):
                    _step(role, message, reader.header.base.cursor + records)
                    work.at(reader.end)
        except ServiceError as error:
            raise WireError("journal", f"{path}: {error}") from error
        except WireError as error:
            reason = str(error).removeprefix("journal: ")
            raise (
                error
                if reason.startswith(f"{path}: ")
                else WireError("journal", f"{path}: {reason}")
            ) from error
    digest = Weights(model, role.params).sha256()
    return Replayed(
        header.run,
        header.parameters.fingerprint(),
        header.parameters.run.seed,
        header.base.cursor,
        records,
        reader.torn,
        role.version,
        role.halt_reason if role.halted else None,
        digest,
    )


@contextmanager
def opened(
    path: Path, data: Path | None, labels: Path, salt: str, code: Path
) -> Iterator[tuple[JournalReader, Definition[Any], Model, ServerRole]]:
    """Yield the journal file at `path`, and its run's definition, model and a new server role.

    Raises what `fold` does.
    """
    from tacit.algorithms import registry
    from tacit_services.journal import journal_file

    with journal_file.open_journal(path) as file:
        reader = journal_file.JournalReader(file, str(path), code)
        definition, model = _defined(reader.header.parameters, path)
        vertical = definition.algorithm.worker == "party"
        if vertical:
            labelled_records = _labelled_records(definition, data, labels, salt)
        else:
            labelled_records = None
        yield reader, definition, model, registry.server(definition, model, labelled_records)


def _defined(run: RunFile, path: Path) -> tuple[Definition[Any], Model]:
    """Return the definition and model of `run`, a file's header.

    Raises WireError where they fail.
    """
    from tacit.errors import ConfigError, WireError

    try:
        definition = run.define()
        return definition, definition.build_model()
    except ConfigError as error:  # the file says so, it is nobody's setting
        raise WireError("journal", f"{path}: the header cannot be understood: {error}") from error


def _restore(role: ServerRole, snapshot: bytes) -> None:
    """Restore the role from `snapshot`.

    Raises ServiceError, WireError where the bytes are no snapshot, or not one of this role.
    """
    from tacit.errors import WireError
    from tacit_services.journal import snapshot_file

    tensors, values = snapshot_file.loads(snapshot)
    like = role.params
    try:
        role.restore(tensors, values["role"])
    # AttributeError: a list where names belong.
    except (LookupError, ValueError, TypeError, AttributeError) as error:
        raise WireError("journal", f"its state is not one of this run's: {error!r}") from error
    if (role.params.shape, role.params.dtype) != (like.shape, like.dtype):
        raise WireError(
            "journal", f"its state has {role.params.numel()} parameters, the model {like.numel()}"
        )


def _messages(reader: JournalReader, schema: bytes, size: int) -> Iterator[Message]:
    """Yield the messages that the records hold.

    Raises WireError where one is no message, or comes twice, which a store never accepts.
    """
    from tacit.errors import WireError
    from tacit.protocol import wire
    from tacit_services.aggregator import entries

    last: dict[str, int] = {}
    for record in reader:
        received = wire.decode(record.payload)
        edge = received.meta.edge
        seq = received.meta.seq
        # The operator's envelopes have no number: the store counts them.
        if edge != entries.OPERATOR:
            if seq <= last.get(edge, 0):
                name = wire.printable(edge, 64)
                before = last.get(edge, 0)
                reason = f"message {seq} of {name} comes after its message {before}"
                raise WireError("journal", f"record {record.position}: {reason}")
            last[edge] = seq
        yield entries.understood(received, schema, size)


def _step(role: ServerRole, message: Message, position: int) -> None:
    """Apply one message. Raises WireError for what no aggregator has let into a journal."""
    from tacit.errors import WireError
    from tacit.protocol.messages import Update

    # The model's version is not judged again, nor anything after the end: the aggregator may have
    # judged these at another moment.
    if isinstance(message, Update) and not role.halted:
        why = role.screen(message)
    else:
        why = None
    if why not in (None, "version"):
        raise WireError("journal", f"record {position}: an update that is refused ({why})")
    try:
        role.on_message(message)
    except (LookupError, ValueError, TypeError) as error:
        raise WireError(
            "journal", f"record {position}: the fold cannot take it: {error!r}"
        ) from error


def _labelled_records(
    definition: Definition[Any], data: Path | None, labels: Path, salt: str
) -> LabelledRecords:
    """Return the labels of a vertical run; noisy ones are read, never drawn anew.

    Raises DataError, PrivacyError.
    """
    from tacit.algorithms.vafl import vertical_settings
    from tacit_services.aggregator.vertical import record_labels

    vertical = vertical_settings.vertical(definition)
    if vertical.settings.label_epsilon is not None and not labels.exists():
        raise DataError(
            f"--labels {labels}: no such file; "
            "this run's noisy labels were drawn once, and kept there"
        )
    return record_labels.load(vertical, data, salt, labels)
