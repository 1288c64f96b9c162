"""Questions whose edges and aggregator are killed with -9: each answer is counted once, and paid.

An edge has ε for one answer. So one that dies after the charge, and before its message is stored,
is missing among those that have answered. All others answer once, however often they begin again.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tacit.algorithms.ask.ask_algorithm import deviation
from tacit.config import run_file
from tacit.config.asked_table import AskedTable
from tacit.questions.estimates import answers
from tests.helpers.crash_plan import UPDATE_POINTS
from tests.helpers.crash_worker import SHARED_POINTS
from tests.helpers.federation import Host, Member, federation
from tests.helpers.processes import refold

ROWS = 400
RUN = """
[run]
snapshot_every = 1
[data]
kind = "table"
rows = 400
[data.columns]
a = { low = -4.0, high = 4.0 }
[edges]
count = 3
[privacy]
epsilon = 1.0
[ask]
questions = ["count", "mean a", "quantile a 0.5", "missing b"]
"""
POLICY = 'accept = "within"\nlifetime_epsilon = 8.0'
# Where an answer that is paid for is never sent, as there is no ε for another.
LOST = ("after_begin", "in_compute", "before_commit", "in_commit")
WELL = ""  # a site whose process does not die
# Three sites each, of which one or two answer; all points of an edge and of an aggregator are there.
THREES = (
    *(SHARED_POINTS[first::3] for first in range(3)),
    (WELL, "in_compute", "on_receipt"),
    ("before_begin", "in_commit", "after_publish"),
)
MATRIX = list(zip(THREES, UPDATE_POINTS, strict=True))


@pytest.mark.slow
def test_an_answer_is_counted_once_though_edges_and_aggregator_die(tmp_path: Path) -> None:
    check(tmp_path, (WELL, "in_compute", "after_publish"), "update_appended")


@pytest.mark.slow
@pytest.mark.chaos
@pytest.mark.exhaustive
@pytest.mark.parametrize(("points", "host_point"), MATRIX)
def test_it_is_at_whatever_points_they_die(
    tmp_path: Path, points: tuple[str, ...], host_point: str
) -> None:
    check(tmp_path, points, host_point)


def check(folder: Path, points: tuple[str, ...], host_point: str) -> None:
    """Ask while site number N dies at `points[N]`, and the aggregator; judge what comes of it."""
    deaths = {"asked": [(host_point, 1)]}
    with federation(folder, members=len(points), deaths=deaths) as (host, sites):
        for site, point in zip(sites, points, strict=True):
            if point:
                site.dying(asked=[(point, 1)])
        file = host.folder / "ask.toml"
        file.write_text(RUN)
        host.tacit("submit", file, "--name", "asked", "--federation", host.place)
        for site in sites:
            site.join(host, POLICY)
        over = ("ended", "stopped")  # stopped: an edge without ε for its answer is not waited for
        stands = host.wait_run("asked", lambda stands: stands["state"] in over)
        assert host.deaths("asked") == 1
        assert [site.deaths("asked") for site in sites] == [int(bool(point)) for point in points]
        answered = [edge for edge, _ in host.accepted("asked")]
        assert stands["applied"] == len(answered)
        judge_ledgers(sites, points, answered)
        judge_answers(host, answered)


def judge_ledgers(sites: list[Member], points: tuple[str, ...], answered: list[str]) -> None:
    """Check that each has at most one answer, and has paid for it; a kill costs one at most."""
    for site, point in zip(sites, points, strict=True):
        sent = answered.count(site.identity)
        assert sent == (point not in LOST), point
        assert site.charges() == sent + (point in LOST) == 1, point


def judge_answers(host: Host, answered: list[str]) -> None:
    """Check that the answers are those of the journal's sums, folded once more."""
    out = host.folder / "answers"
    host.tacit("results", "asked", "--out", out, "--federation", host.place)
    told = json.loads((out / "answers.json").read_text())
    assert {(answer["edges"], answer["of"]) for answer in told} == {(len(answered), 3)}
    folder = host.place / "runs" / "asked"
    offer = json.loads((folder / "offer.json").read_text())
    run = run_file.read(offer["file"], "offer", folder, site=None, own_code=False)
    role, updates = refold(run, host.journalled("asked"))
    assert dict(updates) == dict.fromkeys(answered, 1)
    assert isinstance(run.data, AskedTable)
    assert run.ask is not None
    noise = deviation(run.define(), answered, role.params.numel())
    again = answers(run.data.question_sheet(run.ask), role.params.double().numpy(), noise)
    for answer, refolded in zip(told, again, strict=True):
        (expected,) = refolded.values
        figures = (expected.value, expected.low, expected.high)
        assert (answer["value"], answer["low"], answer["high"]) == figures
    # Of secret noise: an interval of 95 % of twice its length misses once in ten thousand times.
    assert abs(told[0]["value"] - ROWS * len(answered)) <= told[0]["high"] - told[0]["low"]
