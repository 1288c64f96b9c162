"""`tacit report`: a run's model beside one of an owner's rows alone, on the owner's own screen."""

from __future__ import annotations

import json
from pathlib import Path

from tacit_services.member.member_state import MemberState
from tacit_services.member.run_here import definition_of

from tacit.datasets.held_out import UnitSplit
from tacit.privacy.ledger import read_splits
from tests.helpers.federation import federation, run_file, run_text

BY_POLICY = 'accept = "within"\nlifetime_epsilon = 8.0'


def test_an_owner_sees_both_models_on_own_rows_and_a_stranger_to_the_run_none(
    tmp_path: Path,
) -> None:
    with federation(tmp_path, members=3) as (host, sites):
        for site in sites[:2]:
            site.join(host, BY_POLICY)
        sites[2].join(host, BY_POLICY + "\nmax_epsilon = 0.5")
        file = run_file(tmp_path, updates=60, epsilon=4.0)
        host.tacit("submit", file, "--name", "both", "--federation", host.place)
        first = sites[0].state
        host.wait_run("both", lambda stands: stands["state"] == "ended")
        shown = json.loads(sites[0].tacit("report", "both", "--state", first, "--json"))
        assert (shown["judged"], shown["learnt"]) == (80, 320)
        accuracy = shown["metrics"]["accuracy"]
        out = tmp_path / "results"
        host.tacit("results", "both", "--out", out, "--federation", host.place)
        fetched = sites[0].state / "runs" / "both" / "model.safetensors"
        assert fetched.read_bytes() == (out / "model.safetensors").read_bytes()
        assert 0 <= accuracy["federation"] <= 1
        assert accuracy["alone"] > accuracy["constant"] + 0.2
        words = sites[0].tacit("report", "both", "--state", first)
        assert "your rows alone" in words
        assert "nothing of them leaves" in words
        # Who took no part has no right to the model, and who asks for no run learns so.
        refused = sites[2].tried("report", "both", "--state", sites[2].state)
        assert (refused.returncode, "is for members that take part" in refused.stderr) == (2, True)
        none = sites[0].tried("report", "none", "--state", first)
        assert "run none: no such offer here" in none.stderr
        host.kill()  # the model was fetched before, so nobody has to be asked
        again = json.loads(sites[0].tacit("report", "both", "--state", first, "--json"))
        assert again == shown


def test_a_report_on_a_run_that_judges_is_of_the_rows_that_its_worker_has_held_out(
    tmp_path: Path,
) -> None:
    with federation(tmp_path, members=1) as (host, (site,)):
        site.join(host, 'accept = "within"\nlifetime_epsilon = 30.0')
        file = host.folder / "run.toml"
        looks = '[evaluation]\nat = "edges"\nlooks = 2\nepsilon = 6.0\n'
        file.write_text(run_text(count=1, updates=20) + looks)
        host.tacit("submit", file, "--name", "judged", "--federation", host.place)
        host.wait_run("judged", lambda stands: stands["state"] == "ended")
        shown = json.loads(site.tacit("report", "judged", "--state", site.state, "--json"))
        (ledger,) = (site.folder / "home" / "tacit" / "ledgers").glob("*/*/edge-*.db")
        ((key, share),) = read_splits(ledger).values()
        source = definition_of(MemberState(site.state), "judged").define().source
        part = source.edge(0, None, tmp_path, UnitSplit(key, share))
        assert part.held_out is not None
        sides = (part.held_out.for_edge(1).records, part.rows.for_edge(1).records)
        assert (shown["held_out"], shown["judged"], shown["learnt"]) == (True, *sides)
