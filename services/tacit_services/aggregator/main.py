"""`tacit aggregator`: one run's single writer, with its REST interface."""

from __future__ import annotations

import functools
import logging
import socket
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import torch

from tacit.algorithms import registry
from tacit.algorithms.vafl import server as vafl
from tacit.algorithms.vafl import vertical_settings
from tacit.algorithms.vafl.labelled_records import LabelledRecords
from tacit.config import RunFile
from tacit.config.definition import Definition
from tacit.errors import ConfigError, ServiceError
from tacit.protocol import topics
from tacit_services.aggregator.api.operator import Operator
from tacit_services.aggregator.api.routes import create_app
from tacit_services.aggregator.assembly import Surroundings, assemble
from tacit_services.aggregator.broker_link import BrokerLink
from tacit_services.aggregator.desertion import Desertion
from tacit_services.aggregator.driver import ServerDriver
from tacit_services.aggregator.ingest import presence
from tacit_services.aggregator.reading import state_of
from tacit_services.aggregator.reporting import results
from tacit_services.aggregator.reporting.evaluation import Evaluator, Points
from tacit_services.aggregator.reporting.run_status import RunStatus
from tacit_services.aggregator.vertical import labelled_records
from tacit_services.aggregator.vertical.inference import Inference
from tacit_services.disk.secret_file import kept_secret
from tacit_services.journal.journal_file import Writer
from tacit_services.journal.store import Store, open_store
from tacit_services.journal.store_with_file import StoreWithJournalFile
from tacit_services.settings import ANOTHER_RUN, AggregatorSettings
from tacit_services.signals import stopping
from tacit_services.transport import http_server
from tacit_services.transport.address import bind

log = logging.getLogger("tacit.aggregator")


def main(settings: AggregatorSettings) -> None:
    """Serve one run to its end, write its results, and, with `linger`, go on answering REST.

    Raises TacitError.
    """
    stop = stopping()
    torch.set_num_threads(settings.threads)
    # Hashing, sockets and tensors let go of the interpreter lock all the time, and may wait 5 ms to
    # have it back.
    sys.setswitchinterval(1e-4)
    tls = settings.tls()  # a wrong setting is better said before the data is loaded
    run = settings.load_run()
    definition = run.define()
    model = definition.build_model()
    test = definition.source.test(settings.data)
    listener = bind(settings.http)
    _prepare(settings.out)
    people = _people(settings, definition) if definition.algorithm.worker == "party" else None
    role = registry.server(definition, model, people)
    store, key = _store(settings, run), _receipts_key(settings.receipts)
    name, chunk = settings.run_id, settings.chunk
    link = BrokerLink(settings.broker, f"{name}-aggregator", settings.connect_timeout, tls=tls)
    surroundings = Surroundings(
        name, store, link, settings.max_message, chunk, settings.trusted, key=key
    )
    driver = assemble(definition, role, model, surroundings)
    run_status = RunStatus(definition, driver, settings.out / "metrics.jsonl")
    operator = Operator(_token(settings.token_file, "TACIT_TOKEN_FILE"))
    inference = Inference(driver, role, settings.salt) if isinstance(role, vafl.Server) else None
    read_token = _token(settings.read_token_file, "TACIT_READ_TOKEN_FILE")
    app = create_app(run_status, operator, model, inference, settings.known_hosts(), read_token)
    evaluator = Evaluator(
        None if test is None else Points(definition, model, test, run_status.point)
    )
    # Closed from the last to the first: the last evaluation, the last snapshot, the store, the
    # event streams, for which REST would wait, and REST. _train lets no more input in then.
    with (
        _served(app, listener),
        closing(operator),
        closing(store),
        closing(driver),
        closing(evaluator),
    ):
        _recover(driver, settings.connect_timeout, stop)
        run_status.resumed()
        _train(link, driver, run_status, operator, evaluator, stop)
        evaluator.close()  # the last evaluation, on the whole test set
        if role.halted:
            results.write(settings.out, definition, run_status, model, test)
        if role.halted and settings.linger:
            log.info("run %s; still serving http://%s", state_of(driver.role), settings.http)
            if inference is None:
                _watch_presence(link, driver, stop)
            else:
                _answer_questions(link, driver, inference, stop)


