"""A clock that is set, forwards or back, changes no decision: none reads it."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from tests.conftest import ROOT

WALL = {
    "time",
    "time_ns",
    "localtime",
    "gmtime",
    "ctime",
    "strftime",
}  # of `time`; monotonic and perf_counter are not
ELSEWHERE = (
    "services/tacit_services/conformance/elsewhere.py"  # it puts other clocks in their place
)
ALLOWED = {
    (ELSEWHERE, "import datetime"),
    *((ELSEWHERE, f"time.{name}") for name in WALL),
    ("services/tacit_services/logs.py", "time.gmtime"),  # when a log line was written
    # when an event was seen
    ("services/tacit_services/aggregator/reporting/server_time.py", "time.time"),
    ("services/tacit_services/aggregator/reporting/server_time.py", "time.gmtime"),
    ("services/tacit_services/aggregator/reporting/server_time.py", "time.strftime"),
    # when a certificate ends, for a warning: a date of the world
    ("services/tacit_services/transport/tls.py", "time.time"),
    # when an owner answered, for people to read
    ("services/tacit_services/member/consent.py", "from datetime"),
    # the days of a statement, for people to read
    ("services/tacit_services/statements/statement.py", "from datetime"),
    ("services/tacit_services/statements/stating.py", "from datetime"),
    ("services/tacit_services/project/ask_file.py", "import datetime"),  # of dates in a run file
    ("src/tacit/datasets/own/cells.py", "import datetime"),  # of cells that are times
    ("src/tacit/datasets/own/days.py", "import datetime"),
    ("src/tacit/datasets/own/excel_sheet.py", "import datetime"),  # of cells that are days
    (
        "src/tacit/datasets/own/unit_ids.py",
        "import datetime",
    ),  # its type alone: a unit may be a day
    # since when somebody is a member or may ask, and until when: dates of the world
    ("services/tacit_services/federation/members.py", "time.time"),
    ("services/tacit_services/federation/people.py", "time.time"),
    ("services/tacit_services/federation/member_control.py", "time.time"),
    ("services/tacit_services/federation/member_desk.py", "time.time"),  # a certificate's end
    ("services/tacit_services/federation/host.py", "time.time"),
    ("services/tacit_services/cli/member_commands.py", "from datetime"),
    ("services/tacit_services/display/text_tables.py", "time.strftime"),
    ("services/tacit_services/display/text_tables.py", "time.localtime"),
    # when somebody did something, for people to read
    ("services/tacit_services/federation/audit_log.py", "time.time"),
    ("services/tacit_services/federation/run_desk.py", "time.time"),
    # since when an upload is there that no run names
    ("services/tacit_services/federation/upload_book.py", "time.time"),
    ("services/tacit_services/federation/file_pool.py", "time.time"),
    ("services/tacit_services/federation/submissions.py", "time.time"),
    # whether this machine's clock is far from the host's, by which certificates are valid
    ("services/tacit_services/transport/pinned_authority.py", "time.time"),
    # the hours of an owner's policy, by the clock on the wall
    ("services/tacit_services/member/working_hours.py", "from datetime"),
    # when a certificate is renewed, and when it has ended: dates of the world
    ("services/tacit_services/member/own_certificate.py", "time.time"),
    ("services/tacit_services/member/own_certificate.py", "from datetime"),
    # whether clocks agree, and when certificates end
    ("services/tacit_services/doctor/member_doctor.py", "time.time"),
    ("services/tacit_services/doctor/host_doctor.py", "time.time"),
    # when something left, for its owner to read
    ("services/tacit_services/worker/departures.py", "time.time"),
    # when an offer came, for its owner to read
    ("services/tacit_services/member/look_at_offer.py", "time.time"),
    ("services/tacit_services/member/offer_now.py", "time.localtime"),
    ("services/tacit_services/member/offer_now.py", "time.strftime"),
    # when a run began and ended at a member, for its owner to read
    ("services/tacit_services/member/run_diary.py", "time.time"),
    (
        "services/tacit_services/peer/main.py",
        "time.time_ns",
    ),  # which of two states of a peer, one of them lost, is the newer
}


def readings(path: Path) -> set[tuple[str, str]]:
    """Return every mention of a clock that can be set.

    That is: `time.time`, `from time import time`, anything of `datetime`.
    """
    uses = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            if node.value.id == "time" and node.attr in WALL:
                uses.add((str(path.relative_to(ROOT)), f"time.{node.attr}"))
        elif isinstance(node, ast.ImportFrom) and node.module in ("time", "datetime"):
            uses.add((str(path.relative_to(ROOT)), f"from {node.module}"))
        elif isinstance(node, ast.Import) and any(name.name == "datetime" for name in node.names):
            uses.add((str(path.relative_to(ROOT)), "import datetime"))
    return uses


def test_nothing_but_the_log_and_a_new_peer_reads_a_clock_that_can_be_set() -> None:
    parts = ("src", "services", "lab/src/tacit_lab/papers")
    sources = [path for part in parts for path in (ROOT / part).rglob("*.py")]
    sources = [
        path for path in sources if path.parent.name != "enrollment"
    ]  # a certificate is valid from one date to another
    assert len(sources) > 60
    assert set[tuple[str, str]]().union(*map(readings, sources)) == ALLOWED


@pytest.mark.parametrize(
    "line", ["import time; time.time()", "from time import time", "import datetime"]
)
def test_the_search_finds_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, line: str) -> None:
    monkeypatch.setattr("tests.unit.source.test_clocks.ROOT", tmp_path)
    (tmp_path / "x.py").write_text(line)
    assert readings(tmp_path / "x.py")
