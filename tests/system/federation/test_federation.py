"""A federation from nothing to results: a host, members, runs, each a process of its own."""

from __future__ import annotations

import json
import os
import re
from collections import Counter
from pathlib import Path

import pytest

from tests.helpers.federation import check_counted_once, endless_run, federation, run_file
from tests.helpers.nightly import nightly

BY_POLICY = 'accept = "within"\nlifetime_epsilon = 8.0'


def test_two_runs_at_once_go_on_whoever_is_killed(tmp_path: Path) -> None:
    with federation(tmp_path, members=2) as (host, sites):
        for site in sites:
            site.join(host, BY_POLICY)
        for name, epsilon in (("first", 2.0), ("second", 3.0)):
            run = run_file(tmp_path, epsilon=epsilon, updates=120)
            host.tacit("submit", run, "--name", name, "--federation", host.place)
        for name in ("first", "second"):
            host.wait_run(name, lambda stands: stands["applied"] > 20)
        host.kill()
        host.serve("--log", "info")
        sites[0].kill()
        sites[0].join(host, BY_POLICY)
        runs = [
            host.wait_run(name, lambda stands: stands["state"] == "ended")
            for name in ("first", "second")
        ]
        distinct: Counter[str] = Counter()
        for stands in runs:
            pushes = host.accepted(stands["name"])
            check_counted_once(pushes, 120)
            assert stands["applied"] == 120
            distinct.update(edge for edge, _ in pushes)
        for site, kills in zip(sites, (1, 0), strict=True):
            spare = site.charges() - distinct[site.identity]
            assert 0 <= spare <= 2 * (kills + 1)  # a release of each run for a kill, and the last
            assert set(re.findall(r"edge-\d+", site.text("join.log"))) == {site.identity}


@pytest.mark.exhaustive
def test_a_federation_moves_to_another_host_in_the_middle_of_a_run(tmp_path: Path) -> None:
    with federation(tmp_path, members=2) as (host, sites):
        for site in sites:
            site.join(host, BY_POLICY)
        run = run_file(tmp_path, updates=300)
        host.tacit("submit", run, "--name", "first", "--federation", host.place)
        host.wait_run("first", lambda stands: stands["applied"] > 20)
        host.move(tmp_path / "elsewhere" / "ward")
        assert host.runs()["first"]["state"] in ("training", "waiting")
        names = [site.identity for site in sites]
        for site in sites:  # with the new line, by the key of before
            site.kill()
            site.join(host, BY_POLICY)
        host.tacit("submit", run, "--name", "second", "--federation", host.place)
        distinct: Counter[str] = Counter()
        for name in ("first", "second"):
            stands = host.wait_run(name, lambda stands: stands["state"] == "ended")
            pushes = host.accepted(name)
            check_counted_once(pushes, 300)
            assert stands["applied"] == 300
            distinct.update(edge for edge, _ in pushes)
        assert [site.identity for site in sites] == names
        for site in sites:
            assert 0 <= site.charges() - distinct[site.identity] <= 4  # one of each run for a kill
            assert "again, as edge-" in site.text("join.log")


@pytest.mark.exhaustive
def test_an_owner_withdraws_and_another_joins_while_a_run_trains(tmp_path: Path) -> None:
    with federation(tmp_path, members=2) as (host, (leaves, comes)):
        leaves.join(host, BY_POLICY)
        run = endless_run(tmp_path, count=1)
        host.tacit("submit", run, "--name", "long", "--federation", host.place)
        host.wait_run("long", lambda stands: stands["applied"] > 10)
        comes.join(host, BY_POLICY)
        host.wait(lambda: comes.identity in {edge for edge, _ in host.accepted("long")})
        said = leaves.tacit("offers", "withdraw", "long", "--state", leaves.state)
        assert "nothing leaves from now on" in said
        spent = leaves.charges()
        stands = host.wait_run(
            "long", lambda stands: {"member": "Site 0", "reason": "withdrawn"} in stands["refused"]
        )
        before = stands["applied"]
        host.wait_run("long", lambda stands: stands["applied"] > before + 20)
        assert leaves.spent_nothing_since(spent)
        host.tacit("stop", "long", "--federation", host.place)
        host.wait_run("long", lambda stands: stands["state"] == "stopped")


def test_an_owner_answers_by_hand(tmp_path: Path) -> None:
    with federation(tmp_path, members=1) as (host, (site,)):
        site.join(host, policy=None)
        run = run_file(tmp_path, count=1)
        host.tacit("submit", run, "--name", "asked", "--federation", host.place)

        def answer() -> str:
            listed = json.loads(site.tacit("offers", "list", "--state", site.state, "--json"))
            return str({row["run"]: row["answer"] for row in listed}.get("asked"))

        host.wait(lambda: site.state.exists() and answer() == "waits for you")
        assert host.runs()["asked"]["state"] == "offered"
        assert "libtorch" not in host.libraries()  # the run was checked in another process
        screen = site.tacit("offers", "show", "asked", "--state", site.state)
        assert "Who asks" in screen
        assert "read (3)" in screen
        site.tacit("offers", "accept", "asked", "--state", site.state)
        ended = host.wait_run("asked", lambda stands: stands["state"] == "ended")
        assert ended["members"] == ["Site 0"]
        out = tmp_path / "out"
        host.tacit("results", "asked", "--out", out, "--federation", host.place)
        summary = json.loads((out / "summary.json").read_text())
        assert summary["applied"] == 40
        log = (host.place / "audit.jsonl").read_text().splitlines()
        did = [json.loads(line)["did"] for line in log]  # a statement may come after the run's end
        assert did in (["submitted", "accepted"], ["submitted", "accepted", "stated"])


def test_only_what_is_typed_after_the_screen_is_an_answer(tmp_path: Path) -> None:
    with federation(tmp_path, members=1) as (host, (site,)):
        keyboard = site.join_at_terminal(host)
        os.write(keyboard, b"yes\n")  # to nothing
        run = run_file(tmp_path, count=1)
        host.tacit("submit", run, "--name", "asked", "--federation", host.place)
        host.wait(lambda: "Take part in 'asked'?" in site.text("join.log"))
        os.write(keyboard, b"hm\n")
        host.wait(lambda: site.text("join.log").count("Take part in 'asked'?") == 2)
        assert host.runs()["asked"]["members"] == []
        os.write(keyboard, b"yes\n")
        host.wait_run("asked", lambda stands: stands["state"] == "ended")


@pytest.mark.parametrize("changed", ["graph", *nightly("offer")])
def test_no_member_starts_where_the_host_has_changed_a_byte(tmp_path: Path, changed: str) -> None:
    with federation(tmp_path, members=1) as (host, (site,)):
        module = tmp_path / "nets.py"
        module.write_text("from torch import nn\n\n\ndef net():\n    return nn.Linear(2, 2)\n")
        run = run_file(tmp_path, count=1)
        run.write_text(
            run.read_text().replace('name = "logistic"', 'name = "python"\nentry = "nets:net"')
        )
        host.tacit("submit", run, "--name", "changed", "--federation", host.place)
        path = host.place / "runs" / "changed" / "offer.json"
        if changed == "graph":
            names = json.loads(path.read_text())["files"]
            (digest,) = (names[name] for name in names if name.endswith(".graph.json"))
            path = host.place / "files" / digest
        content = bytearray(path.read_bytes())
        content[len(content) // 2] ^= 1
        path.write_bytes(content)
        site.join(host, BY_POLICY)
        host.wait(lambda: "changed: " in site.text("join.log"))
        assert host.runs()["changed"]["members"] == []