def _store(settings: AggregatorSettings, run: RunFile) -> Store:
    """The run's store, with a journal file behind it where one is asked for."""
    store = open_store(settings.store, settings.run_id, max_entries=settings.max_journal)
    if settings.journal_file is None:
        return store
    return StoreWithJournalFile(store, Writer(settings.journal_file), settings.run_id, run)


def _recover(driver: ServerDriver, seconds: float, stop: threading.Event) -> None:
    """Take the run over; a store that does not answer has `seconds` to come up."""
    deadline = time.monotonic() + seconds
    while True:
        try:
            driver.recover()
            break
        except ServiceError as error:
            if time.monotonic() > deadline or stop.is_set():
                raise
            log.warning("%s; trying again", error)
            stop.wait(1.0)
    if driver.journal.cursor:
        replayed = driver.counts["replayed"]
        log.info(
            "resumed at version %d (%d journal entries replayed)", driver.role.version, replayed
        )
    if driver.role.halted:
        log.warning(
            "run %r was over before this start (%s): nothing will be trained. %s",
            driver.run_id,
            driver.role.halt_reason,
            ANOTHER_RUN,
        )


def _train(
    link: BrokerLink,
    driver: ServerDriver,
    run_status: RunStatus,
    operator: Operator,
    evaluator: Evaluator,
    stop: threading.Event,
) -> None:
    link.open(driver.subscriptions(), driver.inbox.put, stop)
    desertion = Desertion(driver.reading, run_status.definition.workers)

    def idle() -> None:
        if link.came_up():  # a new epoch makes the edges send again what has no receipt
            driver.announce()
        evaluator.offer(driver.role)
        run_status.tick(driver.role.version)
        operator.enter(driver)
        if (reason := desertion.reason()) is not None:
            driver.halt(reason)

    try:
        driver.run(stop, idle)
        if driver.role.halted:  # what is asked for of a run that is over is done
            operator.enter(driver)
        run_status.end()
        log.info(
            "run %s at version %d: %s",
            state_of(driver.role),
            driver.role.version,
            driver.role.halt_reason or "stopped",
        )
        if driver.role.halted:
            driver.farewell(stop)
    finally:
        link.close()


def _watch_presence(link: BrokerLink, driver: ServerDriver, stop: threading.Event) -> None:
    """Serve REST until `stop`; of edges' messages only their presence is taken in."""
    hear = functools.partial(presence.note, driver.presence, driver.names)
    try:
        link.open([topics.presence_all(driver.run_id)], hear, stop)
    except ServiceError as error:
        log.warning("%s; who leaves from here on is not noticed", error)
    stop.wait()
    link.close()


def _answer_questions(
    link: BrokerLink, driver: ServerDriver, inference: Inference, stop: threading.Event
) -> None:
    """Serve REST until `stop`, predictions too, for which this vertical run's parties are asked."""
    link.open(driver.subscriptions(), driver.inbox.put, stop)

    def idle() -> None:
        if link.came_up():
            driver.announce()
        inference.turn()

    try:
        driver.linger(stop, idle)
    finally:
        link.close()


@contextmanager
def _served(app: object, listener: socket.socket) -> Iterator[None]:
    """Answer REST in a thread of its own, for as long."""
    server = http_server.Server(app, timeout_graceful_shutdown=1)
    thread = threading.Thread(
        target=server.run, kwargs={"sockets": [listener]}, name="http", daemon=True
    )
    thread.start()
    try:
        yield
    finally:
        server.should_exit = True
        thread.join(5.0)


def _people(settings: AggregatorSettings, definition: Definition[Any]) -> LabelledRecords:
    settings.warn_of_salt(log)
    vertical = vertical_settings.vertical(definition)
    return labelled_records.load(vertical, settings.data, settings.salt, settings.labels)


def _receipts_key(path: Path) -> bytes:
    return kept_secret(path, "TACIT_RECEIPTS").encode()


def _prepare(out: Path) -> None:
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"TACIT_OUT={str(out)!r}: {error.strerror or error}") from error


def _token(path: Path | None, variable: str) -> str | None:
    """The token in the file that `variable` names; made with mode 0600 if it does not exist.

    None without a file.
    """
    return None if path is None else kept_secret(path, variable)
