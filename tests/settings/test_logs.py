"""Log records carry edge, seq and version where a machine finds them."""

from __future__ import annotations

import json
import logging
import sys

from tacit_services.logs import JsonFormatter, TextFormatter


def record(message: str, **facts: object) -> logging.LogRecord:
    made = logging.LogRecord("tacit.driver", logging.WARNING, "file.py", 1, message, (), None)
    made.created, made.msecs = 0.25, 250.0
    for name, value in facts.items():
        setattr(made, name, value)
    return made


def test_text_puts_them_behind_the_message() -> None:
    made = record("a message was refused", edge="edge-0", seq=7, version=3, reason="norm")
    line = (
        "1970-01-01T00:00:00.250Z WARNING tacit.driver a message was refused edge=edge-0 "
        "seq=7 version=3 reason=norm"
    )
    assert TextFormatter().format(made) == line
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
    made = record("broken")
    try:
        raise ValueError("why")
    except ValueError:
        made.exc_info = sys.exc_info()
    assert "ValueError: why" in json.loads(JsonFormatter().format(made))["exception"]
    assert TextFormatter().format(made).splitlines()[-1] == "ValueError: why"
