"""Looks whose edges and aggregator are killed with -9: each answer is counted once, and paid.

An edge has ε for each look once. So one that dies after the charge, and before its message is
stored, is missing in a look. All others answer once, however often they begin again.
"""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest

from tacit.algorithms.base.looks import summed
from tacit.config import run_file
from tacit.judging.look_figures import figures
from tacit.privacy.ledger import read_chains
from tacit.protocol import wire
from tests.helpers.crash_plan import LOOK, LOOK_POINTS
from tests.helpers.crash_worker import SHARED_POINTS
from tests.helpers.federation import Host, Member, federation, run_text
from tests.helpers.processes import refold
from tests.helpers.servers import PATIENCE

LOOKS = 2
POLICY = 'accept = "within"\nlifetime_epsilon = 30.0'
AT_EDGES = f'[evaluation]\nat = "edges"\nlooks = {LOOKS}\nepsilon = 6.0\n'
# Where an answer that is paid for is never sent.
LOST = ("after_begin", "in_compute", "before_commit", "in_commit")
WELL = ""  # a site whose process does not die
# Three sites each; all points of an edge and of an aggregator are there.
THREES = (
    *(SHARED_POINTS[first::3] for first in range(3)),
    (WELL, "in_compute", "on_receipt"),
    ("before_begin", "in_commit", "after_publish"),
)
MATRIX = [
    (points, host_point, look)
    for points, host_point in zip(THREES, LOOK_POINTS, strict=True)
    for look in (1, LOOKS)
]
Answers = Counter[tuple[str, int]]  # how often each edge has answered each look; 0: has trained


@pytest.mark.slow
def test_a_look_is_counted_once_though_edges_and_aggregator_die(tmp_path: Path) -> None:
    check(tmp_path, ("in_compute", "after_publish"), LOOK + "update_appended", 1)


@pytest.mark.slow
@pytest.mark.chaos
@pytest.mark.exhaustive
@pytest.mark.parametrize(("points", "host_point", "look"), MATRIX)
def test_a_look_is_counted_once_at_whatever_points_they_die(
    tmp_path: Path, points: tuple[str, ...], host_point: str, look: int
) -> None:
    check(tmp_path, points, host_point, look)


def check(folder: Path, points: tuple[str, ...], host_point: str, look: int) -> None:
    """Judge while site number N dies at `points[N]` of its answer number `look`, and the aggregator."""
    with federation(folder, members=len(points), deaths={"judged": [(host_point, 1)]}) as scene:
        host, sites = scene
        for site, point in zip(sites, points, strict=True):
            if point:
                site.dying(judged=[(LOOK + point, look)])
        file = host.folder / "run.toml"
        text = run_text(updates=20, count=len(points)) + AT_EDGES
        file.write_text(text.replace("[run]", "[run]\nsnapshot_every = 5"))
        words = ("submit", file, "--name", "judged", "--federation", host.place)
        host.tacit(*words, patience=3 * PATIENCE)
        for site in sites:
            site.join(host, POLICY)
        stands = host.wait_run("judged", lambda stands: stands["state"] == "ended")
        assert stands["applied"] == 20
        assert host.deaths("judged") == 1
        answered = answers(host)
        assert max(answered[edge, number] for edge, number in answered if number) == 1
        for site, point in zip(sites, points, strict=True):
            judge_ledger(site, point, answered)
        judge_figures(host, answered)


def answers(host: Host) -> Answers:
    """Return what the journal has of each edge and look; look 0: its updates."""
    metas = [wire.decode(payload).meta for payload in host.journalled("judged")]
    return Counter((meta.edge, meta.update.look) for meta in metas if meta.HasField("update"))


def judge_ledger(site: Member, point: str, answered: Answers) -> None:
    """Check that a site has paid for each message of the journal, and for one more a kill at most.

    A lost look was paid for. Elsewhere a kill may cost what was charged ahead, which is training.
    """
    died = site.deaths("judged")
    assert died <= bool(point)
    sent = sum(answered[site.identity, number] for number in range(1, LOOKS + 1))
    assert (point not in LOST) <= sent <= LOOKS, point
    (ledger,) = (site.folder / "home" / "tacit" / "ledgers").glob("*/*/edge-*.db")
    (chain,) = read_chains(ledger)
    chain.verify()
    paid: Counter[str] = Counter()
    for row in chain.history():
        paid[row.side] += row.count
    lost = int(point in LOST and died)
    assert paid["held_out"] == sent + lost, point
    assert 0 <= paid["training"] - answered[site.identity, 0] <= died - lost, point
    assert paid["both"] == 0


def judge_figures(host: Host, answered: Answers) -> None:
    """Check that the looks are those of the journal's sums, folded once more."""
    out = host.folder / "results"
    host.tacit("results", "judged", "--out", out, "--federation", host.place)
    told = json.loads((out / "looks.json").read_text())
    folder = host.place / "runs" / "judged"
    offer = json.loads((folder / "offer.json").read_text())
    run = run_file.read(offer["file"], "offer", folder, site=None, own_code=False)
    role, _ = refold(run, host.journalled("judged"))
    judging = run.define().judging
    assert role.looks is not None
    assert judging is not None
    assert [look.number for look in role.looks.begun if look.sums] == [it["look"] for it in told]
    for document, look in zip(told, (look for look in role.looks.begun if look.sums), strict=True):
        assert {*look.sums} == {edge for edge, number in answered if number == look.number}
        assert document["edges"] == len(look.sums)
        again = figures(summed(judging, look))
        assert document["metrics"] == {name: each.rounded() for name, each in again.items()}
