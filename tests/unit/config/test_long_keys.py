"""A key of many parts is refused before the reader of TOML takes memory for it."""

from __future__ import annotations

import time
import tomllib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tacit import config
from tacit.config.long_keys import MOST_PARTS, refuse_long_keys
from tacit.errors import ConfigError

LONG = ".".join("a" * (MOST_PARTS + 1))
LONGEST = ".".join("a" * MOST_PARTS)


@pytest.mark.parametrize(
    "text",
    [
        f"{LONG} = 1",
        f"[{LONG}]",
        f"[[{LONG}]]",
        f"x = {{ {LONG} = 1 }}",
        " . ".join(['"a.\\"b"', "'c'", "d-e"] * 6) + " = 1",
        f"# a comment\nx = 1 # '''\n{LONG} = 1",
        f'x = """\n"quoted"\\""" is not its end"""\n{LONG} = 1',
        f"x = '''\n'quoted' '''''\n{LONG} = 1",
        f'x = "\\\\"\n{LONG} = 1',
    ],
)
def test_a_key_of_many_parts_is_refused_by_its_line(text: str) -> None:
    with pytest.raises(
        ConfigError, match=r"^run\.toml: line \d: a key of more than 16 parts"
    ) as no:
        config.parse(text, "run.toml")
    assert f"line {text.count(chr(10)) + 1}:" in str(no.value)


@pytest.mark.parametrize(
    "text",
    [
        f"{LONGEST} = 1",
        f"# {LONG}",
        f'x = "{LONG}"',
        f"x = '{LONG}'",
        f'x = """\n"{LONG}"\n{LONG}"""',
        f"x = '''\n'{LONG}'\n{LONG}'''",
        "x = [" + "1.5, " * 100 + "]",
        'x = "\\"' + LONG + '"',
    ],
)
def test_what_is_no_key_has_dots_as_it_likes(text: str) -> None:
    tomllib.loads(text)
    refuse_long_keys(text, "run.toml")


PIECES = [
    '"',
    "'",
    '"""',
    "'''",
    "\\",
    "#",
    "\n",
    " ",
    "=",
    "=1\n",
    "a",
    "a.a.a.a.a.",
    "\"a\" . 'a'.",
]


@given(st.lists(st.sampled_from(PIECES), max_size=12))
def test_every_text_that_is_toml_is_read_as_toml_reads_it(pieces: list[str]) -> None:
    text = "".join(pieces)
    try:
        depth = _depth(tomllib.loads(text))
    except ValueError:
        return
    try:
        refuse_long_keys(text, "run.toml")
        refused = False
    except ConfigError:
        refused = True
    assert refused == (depth > MOST_PARTS)


def _depth(content: object) -> int:
    if isinstance(content, dict):
        return 1 + max(map(_depth, content.values()), default=0)
    return 0


@pytest.mark.parametrize(
    "piece", ['"""\\', '"\\', "'''", '"""', "a.", '"a".', ".", "a" * 999 + ".", "#", "'a'.\n", '"']
)
def test_the_time_grows_with_the_text_and_no_faster(piece: str) -> None:
    def seconds(length: int) -> float:
        text = "\n" + piece * (length // len(piece))
        best = float("inf")
        for _ in range(3):
            began = time.process_time()
            try:
                refuse_long_keys(text, "x")
            except ConfigError:
                pass
            best = min(best, time.process_time() - began)
        return best

    short, long = seconds(1 << 17), seconds(1 << 20)
    assert long < 32 * short + 0.05  # 8 times as long; 64, where it grew by the square
