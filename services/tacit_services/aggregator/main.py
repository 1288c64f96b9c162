"""`tacit aggregator`: one run's single writer, with its REST interface."""

from __future__ import annotations

import functools
import logging
import os
import secrets
import signal
import socket
import sys
import threading
import time
from pathlib import Path
from typing import Any

import torch
import uvicorn

from tacit.algorithms import registry
from tacit.algorithms.vafl import server as vafl
from tacit.algorithms.vafl import vertical_settings
from tacit.config import RunFile
from tacit.config.definition import Definition
from tacit.errors import ConfigError, ServiceError
from tacit.models import Model
from tacit.protocol import topics
from tacit_services.aggregator import trusted
from tacit_services.aggregator.api.routes import Operator, create_app
from tacit_services.aggregator.driver import ServerDriver
from tacit_services.aggregator.gate import gate
from tacit_services.aggregator.ingest import presence
from tacit_services.aggregator.ingest.guard import Guard
from tacit_services.aggregator.ingest.rate_limit import Door
from tacit_services.aggregator.reporting import results
from tacit_services.aggregator.reporting.evaluation import Evaluator, Points
from tacit_services.aggregator.reporting.run_status import Observer
from tacit_services.aggregator.vertical import labelled_records
from tacit_services.aggregator.vertical.inference import Inference
from tacit_services.journal.journal_file import Writer
from tacit_services.journal.store import Store, open_store
from tacit_services.journal.store_with_file import StoreWithJournalFile
from tacit_services.settings import AggregatorSettings
from tacit_services.transport import http_server
from tacit_services.transport.address import bind
from tacit_services.transport.mqtt import Connection

log = logging.getLogger("tacit.aggregator")
ALL_RETIRED_GRACE = 10.0  # seconds with nobody left who could push before the run ends
FEW_EDGES_GRACE = 60.0  # the same while fewer edges than expected have ever come


def main(settings: AggregatorSettings) -> None:
    """Serve one run to its end, write its results, and, with `linger`, go on answering REST.

    Raises TacitError.
    """
    stop = threading.Event()
    for name in (signal.SIGTERM, signal.SIGINT):
        signal.signal(name, lambda *_: stop.set())
    torch.set_num_threads(settings.threads)
    # Hashing, sockets and tensors let go of the interpreter lock all the time, and may wait 5 ms to
    # have it back.
    sys.setswitchinterval(1e-4)
    settings.tls()  # a wrong setting is better said before the data is loaded
    run = settings.load_run()
    definition = run.define()
    model = definition.build_model()
    test = definition.source.load("test", settings.data)
    listener = bind(settings.http)
    _prepare(settings.out)
    store = _store(settings, run)
    driver = _driver(settings, definition, model, store, run.run.snapshot_every)
    noise = (
        trusted.install(driver, run, settings.trusted) if run.privacy.noise_at == "server" else None
    )
    driver.uplink.guard = Guard(run, driver.role) if run.guard.active else None
    driver.down.gate = gate(definition, driver.role, driver.presence, lambda: driver.quarantined)
    if run.guard.rate is not None:
        driver.door = Door(
            run.guard.rate, run.guard.burst, 4 * max(model.size, driver.role.largest)
        )
    observer = Observer(definition, driver, settings.out / "metrics.jsonl")
    observer.needed = lambda: driver.down.gate.needed
    operator = Operator(_token(settings.token_file, settings.http))
    inference = (
        Inference(driver, driver.role, settings.salt)
        if isinstance(driver.role, vafl.Server)
        else None
    )
    server, serving = _web(create_app(observer, operator, model, inference), listener)
    evaluator = Evaluator(Points(definition, model, test, observer.point))
    try:
        _recover(driver, observer, settings, stop)
        _train(settings, driver, observer, operator, evaluator, stop)
        evaluator.close()  # the last evaluation, on the whole test set
        if driver.role.halted:
            results.write(settings.out, observer, model)
        if settings.linger and driver.role.halted:
            log.info("run %s; still serving http://%s", driver.state, settings.http)
            if inference is None:
                _see_off(settings, driver, observer, stop)
            else:
                _answer(settings, driver, observer, inference, stop)
    finally:
        # Order: no new input (connection, in _train), last snapshot (driver), store, then the
        # window to it all.
        evaluator.close()
        if noise is not None:
            noise.close()
        store.close()
        operator.close()  # ends the event streams, which the server would wait for
        server.should_exit = True
        serving.join(5.0)


def _store(settings: AggregatorSettings, run: RunFile) -> Store:
    store = open_store(settings.store, settings.run_id, max_entries=settings.max_journal)
    if settings.journal_file is None:
        return store
    return StoreWithJournalFile(store, Writer(settings.journal_file), settings.run_id, run)


def _driver(
    settings: AggregatorSettings,
    definition: Definition[Any],
    model: Model,
    store: Store,
    snapshot_every: int,
) -> ServerDriver:
    people = None
    if definition.algorithm.worker == "party":
        vertical = vertical_settings.vertical(definition)
        people = labelled_records.load(vertical, settings.data, settings.salt, settings.labels)
    role = registry.server(definition, model, people)
    return ServerDriver(
        settings.run_id,
        role,
        model.schema_hash(),
        model.size,
        store,
        fingerprint=definition.fingerprint,
        older=definition.older,
        snapshot_every=snapshot_every,
        max_message=settings.max_message,
        chunk=settings.chunk,
    )


