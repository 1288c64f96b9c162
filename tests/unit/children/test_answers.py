"""One answer of a process of its own: nothing but JSON comes back, and its end is nobody else's."""

from __future__ import annotations

import os
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil
import pytest
from tacit_services.children.child_limits import ChildLimits, LimitPassed
from tacit_services.children.preload import answer_of

from tacit.errors import ServiceError

ANSWERS = "tests.helpers.answers"
LIMITS = ChildLimits(memory=1 << 29, seconds=60.0)


def test_an_answer_comes_from_another_process_whose_words_are_in_its_log(tmp_path: Path) -> None:
    log = tmp_path / "log"
    answer = answer_of(ANSWERS, log, "gives", "ε")
    assert answer["word"] == "ε"
    assert answer["process"] != os.getpid()
    assert log.read_text() == "asked gives\n"


@pytest.mark.parametrize(("how", "code"), [("dies", "-9"), ("raises", "1"), ("floods", "1")])
def test_a_process_without_an_answer_is_an_error_that_names_its_log(
    tmp_path: Path, how: str, code: str
) -> None:
    with pytest.raises(ServiceError) as refused:
        answer_of(ANSWERS, tmp_path / "its.log", how, "no such thing")
    assert str(refused.value) == f"ended without an answer ({code}); see its.log"
    log = (tmp_path / "its.log").read_text()
    assert log.startswith(f"asked {how}")
    assert ("ValueError: no such thing" in log) == (how == "raises")


def test_threads_that_ask_at_a_time_have_their_own_answers(tmp_path: Path) -> None:
    words = [f"word {number}" for number in range(12)]
    with ThreadPoolExecutor(4) as threads:
        answers = threads.map(
            lambda word: answer_of(ANSWERS, tmp_path / word, "gives", word), words
        )
        assert [answer["word"] for answer in answers] == words


@pytest.mark.skipif(sys.platform != "linux", reason="memory is bounded on Linux alone")
@pytest.mark.parametrize("how", ["takes", "tensor"])
def test_a_process_has_no_more_memory_than_its_limit(tmp_path: Path, how: str) -> None:
    log = tmp_path / "log"
    assert answer_of(ANSWERS, log, how, str(1 << 28), limits=LIMITS) == 1 << 28
    with pytest.raises(LimitPassed, match=r"^takes more than 0\.5 GiB of memory$"):
        answer_of(ANSWERS, log, how, str(1 << 30), limits=LIMITS)


def test_a_process_that_takes_too_long_is_ended(tmp_path: Path) -> None:
    log = tmp_path / "log"
    hasty = ChildLimits(memory=1 << 29, seconds=5.0)
    with pytest.raises(LimitPassed, match=r"^takes more than 5 s$"):
        answer_of(ANSWERS, log, "waits", limits=hasty)
    assert not psutil.pid_exists(int(log.read_text().split()[-1]))


def test_an_answer_is_as_long_as_its_limit(tmp_path: Path) -> None:
    wide = ChildLimits(memory=1 << 29, seconds=60.0, answer=1 << 22)
    assert len(answer_of(ANSWERS, tmp_path / "log", "floods", limits=wide)) == 1 << 21
