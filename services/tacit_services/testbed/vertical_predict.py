"""Brings a vertical run of `tacit run` up once more, for predictions."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path

from pydantic import BaseModel, Field, TypeAdapter, ValidationError, field_validator
from tacit_client import ApiError, Client, Predictions, Status, Unreachable

from tacit import config, regular_file
from tacit.algorithms.vafl.vafl_settings import Vafl
from tacit.config.definition import Definition
from tacit.errors import ConfigError, ServiceError, other_format
from tacit_services.aggregator.reporting.run_status import SUMMARY_FORMAT
from tacit_services.children.processes import (
    Child,
    free_port,
    restart_if_dead,
    start_broker,
    start_store,
    stopping,
)
from tacit_services.testbed import local_run, output_folder
from tacit_services.transport import rest_client
from tacit_services.worker import cpu_turns

START_SECONDS = 120.0  # until aggregator and parties are there, on a busy machine
_SETTINGS = TypeAdapter(dict[str, str])  # the marker holds the environment of the run's processes


class _Summary(BaseModel):
    format: int | None = Field(None, validate_default=True)
    run_file_sha256: str

    @field_validator("format")
    @classmethod
    def _ours(cls, number: int | None) -> int | None:
        if number != SUMMARY_FORMAT:
            raise ValueError(other_format(number, SUMMARY_FORMAT))
        return number


def predict(folder: Path, ask: Callable[[Client], Predictions]) -> Predictions:
    """Return what `ask` gets from the run in `folder`, the output directory of `tacit run`.

    Raises TacitError, ApiError.
    """
    definition, shared = _ended_run(folder)
    state = folder / "state"
    shared |= local_run.salt(definition, state)
    http = f"127.0.0.1:{free_port()}"
    children: list[Child] = []
    with cpu_turns.pipe(state / "turns", os.cpu_count() or 1), stopping(children) as interrupted:
        shared |= {"TACIT_BROKER": start_broker(state, children).address, "TACIT_SERVE": "true"}
        # The results of the run stay as they are: what this aggregator writes goes elsewhere.
        places = {
            "TACIT_STORE": start_store(state, children).address,
            "TACIT_OUT": str(state / "predict"),
        }
        server = local_run.aggregator(
            shared | places | {"TACIT_HTTP": http, "TACIT_LINGER": "true"}, state
        )
        with rest_client.client(f"http://{http}", rest_client.token(state / "token")) as client:
            _start([server], children)
            ended = _wait(client, children, interrupted, lambda status: True, "the aggregator")
            if not ended.over:
                raise ServiceError(
                    f"{folder}: its store does not have the end of the run; run it again"
                )
            parties = local_run.workers(definition, shared, state)
            _start(parties, children)
            _wait(
                client,
                children,
                interrupted,
                lambda status: status.edges_online >= len(parties),
                "every party",
            )
            return ask(client)


def _ended_run(folder: Path) -> tuple[Definition[Vafl], dict[str, str]]:
    """Return the definition and the environment that the run was started with.

    Raises ConfigError where there is no run that has ended, or none that is vertical.
    """
    marker = folder / "state" / output_folder.MARKER
    try:
        shared = _SETTINGS.validate_json(regular_file.content(marker), strict=True)
        edges, seed = (
            int(shared[name]) if name in shared else None for name in ("TACIT_EDGES", "TACIT_SEED")
        )
        summary = _Summary.model_validate_json(
            regular_file.content(folder / "summary.json"), strict=True
        )
    except ValidationError as error:
        first = error.errors()[0]
        reason = ": ".join((*map(str, first["loc"]), first["msg"]))
        raise ConfigError(f"{folder}: no run of `tacit run` that has ended ({reason})") from error
    except (OSError, ValueError) as error:
        raise ConfigError(f"{folder}: no run of `tacit run` that has ended ({error})") from error
    if "TACIT_RUN_FILE" not in shared:
        raise ConfigError(f"{marker}: does not name the run's file")
    definition = config.load(Path(shared["TACIT_RUN_FILE"]), edges=edges, seed=seed).define()
    if definition.algorithm.worker != "party":
        raise ConfigError(
            f"{folder}: {definition.algorithm.name} is not vertical; "
            "its model.safetensors predicts by itself"
        )
    if summary.run_file_sha256 != definition.fingerprint:
        raise ConfigError(f"{shared['TACIT_RUN_FILE']}: is not what {folder} was run with any more")
    return definition, shared


def _start(ours: list[Child], children: list[Child]) -> None:
    children.extend(ours)
    for child in ours:
        child.start()


def _wait(
    client: Client,
    children: list[Child],
    interrupted: threading.Event,
    so: Callable[[Status], bool],
    what: str,
) -> Status:
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline:
        for child in children:
            restart_if_dead(child)
        with contextlib.suppress(Unreachable, ApiError):
            if so(status := client.status()):
                return status
        if interrupted.wait(0.2):
            raise KeyboardInterrupt
    raise ServiceError(
        f"{what} did not come within {START_SECONDS:g} s; see the logs beside the run's state"
    )
