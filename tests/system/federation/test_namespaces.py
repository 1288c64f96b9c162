"""A federation between machines that share nothing: one port out, and in one place a proxy.

Each machine is a network namespace with a firewall. Members are killed, and the host; what left
them is counted on their cables, and what they have paid for it is in their ledgers.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple

import dp_accounting as dpa
import pytest
from dp_accounting import pld, rdp
from tacit_services.member.member_state import MemberState
from tacit_services.member.run_here import definition_of

from tacit.privacy.ledger import read_chains, read_lifetime_orders
from tests.conftest import ROOT
from tests.helpers.federation import TACIT, check_counted_once, run_file
from tests.helpers.namespaces import HOST_ADDRESS
from tests.helpers.separate_sites import (
    PORT,
    SeparateHost,
    SeparateMember,
    separate_federation,
    with_key_log,
)
from tests.helpers.wheels import built, edge_venv

LIFETIME = 8.0
DELTA = 1e-5
BY_POLICY = f'accept = "within"\nlifetime_epsilon = {LIFETIME}'
ROWS = 400  # of each member
PARAMETERS = 6  # at most, of the runs' model
BEHIND_PROXY = 2
TUNNEL = f"TCP_TUNNEL/200 {HOST_ADDRESS}:{PORT}"
UPDATES = {"first": 3000, "second": 1500, "third": 40}


class ReleaseKind(NamedTuple):
    """A kind of release: a mechanism, at one sampling rate and noise multiplier."""

    mechanism: str
    sampling_rate: float
    noise_multiplier: float


Counts = Counter[ReleaseKind]


@pytest.fixture
def installed(tmp_path: Path) -> tuple[str, ...]:
    """Return how `tacit` is begun in the members' environment, of which nothing is in the tree."""
    (tmp_path / "wheel").mkdir()
    return with_key_log(edge_venv(tmp_path / "venv", built(ROOT, tmp_path / "wheel")))


@pytest.mark.exhaustive
@pytest.mark.slow
def test_a_member_with_a_way_out_by_a_proxy_alone_trains(tmp_path: Path) -> None:
    with separate_federation(tmp_path, TACIT, 1, behind_proxy=0) as (host, (site,), proxy):
        submit(host, "far", updates=20, count=1)
        site.join(host)
        host.wait_run("far", lambda stands: stands["state"] == "ended")
        site.stop()
        assert set(proxy.tunnels()) == {TUNNEL}
        assert site.site.refused() == 0


@pytest.mark.exhaustive
def test_each_ledger_has_what_left_its_site_by_the_one_port(
    installed: tuple[str, ...], tmp_path: Path
) -> None:
    federation = separate_federation(tmp_path, installed, 4, BEHIND_PROXY)
    with federation as (host, sites, proxy):
        first_updates(host, sites[:3])
        two_runs_outlast_kills(host, sites[:3])
        withdrawn = one_joins_and_one_withdraws(host, sites)
        assert all(not site.site.listeners() for site in sites)
        for site in sites:
            site.stop()
            site.sniffer.check()
        check_accepted(host, sites)
        check_silence(sites[0], withdrawn)
        for number, site in enumerate(sites):
            killed = {"first", "second"} if number < 3 else set()
            check_ledger(site, killed | ({"long"} if number == 0 else set()))
            check_bytes(site)
            assert site.site.refused() == 0
        away = f"NONE_NONE/503 {HOST_ADDRESS}:{PORT}"  # while the host was killed
        assert {TUNNEL} <= set(proxy.tunnels()) <= {TUNNEL, away}


def submit(host: SeparateHost, name: str, **values: Any) -> None:
    run = run_file(host.folder, **values)
    host.tacit("submit", run, "--name", name, "--federation", host.place)


def first_updates(host: SeparateHost, sites: list[SeparateMember]) -> None:
    """Let members join, and wait for an update of each; prints how long that took."""
    submit(host, "first", epsilon=1.0, updates=UPDATES["first"], count=3)
    begun: dict[str, float] = {}
    for number, site in enumerate(sites):
        begun[site.name] = time.monotonic()
        site.join(host, BY_POLICY + ("\nmax_epsilon = 2.0" if number == 1 else ""))
    host.wait_run("first", lambda stands: stands["applied"] > 0)
    for site in sites:
        wait_came(host, "first", [site])
        took = time.monotonic() - begun[site.name]
        print(f"{site.name}: first update accepted {took:.1f} s after `tacit join`")  # noqa: T201


def wait_came(host: SeparateHost, run: str, sites: list[SeparateMember], first: int = 0) -> None:
    """Wait until a run's journal has an update of each member, from message `first` on."""
    missing = {site.identity for site in sites}
    host.wait(lambda: missing <= {edge for edge, _ in host.accepted(run, first)})


def reached(host: SeparateHost) -> dict[str, int]:
    """Return how many messages the journals of the runs that must outlast kills have."""
    return {run: len(host.journalled(run)) for run in ("first", "second")}


