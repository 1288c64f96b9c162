"""What a host keeps of runs, files and deeds survives a crash, and nothing else is believed."""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tacit_services.federation.audit_log import AuditLog
from tacit_services.federation.file_pool import BadUpload, FilePool
from tacit_services.federation.run_records import RECORD, MemberAnswer, RunRecord, RunRecords

from tacit.errors import ConfigError

PRINT = "a" * 64
RECORDED = RunRecord("retina", PRINT, "ada", 1.0, 3, 2, 60.0, 100)


def test_a_record_comes_back_as_it_was(tmp_path: Path) -> None:
    records = RunRecords(tmp_path)
    records.add(RECORDED)
    records.answer("retina", "edge-10", MemberAnswer("accepted", PRINT, "", 2.0))
    records.answer("retina", "edge-9", MemberAnswer("refused", PRINT, "policy", 3.0))
    records.change("retina", state="training", why="because")
    again = RunRecords(tmp_path).get("retina")
    assert again == records.get("retina")
    assert again is not None
    assert (again.consenting, again.refusing) == (["edge-10"], [("edge-9", "policy")])


def test_a_name_is_taken_once(tmp_path: Path) -> None:
    records = RunRecords(tmp_path)
    records.add(RECORDED)
    with pytest.raises(ConfigError, match="there is one of this name"):
        records.add(RECORDED)


@pytest.mark.parametrize("content", ["", "{}", '{"format": 2}', '{"format": 1, "name": "x"}', "[]"])
def test_a_damaged_record_is_refused_in_one_line(tmp_path: Path, content: str) -> None:
    (tmp_path / "retina").mkdir()
    (tmp_path / "retina" / RECORD).write_text(content)
    with pytest.raises(ConfigError, match="is damaged") as error:
        RunRecords(tmp_path)
    assert "\n" not in str(error.value)


def test_a_line_that_a_crash_has_cut_is_not_continued(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    log = AuditLog(path, clock=lambda: 5.0)
    log.add("ada", "submitted", run="retina")
    with path.open("a") as file:
        file.write('{"at": 6.0, "who": "bo')
    log.add("eve", "stopped", run="retina")
    first, cut, last = path.read_text().splitlines()
    assert json.loads(first) == {"at": 5.0, "who": "ada", "did": "submitted", "run": "retina"}
    assert json.loads(last)["who"] == "eve"
    assert cut.startswith('{"at": 6.0')


def test_the_newest_lines_come_first_and_no_more_than_are_asked_for(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    log = AuditLog(path, clock=lambda: 5.0)
    assert log.newest(5) == []
    with path.open("w") as file:
        file.write(f"{json.dumps({'who': 'old'})}\n" * 100_000)  # more than is read
        file.write('[1]\n\n"bo"\n{"at": 6.0, "who": "bo\n')
    for number in range(3):
        log.add("ada", "submitted", number=number)
    assert [entry["number"] for entry in log.newest(2)] == [2, 1]
    assert [entry["who"] for entry in log.newest(5)] == ["ada"] * 3 + ["old"] * 2
    assert 10_000 < len(log.newest(200_000)) < 100_000


async def pieces(*parts: bytes) -> AsyncIterator[bytes]:
    for part in parts:
        yield part


def test_a_file_is_there_whole_with_the_content_of_its_name_or_not(tmp_path: Path) -> None:
    pool = FilePool(tmp_path)
    digest = hashlib.sha256(b"weights").hexdigest()
    with pytest.raises(BadUpload, match="has the SHA-256"):
        asyncio.run(pool.take(digest, pieces(b"wei", b"ghts!")))
    assert pool.path(digest) is None
    assert list(tmp_path.iterdir()) == []
    asyncio.run(pool.take(digest, pieces(b"wei", b"ghts")))
    path = pool.path(digest)
    assert path is not None
    assert path.read_bytes() == b"weights"
    assert pool.missing([digest, PRINT]) == [PRINT]


@pytest.mark.parametrize("name", ["../../etc/passwd", "", "A" * 64, "a" * 63, "a/" + "b" * 62])
def test_a_name_that_is_no_digest_names_no_file(tmp_path: Path, name: str) -> None:
    pool = FilePool(tmp_path)
    assert pool.path(name) is None
    with pytest.raises(BadUpload):
        asyncio.run(pool.take(name, pieces(b"x")))
