"""Judging in a federation: members' shared ledgers have two sides, and a policy bounds looks."""

from __future__ import annotations

import json
from pathlib import Path

from tacit.privacy.ledger import read_chains
from tests.helpers.federation import federation, run_text

BY_POLICY = 'accept = "within"\nlifetime_epsilon = 30.0'


def test_members_judge_on_rows_that_they_hold_out(tmp_path: Path) -> None:
    with federation(tmp_path, members=3) as (host, sites):
        for site in sites[:2]:
            site.join(host, BY_POLICY)
        sites[2].join(host, BY_POLICY + "\nmax_epsilon = 5.0")
        file = host.folder / "run.toml"
        looks = '[evaluation]\nat = "edges"\nlooks = 2\nepsilon = 6.0\n'
        file.write_text(run_text(updates=20) + looks)
        host.tacit("submit", file, "--name", "judged", "--federation", host.place)
        stands = host.wait_run("judged", lambda stands: stands["state"] == "ended")
        assert stands["applied"] == 20
        assert stands["refused"] == [{"member": "Site 2", "reason": "policy"}]
        out = tmp_path / "results"
        host.tacit("results", "judged", "--out", out, "--federation", host.place)
        judged = json.loads((out / "looks.json").read_text())
        assert [(look["version"], look["edges"]) for look in judged] == [(10, 2), (20, 2)]
        for site in sites[:2]:
            counts = {"training": 0, "held_out": 0, "both": 0}
            for path in (site.folder / "home" / "tacit" / "ledgers").glob("*/*/edge-*.db"):
                for chain in read_chains(path):
                    for row in chain.history():
                        counts[row.side] += row.count
            assert counts["held_out"] == 2
            assert counts["training"] > 0
            assert counts["both"] == 0
            screen = site.tacit("offers", "show", "judged", "--state", site.state)
            assert "2, each with noisy counts of how the model does on about 20 %" in screen