def two_runs_outlast_kills(host: SeparateHost, sites: list[SeparateMember]) -> None:
    """Submit a second run, kill everybody while both train, and submit one that an owner refuses."""
    submit(host, "second", epsilon=1.5, updates=UPDATES["second"], count=3)
    host.wait_run("second", lambda stands: stands["applied"] > 0)
    for site in sites:
        site.kill()
    before = reached(host)
    for site in sites:
        site.start_again()
    for run, count in before.items():
        wait_came(host, run, sites, count)
    host.kill()
    before = reached(host)
    host.serve("--log", "info")
    stands = host.runs()
    assert {stands[run]["state"] for run in before} == {"training"}  # killed in the middle
    for run, count in before.items():
        wait_came(host, run, sites, count)
    submit(host, "third", epsilon=3.0, updates=UPDATES["third"], count=2)
    for run in UPDATES:
        host.wait_run(run, lambda stands: stands["state"] == "ended")
    listed = json.loads(host.tacit("runs", "--json", "--federation", host.place))
    refused = {run["name"]: run["refused"] for run in listed}
    policy = {"member": sites[1].name, "reason": "policy"}
    assert refused == {"first": [], "second": [], "third": [policy]}


def one_joins_and_one_withdraws(host: SeparateHost, sites: list[SeparateMember]) -> float:
    """Let the last member join while a run trains, and the first withdraw; returns when it had."""
    submit(host, "long", epsilon=1.9, updates=20_000, count=3)
    host.wait_run("long", lambda stands: stands["applied"] > 20)
    begun = time.monotonic()
    sites[-1].join(host, BY_POLICY)
    host.wait(lambda: sites[-1].has_joined)
    wait_came(host, "long", sites[-1:])
    took = time.monotonic() - begun
    print(f"{sites[-1].name}: first update accepted {took:.1f} s after `tacit join`")  # noqa: T201
    said = sites[0].tacit("offers", "withdraw", "long", "--state", sites[0].state)
    withdrawn = time.time()
    assert "nothing leaves from now on" in said
    before = len(host.journalled("long"))
    wait_came(host, "long", sites[1:], before)
    host.tacit("stop", "long", "--federation", host.place)
    stands = host.wait_run("long", lambda stands: stands["state"] == "stopped")
    assert stands["refused"] == [{"member": sites[0].name, "reason": "withdrawn"}]
    return withdrawn


def check_accepted(host: SeparateHost, sites: list[SeparateMember]) -> None:
    """Check that each run has applied what it accepted, each once, and that all of it has left."""
    sent_pushes = {
        (run, site.identity, seq) for site in sites for run, seq in site.sniffer.updates()
    }  # fmt: skip
    for run, stands in host.runs().items():
        pushes = host.accepted(run)
        check_counted_once(pushes, stands["applied"])
        assert stands["applied"] == UPDATES.get(run, stands["applied"])
        assert {(run, *push) for push in pushes} <= sent_pushes


def check_silence(site: SeparateMember, withdrawn: float) -> None:
    """Check that nothing of the long run has left a site since it had withdrawn."""
    published = [each for each in site.sniffer.publications() if each.run == "long"]
    assert published
    assert [each.topic for each in published if each.at > withdrawn] == []


def check_bytes(site: SeparateMember) -> None:
    """Check that no message to an aggregator is larger than docs/firewall.md says."""
    sizes = [len(each.payload) for each in site.sniffer.publications() if "/up/" in each.topic]
    assert 0 < max(sizes) <= 4 * PARAMETERS + 4096


def check_ledger(site: SeparateMember, ended: set[str]) -> None:
    """Check what a site's ledger has paid against what left it. ended: runs in whose middle it was.

    Of such a run one release may be paid that never left: its process ended between the two.
    """
    sent = Counter(run for run, _ in site.sniffer.updates())
    kinds = {run: release_kind(site, run) for run in sent}
    sent_kinds = Counter({kinds[run]: count for run, count in sent.items()})
    most = sent_kinds + Counter(kinds[run] for run in ended & set(sent))
    (chain,) = read_chains(site.ledger())
    chain.verify()
    paid = Counter[ReleaseKind]()
    for spend in (row.spend() for row in chain.rows):
        kind = ReleaseKind(spend.mechanism, spend.sampling_rate, spend.noise_multiplier)
        paid[kind] += spend.count
    assert sent_kinds <= paid <= most, (sent_kinds, paid, most)
    joint = joint_epsilon(paid)
    assert joint_epsilon(sent_kinds) <= joint <= joint_epsilon(most)
    if not ended:
        assert abs(joint - joint_epsilon(sent_kinds)) <= 1e-6
    (order,) = read_lifetime_orders(site.ledger()).values()
    assert joint < filtered_epsilon(paid, order) <= LIFETIME


def release_kind(site: SeparateMember, run: str) -> ReleaseKind:
    """Return the kind of a member's releases in a run, by the offer that it consented to."""
    state = MemberState(site.state)
    membership = state.membership()
    assert membership is not None
    plan = definition_of(state, run).define().plans.plan(membership.number, ROWS)
    assert plan.noise_multiplier is not None
    return ReleaseKind(plan.mechanism, plan.charged_rate, plan.noise_multiplier)


def joint_epsilon(counts: Counts) -> float:
    """Return what these releases cost by privacy loss distributions, all together."""
    accountant = pld.PLDAccountant(value_discretization_interval=1e-3)
    for kind, count in sorted(counts.items()):
        accountant.compose(_event(kind), count)
    return float(accountant.get_epsilon(DELTA))


def filtered_epsilon(counts: Counts, order: int) -> float:
    """Return what they cost at one Rényi order."""
    accountant = rdp.RdpAccountant([order])
    for kind, count in sorted(counts.items()):
        accountant.compose(_event(kind), count)
    return float(accountant.get_epsilon(DELTA))


def _event(kind: ReleaseKind) -> dpa.DpEvent:
    assert kind.noise_multiplier > 0
    return dpa.PoissonSampledDpEvent(kind.sampling_rate, dpa.GaussianDpEvent(kind.noise_multiplier))
