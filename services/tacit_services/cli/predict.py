"""`tacit predict`: predictions of new rows by a model, or of a vertical run's records."""

from __future__ import annotations

import csv
import json
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from tacit import rounding
from tacit.errors import ConfigError, DataError, OwnersError, PrivacyError, ServiceError, TacitError
from tacit.shown import as_json as text_of_json
from tacit.shown import cells
from tacit_services.cli.options import AsJson
from tacit_services.cli.owners import owners_screen
from tacit_services.cli.reach import Reach, reaching
from tacit_services.cli.run_results import exported_run
from tacit_services.cli.say import say
from tacit_services.extras import need
from tacit_services.transport import rest_client

if TYPE_CHECKING:
    from tacit_client import Client, Predictions

    from tacit.exported import Exported, RowPrediction, RowsKind

_Each = TypeVar("_Each")
# The error, and so the exit code, for each status code that the aggregator answers.
_KINDS: dict[int, type[TacitError]] = {
    404: DataError,
    409: ConfigError,
    410: PrivacyError,
    503: ServiceError,
}


# The options of `predict`.
ModelFolder = Annotated[
    Path | None,
    typer.Argument(
        metavar="MODEL",
        help="folder of `tacit export`; in a federation, the name of a run; of a vertical run, its "
        "output directory [default: ask --url]",
    ),
]
NewTable = Annotated[
    Path | None,
    typer.Option(help="new rows: CSV, Parquet or xlsx with the columns of the training"),
]
NewImages = Annotated[
    Path | None, typer.Option(help="new pictures: a file, a folder, or a table of paths")
]
NewRows = Annotated[Path | None, typer.Option(help="new rows: what the run's own code reads")]
PredictionsFile = Annotated[
    Path | None, typer.Option(help="CSV to write the predictions to [default: print them]")
]
IdColumn = Annotated[
    str | None,
    typer.Option(
        "--id",
        metavar="COLUMN",
        help="column of the table to write beside each prediction [default: row numbers alone]",
    ),
]
RecordIds = Annotated[
    list[str] | None,
    typer.Option(help="record id, as DATASET/SPLIT/NUMBER/0; several: repeat it, or commas"),
]
TrustCode = Annotated[
    bool,
    typer.Option(
        "--trust-code", help="run the code that came with the model [default: say what would run]"
    ),
]
Explain = Annotated[
    bool,
    typer.Option(
        "--explain",
        help="of an additive or a linear model of a table: write what each column adds to each "
        "prediction",
    ),
]
Wait = Annotated[float, typer.Option(min=0.1, max=600.0, help="seconds to wait for the parties")]


@reaching
@owners_screen()
def predict(
    run: ModelFolder = None,
    table: NewTable = None,
    images: NewImages = None,
    arrays: Annotated[Path | None, typer.Option(help="new rows: npz or safetensors")] = None,
    rows: NewRows = None,
    out: PredictionsFile = None,
    id_column: IdColumn = None,
    ids: RecordIds = None,
    wait: Wait = 60.0,
    trust_code: TrustCode = False,
    explain: Explain = False,
    *,
    reach: Reach,
    as_json: AsJson = False,
) -> None:
    """Predict new rows with a model that was exported.

    With --ids: classes of records, with a vertical run's model. The run's parties release
    embeddings of the records, and pay for them.
    """
    given_rows: dict[RowsKind, Path | None] = {
        "table": table,
        "images": images,
        "arrays": arrays,
        "python": rows,
    }
    chosen = {kind: path for kind, path in given_rows.items() if path is not None}
    if run is not None and (chosen or not ids):
        with exported_run(reach, run) as folder:
            _exported(folder, chosen, out, id_column, trust_code, as_json, explain=explain)
        return
    need("edge" if run is None else "run")
    listed = [item for option in ids or [] for item in map(str.strip, option.split(",")) if item]
    if not listed:
        raise ConfigError("--ids: name at least one record, as digits/test/0/0")
    ask: Callable[[Client], Predictions] = lambda client: client.predict(listed, wait)  # noqa: E731
    with _errors():
        if run is None:
            answer = _ask_running(reach.aggregator, reach.token_file, ask)
        else:
            answer = _up_again(run, ask)
    if as_json:
        typer.echo(json.dumps(answer.to_json(), indent=2))
        return
    for row in answer.predictions:
        say(f"{row.id}  {row.label}  {row.probabilities[row.label]:.3f}")
    if answer.epsilon is None:
        spent = "∞ (not private)"
    else:
        spent = rounding.epsilon(answer.epsilon)
    typer.echo(
        f"model version {answer.model_version}; a person's ε at all parties together, now: {spent}"
    )


