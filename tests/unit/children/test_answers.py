"""One answer of a process of its own: nothing but JSON comes back, and its end is nobody else's."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from tacit_services.children.preload import answer_of

from tacit.errors import ServiceError

ANSWERS = "tests.helpers.answers"


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
