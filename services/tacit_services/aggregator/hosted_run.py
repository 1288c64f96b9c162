"""One run in this process, from the taking over to its results, with all that is built for it.

    hosted = HostedRun(settings, Loaded.of(settings), tls)
    with served(hosted.app), closing(hosted):
        hosted.serve(stop)

A process hosts one run today. A HostedRun shares nothing with another but the process, so several
can stand side by side: each with its store, its link to the broker, its threads and its app.
"""

from __future__ import annotations

import logging
import threading
import time
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from tacit.algorithms import registry
from tacit.algorithms.base.labelled_records import LabelledRecords
from tacit.algorithms.vafl import label_server as vafl
from tacit.algorithms.vafl import vertical_settings
from tacit.config import RunFile
from tacit.config.definition import Definition
from tacit.datasets import Dataset
from tacit.errors import ConfigError, ServiceError
from tacit.models import Model
from tacit.protocol import topics
from tacit_services.aggregator.api.operator import Operator
from tacit_services.aggregator.api.routes import create_app
from tacit_services.aggregator.assembly import Surroundings, assemble
from tacit_services.aggregator.broker_link import BrokerLink
from tacit_services.aggregator.desertion import Desertion
from tacit_services.aggregator.reading import state_of
from tacit_services.aggregator.reporting import results
from tacit_services.aggregator.reporting.early_stop import EarlyStop, watch
from tacit_services.aggregator.reporting.end_reasons import NO_GAIN_OF_LOOKS
from tacit_services.aggregator.reporting.evaluation import Evaluator, Points, public_sample
from tacit_services.aggregator.reporting.other_models import OtherModels
from tacit_services.aggregator.reporting.run_status import RunStatus
from tacit_services.aggregator.vertical import record_labels
from tacit_services.aggregator.vertical.inference import Inference
from tacit_services.disk.secret_file import kept_secret
from tacit_services.disk.set_aside import moved_aside
from tacit_services.journal.journal_file import Writer
from tacit_services.journal.store import Store, open_store
from tacit_services.journal.store_with_file import StoreWithJournalFile
from tacit_services.settings import ANOTHER_RUN, AggregatorSettings
from tacit_services.tracking.run_trackers import RunTrackers
from tacit_services.tracking.tracker import TrackedRun
from tacit_services.transport.tls import Tls

log = logging.getLogger("tacit.aggregator")
_LOOK_SECONDS = 1.0  # between two looks at who has left, after the run's end


@dataclass(frozen=True, slots=True)
class Loaded:
    """A run file, what it defines, its model, and the public test set, if there is one."""

    run: RunFile
    definition: Definition[Any]
    model: Model
    test: Dataset | None

    @classmethod
    def of(cls, settings: AggregatorSettings, run: RunFile | None = None) -> Self:
        """Load what `settings` name, or a federation's `run`. Raises TacitError."""
        run = run or settings.load_run()
        definition = run.define()
        return cls(run, definition, definition.build_model(), definition.source.test(settings.data))


