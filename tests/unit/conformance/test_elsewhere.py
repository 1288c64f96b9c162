"""A process that seems to be on another machine, in another year."""

from __future__ import annotations

import json
from typing import Any

import pytest
from tacit_services.conformance import elsewhere

ASKED = {
    "today": "datetime.date.today().isoformat()",
    "now": "datetime.datetime.now().isoformat()[:10]",
    "in utc": "datetime.datetime.now(datetime.UTC).isoformat()[:10]",
    "seconds": "time.time() // 86400",
    "nanoseconds": "time.time_ns() // 86400_000_000_000",
    "local": "list(time.localtime())[:3]",
    "universal": "list(time.gmtime())[:3]",
    "text": "time.strftime('%Y')",
    "ctime": "time.ctime()[-4:]",
    "zone": "time.timezone",
    "host": "socket.gethostname()",
    "node": "platform.node()",
    "uname": "os.uname().nodename",
    "hash": "hash('text')",
}
GIVEN = (
    "[time.gmtime(86400).tm_year, time.strftime('%Y', time.gmtime(0)), "
    "datetime.date(2020, 2, 3).isoformat()]"
)
IMPORTS = "import datetime, json, os, platform, socket, sys, time"


@pytest.fixture(scope="module")
def answers(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What the standard library answers elsewhere."""
    script = tmp_path_factory.mktemp("elsewhere") / "asks.py"
    asked = ", ".join(
        f"{name!r}: {question}" for name, question in {**ASKED, "given": GIVEN}.items()
    )
    script.write_text(f"{IMPORTS}\nprint(json.dumps({{{asked}}}))")
    child = elsewhere.ran("cProfile", "-o", "/dev/null", str(script))
    assert child.returncode == 0, child.stderr
    found: dict[str, Any] = json.loads(child.stdout)
    return found


@pytest.mark.parametrize("name", ASKED)
def test_an_answer_that_no_rule_may_use_is_another_one_elsewhere(
    name: str, answers: dict[str, Any]
) -> None:
    names: dict[str, Any] = {}
    exec(f"{IMPORTS}\nhere = {ASKED[name]}", names)
    assert answers[name] != names["here"]


def test_the_same_of_a_given_moment_is_the_same_elsewhere(answers: dict[str, Any]) -> None:
    assert answers["given"] == [1970, "1970", "2020-02-03"]