def _recover(
    driver: ServerDriver,
    observer: Observer[ServerDriver],
    settings: AggregatorSettings,
    stop: threading.Event,
) -> None:
    deadline = time.monotonic() + settings.connect_timeout
    while True:
        try:
            driver.recover()
            break
        except ServiceError as error:
            if time.monotonic() > deadline or stop.is_set():
                raise
            log.warning("%s; trying again", error)
            stop.wait(1.0)
    observer.resumed()
    if driver.cursor:
        replayed = driver.counts["replayed"]
        log.info(
            "resumed at version %d (%d journal entries replayed)", driver.role.version, replayed
        )


def _train(
    settings: AggregatorSettings,
    driver: ServerDriver,
    observer: Observer[ServerDriver],
    operator: Operator,
    evaluator: Evaluator,
    stop: threading.Event,
) -> None:
    ups = threading.Event()
    connection = _connect(settings, driver, ups, stop)
    observer.broker_up = lambda: connection.up
    observer.reconnects = lambda: max(0, connection.connects - 1)
    lonely_since: float | None = None

    def idle() -> None:
        nonlocal lonely_since
        if (
            ups.is_set()
        ):  # (re)connected: a new epoch makes the edges send again what has no receipt
            ups.clear()
            driver.announce()
        evaluator.offer(driver.role)
        observer.tick()
        reason = operator.wanted()
        if reason is None and observer.only_retired():
            grace = (
                ALL_RETIRED_GRACE
                if len(driver.role.edges) >= observer.definition.workers
                else FEW_EDGES_GRACE
            )
            if lonely_since is None:
                log.warning(
                    "every edge here has spent its budget; the run ends in %g s unless one joins",
                    grace,
                )
            lonely_since = lonely_since or time.monotonic()
            if time.monotonic() - lonely_since > grace:
                reason = "the budget of every edge online is spent"
        else:
            lonely_since = None
        if reason is not None:
            driver.halt(reason)

    try:
        driver.run(connection, stop, idle)
        observer.end()
        log.info(
            "run %s at version %d: %s",
            driver.state,
            driver.role.version,
            driver.role.halted or "stopped",
        )
        if driver.role.halted:
            driver.farewell(stop)
    finally:
        connection.stop()


def _connect(
    settings: AggregatorSettings, driver: ServerDriver, ups: threading.Event, stop: threading.Event
) -> Connection:
    """To the broker; `ups` is set at every (re)connection. Raises ServiceError."""
    connection = Connection(
        settings.broker,
        f"{settings.run_id}-aggregator",
        driver.subscriptions(),
        driver.hear,
        on_up=ups.set,
        chunk=settings.chunk,
        tls=settings.tls(),
    )
    connection.start(settings.connect_timeout, stop)
    return connection


def _see_off(
    settings: AggregatorSettings,
    driver: ServerDriver,
    observer: Observer[ServerDriver],
    stop: threading.Event,
) -> None:
    """Serve REST until `stop`; of what edges say, only that they are there, or leave, is heard."""
    connection = Connection(
        settings.broker,
        f"{settings.run_id}-aggregator",
        [topics.presence_all(settings.run_id)],
        functools.partial(presence.note, driver.presence),
        tls=settings.tls(),
    )
    observer.broker_up = lambda: connection.up
    try:
        connection.start(settings.connect_timeout, stop)
    except ServiceError as error:
        log.warning("%s; who leaves from here on is not noticed", error)
    stop.wait()
    connection.stop()


def _answer(
    settings: AggregatorSettings,
    driver: ServerDriver,
    observer: Observer[ServerDriver],
    inference: Inference,
    stop: threading.Event,
) -> None:
    """Serve REST until `stop`, and predictions, for which the parties of this vertical run are
    asked.
    """
    ups = threading.Event()
    connection = _connect(settings, driver, ups, stop)
    observer.broker_up = lambda: connection.up

    def idle() -> None:
        if ups.is_set():
            ups.clear()
            driver.announce()
        inference.turn()

    try:
        driver.linger(connection, stop, idle)
    finally:
        connection.stop()


def _web(app: object, listener: socket.socket) -> tuple[uvicorn.Server, threading.Thread]:
    server = uvicorn.Server(http_server.uvicorn_config(app, ws="none", timeout_graceful_shutdown=1))
    thread = threading.Thread(
        target=server.run, kwargs={"sockets": [listener]}, name="http", daemon=True
    )
    thread.start()
    return server, thread


def _prepare(out: Path) -> None:
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"TACIT_OUT={str(out)!r}: {error.strerror or error}") from error


def _token(path: Path | None, http: str) -> str | None:
    """The operator's token; made with mode 0600 if the file does not exist. None:

    writes are refused.
    """
    if path is None:
        return None
    try:
        if not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with os.fdopen(descriptor, "w") as file:
                file.write(secrets.token_urlsafe(32) + "\n")
        token = path.read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"TACIT_TOKEN_FILE={str(path)!r}: {error}") from error
    if len(token) < 16:
        raise ConfigError(f"TACIT_TOKEN_FILE={str(path)!r}: the token has fewer than 16 characters")
    return token
