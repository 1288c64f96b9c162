"""The evidence of a federation's run, of which one owner has taken their consent back."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.helpers.federation import Member, endless_run, federation

BY_POLICY = 'accept = "within"\nlifetime_epsilon = 10.0\n'


@pytest.mark.exhaustive
def test_the_bundle_of_a_run_with_a_withdrawal_is_proven_by_its_owners_statements(
    tmp_path: Path,
) -> None:
    with federation(tmp_path, members=3) as (host, sites):
        # Given a run of three members, of which one takes the consent back, and that is stopped,
        for site in sites:
            site.join(host, BY_POLICY)
        run = endless_run(tmp_path, count=3)
        host.tacit("submit", run, "--name", "long", "--federation", host.place)
        withdrawing = sites[0].identity
        host.wait_run("long", lambda stands: stands["applied"] > 10)
        host.wait(lambda: withdrawing in {edge for edge, _ in host.accepted("long")})
        sites[0].tacit("offers", "withdraw", "long", "--state", sites[0].state)
        after = host.runs()["long"]["applied"]
        host.wait_run("long", lambda stands: stands["applied"] > after + 5)
        host.tacit("stop", "long", "--federation", host.place)
        host.wait_run("long", lambda stands: stands["state"] == "stopped")
        # when every member has stated what it released, and the host makes the bundle,
        statements = host.place / "runs" / "long" / "statements"
        host.wait(lambda: len(list(statements.glob("edge-*.json"))) == 3)
        out = tmp_path / "evidence"
        words = ("--run", "long", "--federation", host.place, "--evidence", "--with-journal")
        host.tacit("export", out, *words)
        # then owners' own statements prove it, and the withdrawal stands in it.
        anchors = [word for site in sites for word in ("--anchor", _statement(site, "long"))]
        told = json.loads(host.tacit("verify", f"{out}.zip", *anchors, "--json"))
        proven = [finding["code"] for finding in told["findings"] if finding["kind"] == "proven"]
        assert {"anchor": 3, "cover": 3, "consent": 3, "fold": 1}.items() <= {
            code: proven.count(code) for code in proven
        }.items()
        words_of = [each["words"] for each in told["findings"] if each["code"] == "withdrawal"]
        assert any("was taken back on" in words for words in words_of)
        assert any("none came after" in words for words in words_of)
        assert all(words.startswith(withdrawing) for words in words_of)
        # A member that leaves the federation has said it all before.
        (statements / f"{withdrawing}.json").unlink()
        host.tacit("export", tmp_path / "less", *words)
        refused = host.tried("verify", tmp_path / "less", *anchors)
        assert refused.returncode == 5
        assert "covered by no statement" in refused.stdout


def _statement(site: Member, run: str) -> Path:
    """Return the file of what a member has stated on a run, on its own disk."""
    (path,) = (site.state / "runs" / run / "identities").glob(f"*/statements/{run}.json")
    return path
