"""A member whose tacit sees nothing that only POSIX has: it joins, trains, and is killed.

The libraries that it uses see it, and so this is no run on Windows. It takes every way that tacit's
own code takes there: files without modes, locks that no child inherits, processes without a tie.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.helpers.federation import TACIT, Host, Member, run_file
from tests.helpers.processes import environment
from tests.helpers.servers import PATIENCE
from tests.helpers.without_posix import hidden_in
from tests.system.federation.test_federation import BY_POLICY

HIDDEN = """
import os
asker = {"__name__": "tacit.asked"}
for code in ("import fcntl", "from os import fork", "import signal; signal.SIGKILL"):
    try:
        exec(code, asker)
    except (ImportError, AttributeError):
        pass
    else:
        raise SystemExit(f"tacit sees {code}")
import fcntl  # a library sees it
assert os.name == "posix" and os.fork
"""

READS = """
import sys
from pathlib import Path
from tacit import regular_file
from tacit.datasets.own.utf8_copy import utf8_file

path = Path(sys.argv[1])
with utf8_file(path, "latin-1") as copy:
    assert copy.read() == "\u00fc,1\\n".encode()
with regular_file.opened(path) as file:
    assert regular_file.again(file) == str(path)
"""


@pytest.fixture
def variables(tmp_path: Path) -> dict[str, str]:
    return hidden_in(tmp_path / "hidden")


def ran(*command: str, variables: dict[str, str]) -> str:
    """Run a command to its good end, and return what it printed."""
    completed = subprocess.run(
        command,
        env=environment(**variables),
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert completed.returncode == 0, completed.stdout + completed.stderr
    return completed.stdout


def test_what_only_posix_has_is_hidden_from_tacit_alone(variables: dict[str, str]) -> None:
    ran(sys.executable, "-P", "-c", HIDDEN, variables=variables)


def test_a_file_is_opened_anew_by_its_name_where_descriptors_have_none(
    tmp_path: Path, variables: dict[str, str]
) -> None:
    path = tmp_path / "rows.csv"
    path.write_bytes("ü,1\n".encode("latin-1"))
    ran(sys.executable, "-P", "-c", READS, str(path), variables=variables)


@pytest.mark.parametrize("command", [(), ("join",), ("doctor",), ("ledger", "show")], ids=str)
def test_the_help_of_a_members_commands_is_shown(
    command: tuple[str, ...], variables: dict[str, str]
) -> None:
    assert "Usage" in ran(*TACIT, *command, "--help", variables=variables)


@pytest.mark.exhaustive
def test_a_member_trains_is_killed_goes_on_and_leaves(
    tmp_path: Path, variables: dict[str, str]
) -> None:
    host = Host(tmp_path / "host")
    site = Member(tmp_path / "site", 0, "Site 0", variables=variables)
    try:
        host.serve()
        site.join(host, BY_POLICY)
        run = run_file(tmp_path, count=1, updates=20_000, epsilon=4.0)
        host.tacit("submit", run, "--name", "long", "--federation", host.place)
        host.wait_run("long", lambda stands: stands["applied"] > 0)
        # When: its worker has no tie to it that ends it
        site.kill()
        # Then
        worker = site.state / "runs" / "long" / "worker.log"
        host.wait(lambda: "its member has ended" in worker.read_text())
        # When
        site.start_again()
        before = host.runs()["long"]["applied"]
        host.wait_run("long", lambda stands: stands["applied"] > before)
        # Then
        (row,) = json.loads(site.tacit("offers", "list", "--state", site.state, "--json"))
        assert row["answer"] == "accepted"
        assert "long: ε " in site.tacit("ledger", "show", "--state", site.state)
        looked = json.loads(site.tried("doctor", "--state", site.state, "--json").stdout)
        assert {"broker", "ledger", "certificate"} <= {
            look["what"] for look in looked if look["state"] == "ok"
        }
        answer = site.tacit("leave", "--state", site.state)
        assert "the host was not told" not in answer
        assert site.joined is not None
        assert site.joined.wait(PATIENCE) == 0
        pushes = host.accepted("long")
        assert len(set(pushes)) == len(pushes) <= site.charges()
    finally:
        for machine in (site, host):
            machine.stop()
