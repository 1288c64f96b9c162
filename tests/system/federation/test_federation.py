"""A federation from nothing to results: a host, members, runs, each a process of its own."""

from __future__ import annotations

from pathlib import Path

from tests.helpers.federation import federation, run_file


def test_two_members_join_consent_by_policy_and_train(tmp_path: Path) -> None:
    with federation(tmp_path, members=2) as (host, sites):
        for site in sites:
            site.join(host)
        run = run_file(tmp_path)
        host.tacit("submit", run, "--name", "first", "--federation", host.place)
        ended = host.wait_run("first", lambda stands: stands["state"] == "ended")
        assert ended["applied"] == ended["updates"] == 40
        assert sorted(ended["members"]) == ["Site 0", "Site 1"]
        assert ended["refused"] == []
        files = host.tacit("results", "first", "--out", tmp_path / "out", "--federation", host.place)
        assert "model.safetensors" in files
