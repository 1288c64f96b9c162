"""`tacit predict`: classes of records, by a vertical run's model and its parties."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tacit.errors import ConfigError, DataError, PrivacyError, ServiceError, TacitError
from tacit_services.extras import need
from tacit_services.transport import rest_client

if TYPE_CHECKING:
    from tacit_client import Client, Predictions

# The error, and so the exit code, for each status code that the aggregator answers.
_KINDS: dict[int, type[TacitError]] = {
    404: DataError,
    409: ConfigError,
    410: PrivacyError,
    503: ServiceError,
}


def predict(
    run: Annotated[
        Path | None,
        typer.Argument(
            help="output directory of a `tacit run` that has ended [default: ask --url]"
        ),
    ] = None,
    ids: Annotated[
        list[str] | None,
        typer.Option(help="record id, as DATASET/SPLIT/NUMBER/0; several: repeat it, or commas"),
    ] = None,
    wait: Annotated[
        float, typer.Option(min=0.1, max=600.0, help="seconds to wait for the parties")
    ] = 60.0,
    url: Annotated[
        str,
        typer.Option(
            envvar="TACIT_URL", help="an aggregator that serves on after its run (TACIT_LINGER)"
        ),
    ] = "http://127.0.0.1:8000",
    token_file: Annotated[
        Path | None,
        typer.Option(envvar="TACIT_TOKEN_FILE", help="file with that aggregator's token"),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="print JSON")] = False,
) -> None:
    """Predict the classes of records with a vertical run's model.

    The run's parties release embeddings of the records, and pay for them.
    """
    need("edge" if run is None else "run")
    wanted = [one.strip() for given in ids or [] for one in given.split(",") if one.strip()]
    if not wanted:
        raise ConfigError("--ids: name at least one record, as digits/test/0/0")
    ask: Callable[[Client], Predictions] = lambda client: client.predict(wanted, wait)  # noqa: E731
    with _errors():
        found = _there(url, token_file, ask) if run is None else _up_again(run, ask)
    if as_json:
        typer.echo(json.dumps(found.to_json(), indent=2))
        return
    for one in found.predictions:
        typer.echo(f"{one.id}  {one.label}  {one.probabilities[one.label]:.3f}")
    spent = "∞ (not private)" if found.epsilon is None else f"{found.epsilon:.4g}"
    typer.echo(
        f"model version {found.model_version}; a person's ε at all parties together, now: {spent}"
    )


def _up_again(folder: Path, ask: Callable[[Client], Predictions]) -> Predictions:
    from tacit_services.testbed import preload

    typer.echo(f"starting the aggregator and the parties of {folder} again", err=True)
    preload.prepare()  # its imports go on while this process makes its own
    from tacit_services.testbed import predict as again

    return again.predict(folder, ask)


def _there(url: str, token_file: Path | None, ask: Callable[[Client], Predictions]) -> Predictions:
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
