"""A program that reads a table ends with its own exit code, also in the middle of the table.

Arrow reads ahead in a thread. Where Python decoded there, the program was aborted at its end, or
waited for ever: with text of Windows or UTF-16, at a wrong row.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tacit.datasets.own.table_file import batches
from tacit.datasets.own.table_form import TableForm
from tests.helpers.nightly import nightly

_READ = """
import sys
from pathlib import Path
from tacit.datasets.own.table_file import batches
from tacit.datasets.own.table_form import TableForm
from tacit.errors import DataError

reading = batches(Path(sys.argv[1]), ["age", "note"], TableForm(encoding=sys.argv[2]))
if sys.argv[3] == "half":
    first = next(reading)
    sys.exit(3)
try:
    rows = sum(batch.num_rows for batch in reading)
except DataError as error:
    held = error
    sys.exit(3)
"""
_LINE = "30,Größe\n"


def write(path: Path, encoding: str, lines: int, *, wrong: bool) -> Path:
    with path.open("w", encoding=encoding, newline="") as file:
        file.write("age,note\n" + _LINE * 100)
        if wrong:
            file.write("1,2,3,4\n")
        for _ in range(lines // 1000):
            file.write(_LINE * 1000)
    return path


def exit_code(path: Path, encoding: str, end: str) -> int:
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-c", _READ, str(path), encoding, end]
    return subprocess.run(command, env=environment, timeout=120, check=False).returncode


@pytest.mark.parametrize(
    ("encoding", "end"),
    [("cp1252", "half"), ("utf-16", "wrong"), *nightly(("cp1252", "wrong"), ("utf-16", "half"))],
)
def test_the_exit_code_holds_where_reading_ends_early(
    tmp_path: Path, encoding: str, end: str
) -> None:
    path = write(tmp_path / "t.csv", encoding, 3_000_000, wrong=end == "wrong")
    assert exit_code(path, encoding, end) == 3


@pytest.mark.exhaustive
@pytest.mark.parametrize("lines", [0, 3_000_000])
def test_the_exit_code_holds_in_fifty_runs(tmp_path: Path, lines: int) -> None:
    path = write(tmp_path / "t.csv", "cp1252", lines, wrong=True)
    assert [exit_code(path, "cp1252", "wrong") for _ in range(50)] == [3] * 50


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "cp1252", "utf-16-le", "ascii"])
@pytest.mark.parametrize("header", [True, False])
def test_every_encoding_gives_the_same_rows(tmp_path: Path, encoding: str, header: bool) -> None:
    note = "note" if encoding == "ascii" else "Größe"
    path = tmp_path / "t.csv"
    path.write_text(f"{'age,note' if header else '29,x'}\n30,{note}\n", encoding=encoding)
    names = ["age", "note"] if header else ["1", "2"]
    stated = None if encoding.endswith(("sig", "16")) else encoding
    form = TableForm(encoding=stated, header=header)
    rows = [row for batch in batches(path, names, form) for row in batch.to_pylist()]
    expected = [{names[0]: "30", names[1]: note}]
    if not header:
        expected = [{"1": "29", "2": "x"}, *expected]
    assert rows == expected
