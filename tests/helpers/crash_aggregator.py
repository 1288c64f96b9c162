"""Aggregators of a host that kill themselves at the points of their plan.

The forkserver alone imports it: what it replaces, all aggregators have. Each reads its own plan.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterable
from functools import cache
from typing import Any

from tacit_services.aggregator.pipeline import Pipeline
from tacit_services.aggregator.run_journal import RunJournal

from tacit.protocol.messages import Update
from tests.helpers.crash_plan import LOOK, next_death


class AggregatorKiller:
    """Ends this process where it passes `point` for the `number`-th time."""

    def __init__(self) -> None:
        self._death = next_death(os.environ["TACIT_RUN_ID"])
        self._passed = 0

    def at(self, point: str) -> None:
        """Die here, if this is the place."""
        if self._death is None:
            return
        (place, number), died = self._death
        self._passed += place == point
        if place == point and self._passed == number:
            died()
            os.kill(os.getpid(), signal.SIGKILL)


@cache
def killer() -> AggregatorKiller:
    """Return this process's."""
    return AggregatorKiller()


def _passed(point: str, arguments: Iterable[Any]) -> None:
    """Pass a point of updates, or of looks, if one is among these candidates, or what is folded."""
    messages = [getattr(argument, "message", argument) for argument in arguments]
    updates = [message for message in messages if isinstance(message, Update)]
    if updates:
        killer().at(point)
    if any(update.look for update in updates):
        killer().at(LOOK + point)


def _install_in_pipeline() -> None:
    append, appended = Pipeline._append, Pipeline._appended
    reply = Pipeline._acknowledge_fold_reply

    def new_append(pipeline: Pipeline, candidates: Any) -> Any:
        if candidates:
            killer().at("before_append")
        _passed("before_update", candidates)
        return append(pipeline, candidates)

    def new_appended(pipeline: Pipeline, *arguments: Any) -> Any:
        answers = appended(pipeline, *arguments)
        if answers:
            killer().at("after_append")
        return answers

    def new_reply(pipeline: Pipeline, batch: Any, answers: Any) -> None:
        candidates = [*batch.candidates]
        _passed("update_appended", candidates)
        reply(pipeline, batch, answers)
        killer().at("after_reply")
        _passed("update_answered", candidates)

    setattr(Pipeline, "_append", new_append)  # noqa: B010  (as Killer does)
    setattr(Pipeline, "_appended", new_appended)  # noqa: B010
    setattr(Pipeline, "_acknowledge_fold_reply", new_reply)  # noqa: B010


def _install_in_journal() -> None:
    fold, begin_save = RunJournal.fold, RunJournal.begin_save

    def new_fold(journal: RunJournal, *arguments: Any) -> Any:
        folded = fold(journal, *arguments)
        killer().at("after_fold")
        _passed("update_folded", arguments)
        return folded

    def new_save(journal: RunJournal) -> None:
        begin_save(journal)
        killer().at("in_save")

    setattr(RunJournal, "fold", new_fold)  # noqa: B010
    setattr(RunJournal, "begin_save", new_save)  # noqa: B010


def install() -> None:
    """Put the points around the functions that they are named after."""
    _install_in_pipeline()
    _install_in_journal()


install()
