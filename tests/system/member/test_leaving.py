"""A member leaves while it works: nothing leaves any more, and its ledger remembers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tacit_services.federation import access
from tacit_services.versions import own_version

from tacit import rounding
from tests.helpers.federation import Host, endless_run, federation, run_file
from tests.system.federation.test_federation import BY_POLICY


def members(host: Host) -> dict[str, dict[str, Any]]:
    """Return the members that the host lists, by name."""
    with access.of_folder(host.place).client() as client:
        return {member["name"]: member for member in client.get("/v1/members")["members"]}


@pytest.mark.exhaustive
def test_a_member_that_leaves_while_it_works_says_no_more_and_may_come_back(tmp_path: Path) -> None:
    with federation(tmp_path, members=2) as (host, sites):
        for site in sites:
            site.join(host, BY_POLICY)
        run = endless_run(tmp_path)
        host.tacit("submit", run, "--name", "long", "--federation", host.place)
        goes = sites[0]
        host.wait(lambda: "Site 0" in members(host))
        listed = members(host)["Site 0"]
        assert listed["version"] == own_version()
        assert listed["certificate_until"] == goes.certificate_ends()
        assert "certificate until" in host.tacit("members", "--federation", host.place)
        host.wait_run("long", lambda stands: stands["applied"] > 10)
        identity = goes.identity
        host.wait(lambda: identity in {edge for edge, _ in host.accepted("long")})
        # When
        told = goes.tacit("leave", "--state", goes.state)
        # Then: it has ended, the host says so, and its ledger remembers
        assert goes.joined is not None
        assert goes.joined.wait(30) == 0
        assert f"Site 0 ({identity}) has left" in told
        assert "the host was not told" not in told
        assert "long: ε " in told
        assert "over its life: ε " in told
        spent = goes.charges()
        assert members(host)["Site 0"]["left"] is not None
        assert "left 20" in host.tacit("members", "--federation", host.place)
        stands = host.runs()["long"]
        assert {"member": "Site 0", "reason": "withdrawn"} in stands["refused"]
        before = stands["applied"]
        host.wait_run("long", lambda stands: stands["applied"] > before + 20)
        assert goes.charges() == spent
        host.tacit("stop", "long", "--federation", host.place)
        host.wait_run("long", lambda stands: stands["state"] == "stopped")
        pushes = host.accepted("long")
        assert len([edge for edge, _ in pushes if edge == identity]) <= spent
        # When: it comes back
        listed = json.loads(goes.tacit("ledger", "list", "--json"))
        assert [(row["releases"], row["runs"]) for row in listed] == [(spent, 1)]
        number = json.loads(sites[1].tacit("ledger", "verify", "--state", sites[1].state, "--json"))
        assert number[0]["releases"] == sites[1].charges()
        goes.join(host, BY_POLICY)
        host.wait(lambda: members(host)["Site 0"]["left"] is None)
        assert goes.identity == identity


@pytest.mark.exhaustive
def test_the_list_of_offers_says_how_a_run_ended_and_what_it_has_cost(tmp_path: Path) -> None:
    with federation(tmp_path, members=1) as (host, (site,)):
        site.join(host, BY_POLICY)
        run = run_file(tmp_path, count=1)
        host.tacit("submit", run, "--name", "short", "--federation", host.place)
        host.wait_run("short", lambda stands: stands["state"] == "ended")
        host.wait(lambda: "run short is over: ended; it has cost" in site.text("join.log"))
        assert "run short: this member works in it from now on" in site.text("join.log")
        assert "this process is edge-0" in site.text("join.log")
        listed = site.tacit("offers", "--state", site.state)
        assert "ended, ε " in listed
        assert listed.strip().endswith(" of 2")
        (row,) = json.loads(site.tacit("offers", "list", "--state", site.state, "--json"))
        assert row["spent"]["releases"] == site.charges()
        assert row["began"] <= row["ended"]
        assert not (site.state / "runs" / "short" / "files").exists()
        shown = site.tacit("ledger", "show", "--state", site.state)
        assert f"short: ε {rounding.epsilon(row['spent']['epsilon'])}, " in shown
