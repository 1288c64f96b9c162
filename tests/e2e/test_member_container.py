"""A member as one container, by the command of docs/containers.md: it joins, works, stops, goes on."""

from __future__ import annotations

import json
import os
import re
import shlex
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.e2e.stack import ROOT, Stack, docker, needs_engine
from tests.helpers.federation import run_file, write_rows
from tests.helpers.servers import free_port, wait_for

pytestmark = pytest.mark.e2e
START = 240.0  # seconds for a process to start, and be heard of
FOLDER = "/var/lib/tacit/host/clinic"


@dataclass
class Clinic:
    """A host and a member's machine; all that is theirs is called `name`."""

    name: str
    rows: Path

    @property
    def host(self) -> str:
        return f"{self.name}-host"

    def tacit(self, *words: str) -> str:
        """Run a command at the host."""
        return docker("exec", self.host, "tacit", *words, "--federation", FOLDER)

    def serve(self) -> None:
        docker("network", "create", "--internal", self.name)
        docker(
            "run", "--detach", "--name", self.host, "--network", self.name, "--init",
            "--volume", f"{self.rows}:/rows:ro", "tacit-aggregator", "serve", FOLDER,
            "--host", self.host,
        )  # fmt: skip
        wait_for(lambda: "tacit join" in docker("logs", self.host), START)

    def join(self, *more: str) -> None:
        """Be a member, by the page's command with this machine's names in it."""
        url, _, token, _, ca = docker("logs", self.host).split("tacit join ")[1].split()[:5]
        page = (ROOT / "docs" / "containers.md").read_text(encoding="utf-8")
        [command] = re.findall(r"^    (docker run (?:.*\\\n)*.*)$", page, re.MULTILINE)
        words = shlex.split(command.replace("\\\n", " "))
        ours = {
            "member": f"{self.name}-member",
            "/srv/tacit:/var/lib/tacit/identities": f"{self.name}:/var/lib/tacit/identities",
            "$PWD/rows:/rows:ro": f"{self.rows}:/rows:ro",
            "https://10.1.2.3:8443": url,
            "4bX…": token,
            "sha256:9f2c…": ca,
        }
        assert ours.keys() <= set(words)
        line = [ours.get(word, word) for word in words[2:]]
        docker("run", "--network", self.name, *line, *more)

    @property
    def member(self) -> str:
        return f"{self.name}-member"

    def waits(self) -> bool:
        """Return whether the member waits for offers, as it says for its health check."""
        try:
            return "waits for offers" in docker("exec", self.member, "cat", "/tmp/health.json")
        except AssertionError:
            return False

    def state_of(self, run: str) -> str:
        """Return how a run stands, by the host's record."""
        record = docker("exec", self.host, "cat", f"{FOLDER}/runs/{run}/record.json")
        return str(json.loads(record)["state"])


@pytest.fixture
def clinic(tmp_path: Path) -> Iterator[Clinic]:
    """Yield a clinic of the built images; all that is its own is taken down."""
    needs_engine()
    Stack("tacit-images", free_port(), ["compose.yaml"], tmp_path).compose("build", seconds=900.0)
    rows = tmp_path / "rows"
    rows.mkdir()
    write_rows(rows / "patients.csv", 1)
    run_file(rows, count=1)
    (rows / "policy.toml").write_text('accept = "within"\nlifetime_epsilon = 8.0\n')
    for path in (tmp_path, rows):
        path.chmod(0o755)
    clinic = Clinic(f"tacit-clinic-{os.getpid()}", rows)
    docker("volume", "create", clinic.name)
    yield clinic
    removals: list[Callable[[], str]] = [
        lambda: docker("rm", "--force", clinic.member, clinic.host),
        lambda: docker("volume", "rm", clinic.name),
        lambda: docker("network", "rm", clinic.name),
    ]
    for remove in removals:
        remove()


def test_a_member_in_a_container_works_stops_in_order_and_goes_on(clinic: Clinic) -> None:
    clinic.serve()
    clinic.join("--policy", "/rows/policy.toml", "--yes")
    wait_for(clinic.waits, START)
    assert docker("exec", clinic.member, "tacit", "health").startswith("edge-0: waits")

    clinic.tacit("submit", "/rows/run.toml", "--name", "first")
    wait_for(lambda: clinic.state_of("first") == "ended", START)
    docker("stop", "--time", "30", clinic.member)
    assert docker("inspect", "--format", "{{.State.ExitCode}}", clinic.member).strip() == "0"

    docker("start", clinic.member)
    clinic.tacit("submit", "/rows/run.toml", "--name", "second")
    wait_for(lambda: clinic.state_of("second") == "ended", START)
    said = docker("logs", clinic.member)
    assert "St. Mary's has joined" in said
    assert "St. Mary's goes on" in said
    look = "find /var/lib/tacit/identities/tacit/ledgers -name 'edge-*.db'"
    (ledger,) = docker("exec", clinic.member, "sh", "-c", look).split()
    assert ledger.endswith("edge-0.db")
    listed = json.loads(docker("exec", clinic.member, "tacit", "offers", "list", "--json"))
    assert {each["run"] for each in listed} == {"first", "second"}
