"""Words of others on a terminal, in a log, in a CSV and in JSON."""

from __future__ import annotations

import csv
import io
import json
import logging
import re
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.text import Text
from tacit_services import logs
from tacit_services.display import text_tables
from tacit_services.settings import EdgeSettings, read_settings

from tacit.config import run_file
from tacit.errors import ConfigError
from tacit.privacy import policy
from tacit.shown import as_json, cell, lines, printable, quoted, seen
from tacit.user_code import readable


@given(st.text(), st.none() | st.integers(0, 50))
def test_what_is_printed_prints_and_has_the_length_that_it_may(
    text: str, limit: int | None
) -> None:
    output = printable(text, limit)
    assert output.isprintable()
    assert len(output) == len(text[:limit])
    changed = [
        (character, replacement)
        for character, replacement in zip(text, output, strict=False)
        if character != replacement
    ]
    assert all(replacement == "?" and not seen(character) for character, replacement in changed)


def test_what_code_may_not_hide_with_is_not_shown_either() -> None:
    numbers = (*range(0x3200), *range(0xF900, 0x10000), *range(0xE0000, 0xE0200))
    hides = [chr(number) for number in numbers if not readable_as_code(chr(number))]
    assert len(hides) > 1000
    assert {"\u3164", "\u2800", "\u115f", "\ufe0f", "\u200b", "\u202e", "\x1b"} <= set(hides)
    assert set(printable("".join(hides))) == {"?"}
    output = as_json("".join(hides))
    assert output.isascii()
    assert json.loads(output) == "".join(hides)


def readable_as_code(character: str) -> bool:
    """Check whether user code may have this character.

    Ends of lines and the tab may stand in it, and halves of surrogates are no text.
    """
    if character in "\n\t" or unicodedata.category(character) == "Cs":
        return True
    try:
        readable.check(f"# {character}.".encode())
    except ValueError:
        return False
    return True


@given(st.text())
def test_no_text_is_a_formula_in_a_csv(text: str) -> None:
    file = io.StringIO(newline="")
    csv.writer(file).writerow([cell(text), "next"])
    [[field, after]] = csv.reader(io.StringIO(file.getvalue(), newline=""))
    assert after == "next"
    assert field.isprintable()
    parts = [field] if is_number(field) else re.split("[;|]", field)
    for part in parts:
        assert is_number(field) or part.lstrip()[:1] not in {"=", "+", "-", "@"}


def is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


@pytest.mark.parametrize("number", ["-1", "+2.5", "-3e-7", "-inf", "0", "12"])
def test_a_number_with_a_sign_stays_one(number: str) -> None:
    assert cell(number) == number


@pytest.mark.parametrize(
    "formula", ["=1+1", "+cmd", "-2+3", "@SUM(A1)", "  =1", "\uff1d1", "-1-1", "--1"]
)
def test_a_formula_is_text(formula: str) -> None:
    assert cell(formula) == "'" + formula


@pytest.mark.parametrize(
    ("text", "escaped"),
    [
        ("a;=1+1;b", "a;'=1+1;b"),
        ("a|@SUM(A1)", "a|'@SUM(A1)"),
        ("=1; +2", "'=1;' +2"),
        ("-2|3", "'-2|3"),
        ("a;b|c", "a;b|c"),
    ],
)
def test_a_formula_behind_what_may_part_cells_is_text(text: str, escaped: str) -> None:
    assert cell(text) == escaped


@given(st.dictionaries(st.text(), st.text() | st.integers() | st.lists(st.text())))
def test_json_is_exact_and_prints(value: dict[str, object]) -> None:
    text = as_json(value)
    assert json.loads(text) == value
    assert all(line.isprintable() for line in text.split("\n"))
    assert any(unicodedata.category(character) == "Ll" for character in as_json("ä"))


HOSTILE = "a\x1b[2Jb\nc\u202ed\u2028e\u200bf\r\x9bg"
SAFE = "a?[2Jb?c?d?e?f??g"


@pytest.mark.parametrize("form", ["text", "json"])
def test_a_line_of_a_log_is_one_line_whatever_is_said(form: str) -> None:
    formatter = logs.TextFormatter() if form == "text" else logs.JsonFormatter()
    record = logging.makeLogRecord({"msg": "%s", "args": (HOSTILE,), "edge": HOSTILE})
    line = formatter.format(record)
    assert line.isprintable()
    if form == "text":
        assert line.endswith(f"{SAFE} edge={SAFE}")


def test_a_traceback_in_a_log_moves_no_cursor() -> None:
    try:
        raise ValueError(HOSTILE)
    except ValueError as error:
        kind = type(error), error, error.__traceback__
    logged = logs.TextFormatter().format(logging.makeLogRecord({"msg": "x", "exc_info": kind}))
    assert all(line.isprintable() for line in logged.split("\n"))


def test_tables_and_lines_of_commands_show_names_safely(capsys: pytest.CaptureFixture[str]) -> None:
    console = text_tables.console()
    console.print(text_tables.pairs(console, [("run", HOSTILE)]))
    console.print(f"note: {HOSTILE}")
    console.print(Text("end"))
    output = capsys.readouterr().out
    assert all(line.isprintable() for line in output.split("\n"))
    assert lines("a\nb") == "a\nb"


@pytest.mark.parametrize("wrong", ["x" * 100_000, [0.5] * 50_000, {"a": "b" * 9_000}])
def test_a_wrong_value_is_repeated_with_its_ends_and_its_length(wrong: object) -> None:
    shown = quoted(wrong)
    whole = repr(wrong)
    assert len(shown) < 250
    assert shown.startswith(whole[:50])
    assert f"{whole[-50:]} ({len(whole):,} characters)" in shown
    assert quoted("old") == "'old'"


def test_no_complaint_of_a_run_file_policy_or_setting_is_a_page_long() -> None:
    long = "x" * 50_000
    cases = (
        lambda: run_file.parse(f'[run]\nupdates = "{long}"', "run.toml"),
        lambda: run_file.parse(f'[algorithm]\nname = "{long}"', "run.toml"),
        lambda: policy.parse(f'max_epsilon = "{long}"', "policy.toml"),
        lambda: read_settings(EdgeSettings, threads=long),
    )
    for case in cases:
        with pytest.raises(ConfigError) as refused:
            case()
        assert "50,002 characters" in str(refused.value)
        assert len(str(refused.value)) < 2000
