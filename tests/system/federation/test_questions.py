"""Questions as a federation's run: offered, consented to, answered once, and refused by a policy."""

from __future__ import annotations

import json
from pathlib import Path

from tests.helpers.federation import federation

BY_POLICY = 'accept = "within"\nlifetime_epsilon = 8.0'

RUN = """
[data]
kind = "table"
rows = 400
[data.columns]
a = { low = -4.0, high = 4.0 }
[edges]
count = 2
grace = 5
[privacy]
epsilon = 1.0
[ask]
questions = ["count", "mean a", "quantile a 0.5", "missing b"]
"""


def test_members_answer_once_and_a_policy_forbids_a_kind_of_question(tmp_path: Path) -> None:
    with federation(tmp_path, members=3) as (host, sites):
        for site in sites[:2]:
            site.join(host, BY_POLICY)
        sites[2].join(host, BY_POLICY + '\nquestions = ["count"]')
        file = host.folder / "ask.toml"
        file.write_text(RUN)
        host.tacit("submit", file, "--name", "before", "--federation", host.place)
        stands = host.wait_run("before", lambda stands: stands["state"] == "ended")
        assert stands["applied"] == 2
        assert stands["refused"] == [{"member": "Site 2", "reason": "policy"}]
        out = tmp_path / "answers"
        host.tacit("results", "before", "--out", out, "--federation", host.place)
        answers = json.loads((out / "answers.json").read_text())
        assert [answer["question"] for answer in answers] == [
            "count", "mean a", "quantile a 0.5", "missing b",
        ]  # fmt: skip
        assert {(answer["edges"], answer["of"], answer["epsilon"]) for answer in answers} == {
            (2, 2, 1.0)
        }
        assert [site.charges() for site in sites[:2]] == [1, 1]
        shown = sites[2].tacit("offers", "show", "before", "--state", sites[2].state)
        assert "these questions are asked, once" in shown


def test_a_second_run_that_passes_a_lifetime_is_refused_with_what_is_left(tmp_path: Path) -> None:
    with federation(tmp_path, members=2) as (host, sites):
        sites[0].join(host, 'accept = "within"\nlifetime_epsilon = 1.2')  # for one answer
        sites[1].join(host, BY_POLICY)
        file = host.folder / "ask.toml"
        file.write_text(RUN.replace("grace = 5", "min = 1\nwait = 5"))
        for name in ("first", "second"):
            host.tacit("submit", file, "--name", name, "--federation", host.place)
            host.wait_run(name, lambda stands: stands["state"] in ("ended", "stopped"))
        stands = host.runs()
        assert (stands["first"]["applied"], stands["second"]["applied"]) == (2, 1)
        assert stands["second"]["refused"] == [{"member": "Site 0", "reason": "policy"}]
        assert [site.charges() for site in sites] == [1, 2]
        shown = sites[0].tacit("offers", "show", "second", "--state", sites[0].state)
        assert "% of it is left, which pays for no answer of this run, with ε 1" in " ".join(
            shown.split()
        )