def _exported(
    folder: Path,
    chosen: dict[RowsKind, Path],
    out: Path | None,
    id_column: str | None,
    trust_code: bool,
    as_json: bool,
    *,
    explain: bool,
) -> None:
    """Print, or write, a line for each row."""
    if len(chosen) != 1:
        raise ConfigError(
            "expected new rows: one of --table, --images, --arrays, --rows; or --ids of a vertical "
            "run"
        )
    need("edge")
    from tacit import exported

    model = exported.read(folder, trust_code=trust_code)
    [(kind, path)] = chosen.items()
    unread: list[str] = []

    def note(name: str, error: OwnersError) -> None:
        say(f"{name}: {error.for_owner}; no prediction", err=True)
        unread.append(name)

    if id_column is not None and kind != "table":
        raise ConfigError(f"--id {id_column}: is for the rows of a --table")
    with _in_its_form(exported.fixed_form(model)):
        predictions = _begun(exported.predict(model, kind, path, note, explain=explain))
        if id_column is None:
            names: Iterator[str] = iter(())
        else:
            names = _begun(exported.column_of(model, path, id_column))
        if as_json:
            typer.echo(text_of_json(list(_objects(predictions, id_column, names))))
        else:
            columns = _headings(model, explain=explain)
            _write(_lines(columns, predictions, id_column, names), out)
        for remark in exported.strangers(model, kind, path):
            say(f"note: {path.name}: {remark}", err=True)
    if unread:
        count = len(unread)
        if count == 1:
            what = "1 picture has"
        else:
            what = f"{count:,} pictures have"
        raise DataError(f"--images {path}: {what} no prediction (named above)")


def _headings(model: Exported, *, explain: bool) -> list[str]:
    """Return the headings of what stands behind a prediction."""
    from tacit import exported

    shares = [f"p({name})" for name in model.run.source.target.shares]
    words = ["words"] if exported.gives_words(model) else []
    reasons = [f"by {name}" for name in exported.explaining(model)] if explain else []
    return [*words, *shares, *reasons]


def _write(lines: Iterator[list[str]], out: Path | None) -> None:
    if out is None:
        csv.writer(sys.stdout, lineterminator="\n").writerows(lines)
        return
    try:
        with out.open("w", newline="", encoding="utf-8") as file:
            csv.writer(file, lineterminator="\n").writerows(lines)
    except OSError as error:
        raise ConfigError(f"--out {out}: {error.strerror or error}") from error


@contextmanager
def _in_its_form(form: str) -> Iterator[None]:
    """Let an error about new rows say that the keys of [data] are the model's, and fixed."""
    try:
        yield
    except DataError as error:
        text = str(error)
        if isinstance(error, OwnersError):
            text = error.for_owner
        if not form or "data." not in text:
            raise
        raise DataError(
            f"{text}. Here the keys of [data] are those of the model, and fixed ({form}): write "
            "the new rows so"
        ) from error


def _objects(
    predictions: Iterator[RowPrediction], id_column: str | None, names: Iterator[str]
) -> Iterator[dict[str, object]]:
    """Yield each prediction for JSON; with a column, its text as "id"."""
    for prediction in predictions:
        parts = asdict(prediction)
        for key in ("words", "reasons"):
            if parts[key] is None:
                del parts[key]
        if id_column is None:
            yield parts
        else:
            yield {"id": next(names, ""), **parts}


def _begun(predictions: Iterator[_Each]) -> Iterator[_Each]:
    """Return `predictions` once the first row is computed: errors come before any output."""
    first = list(islice(predictions, 1))
    return chain(first, predictions)


def _lines(
    columns: Iterable[str],
    predictions: Iterable[RowPrediction],
    id_column: str | None,
    names: Iterator[str],
) -> Iterator[list[str]]:
    """Yield a heading, and a line for each row; id_column: its text, of `names`, comes first.

    columns: behind the prediction: its words, where it has some, its shares, and its reasons.
    """
    head = ["row", "prediction", *columns]
    yield cells(head if id_column is None else [id_column, *head])
    for prediction in predictions:
        shares = [f"{share:.4f}" for share in prediction.probabilities.values()]
        if isinstance(prediction.value, str):
            value = prediction.value
        else:
            value = f"{prediction.value:.6g}"
        words = [] if prediction.words is None else [prediction.words]
        reasons = [f"{each:.4f}" for each in (prediction.reasons or {}).values()]
        line = [prediction.row, value, *words, *shares, *reasons]
        yield cells(line if id_column is None else [next(names, ""), *line])


def _up_again(folder: Path, ask: Callable[[Client], Predictions]) -> Predictions:
    from tacit_services.children import preload

    say(f"starting the aggregator and the parties of {folder} again", err=True)
    preload.prepare()  # its imports go on while this process makes its own
    from tacit_services.testbed import vertical_predict as again

    return again.predict(folder, ask)


def _ask_running(
    url: str, token_file: Path | None, ask: Callable[[Client], Predictions]
) -> Predictions:
    with rest_client.client(url, rest_client.token(token_file)) as client:
        return ask(client)


@contextmanager
def _errors() -> Iterator[None]:
    from tacit_client import ApiError, Unreachable

    try:
        yield
    except Unreachable as error:
        raise ServiceError(str(error)) from error
    except ApiError as error:
        kind = _KINDS.get(error.status)
        raise (TacitError(str(error)) if kind is None else kind(error.detail)) from error
