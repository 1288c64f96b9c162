"""Log records carry edge, seq and version where a machine finds them."""

from __future__ import annotations

import json
import logging
import sys

import pytest
from tacit_services.logs import JsonFormatter, Seldom, SeldomFilter, TextFormatter


def record(message: str, **facts: object) -> logging.LogRecord:
    log_record = logging.LogRecord("tacit.driver", logging.WARNING, "file.py", 1, message, (), None)
    log_record.created, log_record.msecs = 0.25, 250.0
    for name, value in facts.items():
        setattr(log_record, name, value)
    return log_record


def test_text_puts_them_behind_the_message() -> None:
    log_record = record("a message was refused", edge="edge-0", seq=7, version=3, reason="norm")
    line = (
        "1970-01-01T00:00:00.250Z WARNING tacit.driver a message was refused edge=edge-0 "
        "seq=7 version=3 reason=norm"
    )
    assert TextFormatter().format(log_record) == line
    assert (
        TextFormatter().format(record("hello"))
        == "1970-01-01T00:00:00.250Z WARNING tacit.driver hello"
    )


def test_json_is_one_object_a_line() -> None:
    line = JsonFormatter().format(record('a "quoted"\nmessage', edge="edge-0", seq=7))
    assert "\n" not in line
    assert json.loads(line) == {
        "time": "1970-01-01T00:00:00.250Z",
        "level": "WARNING",
        "logger": "tacit.driver",
        "message": 'a "quoted"\nmessage',
        "edge": "edge-0",
        "seq": 7,
    }


def test_a_traceback_stays_in_its_line() -> None:
    log_record = record("broken")
    try:
        raise ValueError("why")
    except ValueError:
        log_record.exc_info = sys.exc_info()
    assert "ValueError: why" in json.loads(JsonFormatter().format(log_record))["exception"]
    assert TextFormatter().format(log_record).splitlines()[-1] == "ValueError: why"


class TestSeldom:
    def test_the_first_of_a_kind_then_one_a_minute_with_the_number(self) -> None:
        now = [0.0]
        seldom = Seldom(lambda: now[0])
        assert [seldom.due("norm") for _ in range(1000)] == [1] + 999 * [0]
        assert seldom.due("kind") == 1
        now[0] = 60.0
        assert [seldom.due("norm") for _ in range(3)] == [1000, 0, 0]
        now[0] = 120.0
        assert seldom.due("norm") == 3
        assert seldom.due("kind") == 1

    def test_kinds_that_others_make_up_are_bounded(self) -> None:
        seldom = Seldom(lambda: 0.0)
        assert sum(bool(seldom.due(str(kind))) for kind in range(10_000)) < 100

    def test_a_logger_can_be_bounded_by_it(self, caplog: pytest.LogCaptureFixture) -> None:
        logger, bound = logging.getLogger("tacit.test"), SeldomFilter()
        logger.addFilter(bound)
        for number in range(50):
            logger.warning("nonsense %d", number)
        logger.removeFilter(bound)
        assert [record.getMessage() for record in caplog.records] == ["nonsense 0"]