class HostedRun:
    """The objects of one run, each built once, and closed in order.

    app: its REST interface, which answers from the beginning.
    """

    def __init__(self, settings: AggregatorSettings, loaded: Loaded, tls: Tls | None) -> None:
        """Raises TacitError."""
        definition = loaded.definition
        model = loaded.model
        test = loaded.test
        self._settings = settings
        self._loaded = loaded
        name = settings.run_id
        _prepare(settings.out, name)
        role = registry.server(definition, model, _labelled_records(settings, definition))
        self._store = store = _store(settings, loaded.run)
        key = kept_secret(settings.receipts, "TACIT_RECEIPTS").encode()
        patience = settings.connect_timeout
        self._link = link = BrokerLink(settings.broker, f"{name}-aggregator", patience, tls=tls)
        limits = settings.max_message, settings.chunk
        # Members charge one ledger for several runs: each run has its own word of how far it came.
        anchors = "" if settings.offer is None else f"run {name}"
        surroundings = Surroundings(
            name, store, link, *limits, settings.trusted, key=key, anchors=anchors
        )
        run, self._pipeline, driver = assemble(definition, role, model, surroundings)
        by_test_set = test is not None and definition.run.stop != "never"
        metrics = settings.out / "metrics.jsonl"
        tracked_run = TrackedRun.of(definition, name, simulated=False)
        self._trackers = RunTrackers.of(
            definition.tracking, definition.folder, tracked_run, settings.out
        )
        run_status = RunStatus(
            definition, run, metrics, by_test_set=by_test_set, tell=self._trackers.point
        )
        operator = Operator(_token(settings.token_file, "TACIT_TOKEN_FILE"))
        salt = settings.salt
        if isinstance(role, vafl.LabelServer):
            inference = Inference(run, driver, role, salt)
        else:
            inference = None
        read_token = _token(settings.read_token_file, "TACIT_READ_TOKEN_FILE")
        self.app = create_app(
            run_status,
            operator,
            model,
            inference,
            settings.known_hosts(),
            read_token,
            None if tls is None else tls.ends(),
        )
        self._early_stop: EarlyStop | None = None
        if test is None:
            points = None
        else:
            sample = public_sample(definition, test)
            series = run_status.points
            self._early_stop = watch(definition, model, sample, series, settings.out, name)
            points = Points(definition, model, test, sample, run_status.point, self._early_stop)
        self._evaluator = Evaluator(points)
        self._run = run
        self._driver = driver
        self._run_status = run_status
        self._operator = operator
        self._inference = inference

    def serve(self, stop: threading.Event) -> None:
        """Train to the run's end, write its results, and, with `linger`, go on until `stop`.

        Raises TacitError.
        """
        settings = self._settings
        loaded = self._loaded
        role = self._run.role
        self._recover(stop)
        self._run_status.resumed()
        self._trackers.begin()
        if self._early_stop is not None:
            self._early_stop.resume(role.version)
        self._train(stop)
        self._evaluator.close()  # the last evaluation, on the whole test set
        if role.halted:
            results.write(
                settings.out,
                loaded.definition,
                self._run_status,
                loaded.model,
                loaded.test,
                OtherModels(role.model_average, self._early_stop, role.looks),
            )
            self._trackers.end()
        if role.halted and settings.linger:
            log.info("run %s; still serving http://%s", state_of(role), settings.http)
            if self._inference is None:
                self._watch_presence(stop)
            else:
                self._answer_questions(self._inference, stop)

    def close(self) -> None:
        """Close all, from the last to the first; idempotent.

        The last evaluation, the trackers, the last snapshot, the store, and the event streams, for
        which REST would wait. `serve` lets no more input in then.
        """
        with ExitStack() as parts:
            for part in (
                self._operator, self._store, self._driver, self._trackers, self._evaluator,
            ):  # fmt: skip
                parts.callback(part.close)
            self._run_status.stop()

    def _recover(self, stop: threading.Event) -> None:
        """Take the run over; a store that does not answer has a while to come up."""
        run = self._run
        journal = self._run.journal
        deadline = time.monotonic() + self._settings.connect_timeout
        while True:
            try:
                self._driver.recover()
                break
            except ServiceError as error:
                if time.monotonic() > deadline or stop.is_set():
                    raise
                log.warning("%s; trying again", error)
                stop.wait(1.0)
        if journal.cursor:
            log.info(
                "resumed at version %d (%d journal entries replayed)",
                run.role.version,
                run.counts["replayed"],
            )
        if run.role.halted:
            log.warning(
                "run %r was over before this start (%s): nothing will be trained. %s",
                run.run_id,
                run.role.halt_reason,
                ANOTHER_RUN,
            )

    def _train(self, stop: threading.Event) -> None:
        run = self._run
        link = self._link
        driver = self._driver
        link.open(run.subscriptions(), self._pipeline.hear, stop)
        early_stop = self._early_stop
        definition = self._loaded.definition
        edges = definition.edges
        stops = definition.judging is not None and definition.run.stop != "never"
        desertion = Desertion(run.reading, edges.count, edges.grace)

        def idle() -> None:
            if link.came_up():  # a new epoch makes the edges send again what has no receipt
                driver.announce()
            self._evaluator.offer(run.role)
            self._run_status.tick(run.role.version)
            self._run_status.look()
            self._operator.enter(driver)
            if (reason := desertion.reason()) is not None:
                driver.halt(reason)
            if early_stop is not None and early_stop.reason:
                driver.halt(early_stop.reason)
            if stops and self._run_status.looks_show_no_gain():
                driver.halt(NO_GAIN_OF_LOOKS)

        try:
            driver.train(stop, idle, lambda: self._evaluator.offer(run.role))
            if run.role.halted:  # what is asked for of a run that is over is done
                self._operator.enter(driver)
            self._run_status.end()
            log.info(
                "run %s at version %d: %s",
                state_of(run.role),
                run.role.version,
                run.role.halt_reason or "stopped",
            )
            if run.role.halted:
                driver.farewell(stop)
        finally:
            link.close()

    def _watch_presence(self, stop: threading.Event) -> None:
        """Serve REST until `stop`; of edges' messages only their presence is taken in."""
        run = self._run
        link = self._link
        try:
            link.open([topics.presence_all(run.run_id)], run.note_presence, stop)
        except ServiceError as error:
            log.warning("%s; who leaves from here on is not noticed", error)
        while not stop.wait(_LOOK_SECONDS):
            self._run_status.look()
        link.close()

    def _answer_questions(self, inference: Inference, stop: threading.Event) -> None:
        """Serve REST until `stop`, predictions too, which this vertical run's parties compute."""
        link = self._link
        link.open(self._run.subscriptions(), self._pipeline.hear, stop)

        def idle() -> None:
            if link.came_up():
                self._driver.announce()
            self._run_status.look()
            inference.turn()

        try:
            self._driver.linger(stop, idle)
        finally:
            link.close()


def _store(settings: AggregatorSettings, run: RunFile) -> Store:
    """Return the run's store, with a journal file behind it where one is asked for."""
    store = open_store(settings.store, settings.run_id, max_entries=settings.max_journal)
    if settings.journal_file is None:
        return store
    return StoreWithJournalFile(store, Writer(settings.journal_file), settings.run_id, run)


def _labelled_records(
    settings: AggregatorSettings, definition: Definition[Any]
) -> LabelledRecords | None:
    """Return the records of a vertical run, None of any other."""
    if definition.algorithm.worker != "party":
        return None
    vertical = vertical_settings.vertical(definition)
    settings.judge_salt(log, own=vertical.own is not None)
    return record_labels.load(vertical, settings.data, settings.salt, settings.labels)


def _prepare(out: Path, run: str) -> None:
    """Make the folder of the results of `run`; those of another run are moved aside."""
    try:
        out.mkdir(parents=True, exist_ok=True)
        other = results.run_in(out)
        if other is not None and other != run:
            # The summary goes first: what is left of a move that was cut short is no whole result.
            place = moved_aside(out, results.FILES)
            log.info("the results of run %r in %s are now in %s", other, out, place)
    except OSError as error:
        raise ConfigError(f"TACIT_OUT={str(out)!r}: {error.strerror or error}") from error


def _token(path: Path | None, variable: str) -> str | None:
    """Return the token in the file that `variable` names; made with mode 0600 if it does not exist.

    None without a file.
    """
    if path is None:
        return None
    return kept_secret(path, variable)
