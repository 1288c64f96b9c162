"""Aggregators of a host that kill themselves at the points of their plan.

The forkserver alone imports it: what it replaces, all aggregators have. Each reads its own plan.
"""

from __future__ import annotations

import os
import signal
from functools import cache
from typing import Any

from tacit_services.aggregator.pipeline import Pipeline
from tacit_services.aggregator.run_journal import RunJournal

from tests.helpers.crash_plan import next_death


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


def install() -> None:
    """Put the points around the functions that they are named after."""
    append, appended = Pipeline._append, Pipeline._appended
    reply, fold = Pipeline._acknowledge_fold_reply, RunJournal.fold
    begin_save = RunJournal.begin_save

    def new_append(pipeline: Pipeline, candidates: Any) -> Any:
        if candidates:
            killer().at("before_append")
        return append(pipeline, candidates)

    def new_appended(pipeline: Pipeline, *arguments: Any) -> Any:
        answers = appended(pipeline, *arguments)
        if answers:
            killer().at("after_append")
        return answers

    def new_fold(journal: RunJournal, *arguments: Any) -> Any:
        folded = fold(journal, *arguments)
        killer().at("after_fold")
        return folded

    def new_reply(pipeline: Pipeline, *arguments: Any) -> None:
        reply(pipeline, *arguments)
        killer().at("after_reply")

    def new_save(journal: RunJournal) -> None:
        begin_save(journal)
        killer().at("in_save")

    for kind, name, replacement in (
        (Pipeline, "_append", new_append),
        (Pipeline, "_appended", new_appended),
        (Pipeline, "_acknowledge_fold_reply", new_reply),
        (RunJournal, "fold", new_fold),
        (RunJournal, "begin_save", new_save),
    ):
        setattr(kind, name, replacement)


install()
