"""A(DP)²SGD against its paper: one test per equation, line of Algorithm 1, assumption and claim of
appendix A.

E1 and E2 are the paper's errors, as reference/privacy.md 7 numbers them.
"""

from __future__ import annotations

import math
from dataclasses import replace
from random import Random as Chooser

import pytest
import torch
from torch import Tensor

from tacit.algorithms.gossip.adp2sgd import Peer
from tacit.algorithms.gossip.allreduce import SyncPeer
from tacit.algorithms.gossip.topology import build, pairwise
from tacit.datasets import Dataset
from tacit.errors import BudgetSpent, PrivacyError
from tacit.models.vectors import LARGEST, mean_gradient
from tacit.privacy.accounting import Spend, epsilon_pld, epsilon_rdp
from tacit.privacy.ledger import Ledger
from tacit.privacy.noise.randomness import Random
from tacit.privacy.private_sum.clipping import Clipped
from tacit.privacy.release import Plan, Released, Releaser
from tacit.privacy.release.trained import Shared, Trained
from tacit.protocol.messages import Answer, Missing, Outgoing, Proposal, Report, Share
from tests.helpers.paper_gossip import BATCH, MODEL, SIZE, Net, make, names
from tests.helpers.private_sums import rows_of

PAIR = build("complete", names(2))
# Every row, clipped by nothing, hardly noised.
EXACT = {"mechanism": "gaussian", "rate": 1.0, "z": 1e-9, "clip": 1e3}


def peer(**changes: object) -> Peer:
    role = make("peer-0", PAIR, **changes)  # type: ignore[arg-type]
    assert isinstance(role, Peer)
    role.here = {"peer-1"}
    return role


def single(outgoing: list[Outgoing]) -> object:
    (only,) = outgoing
    return only.message


def proposal(vector: Tensor, seq: int = 1, life: int = 1) -> Proposal:
    return Proposal("peer-1", life, seq, vector, {})


def released(vector: Tensor) -> Released:
    plan = Plan("none", 0.5, 1.0, 0.0, 0.1, 10.0, 1.0, 1e-5)
    return Releaser(plan, Ledger(":memory:", "t"), Random(1)).release(
        1.0, lambda: Clipped(vector, math.inf)
    )


# -- Algorithm 1 -----------------------------------------------------------------------------------


def test_line_1_all_begin_at_the_same_public_model() -> None:
    net = Net(4, apart=False)
    assert all(
        torch.equal(p.trained.params, MODEL.init(1).to(torch.float64)) for p in net.peers.values()
    )


def test_line_3_the_run_ends_when_all_together_have_taken_T_steps() -> None:
    net = Net(4, "complete", horizon=12)
    for _ in range(20):
        for name in net.peers:
            net.step(name)
        while net.flying:
            net.deliver()
    counted = {name: p.steps for name, p in net.peers.items()}
    assert 12 <= sum(counted.values()) <= 12 + 4  # who has not heard yet takes one more
    assert all(p.begin() == (None, []) for p in net.peers.values())  # the farewell has been said


def test_line_3_who_hears_of_the_end_tells_its_neighbours() -> None:
    net = Net(4, "ring", horizon=40)
    net.peers["peer-1"].counts["peer-1"] = 50  # nobody else knows
    net.call("peer-1", lambda p: p.hear(Proposal("peer-0", 1, 1, torch.zeros(SIZE), {})))
    net.call("peer-1", lambda p: p.begin()[1])
    while net.flying:
        net.deliver()
    assert net.peers["peer-0"].finished
    net.call("peer-0", lambda p: p.begin()[1])
    while net.flying:
        net.deliver()
    assert net.peers["peer-3"].finished


def test_line_4_the_partner_is_a_neighbour_and_only_one_that_is_here() -> None:
    chooser = make("peer-0", build("complete", names(4)))
    assert isinstance(chooser, Peer)
    assert chooser.propose() == []
    chooser.here = {"peer-2"}
    (out,) = chooser.propose()
    assert out.to == "peer-2"
    assert (
        chooser.propose() == []
    )  # one exchange at a time on a link: it is never asked for the next before the answer


def test_line_5_every_row_is_drawn_with_probability_q_of_its_own() -> None:
    certain = peer(**EXACT)
    rows = rows_of(certain)
    everybody = rows.x[:-1], rows.y[:-1]
    expected = (
        mean_gradient(MODEL, certain.trained.params.float(), *everybody) * rows.records / BATCH
    )
    assert torch.allclose(certain.gradient(certain.trained.params).vector, expected, atol=1e-4)
    none = peer(**EXACT | {"rate": 1e-9})
    assert float(none.gradient(certain.trained.params).vector.abs().max()) < 1e-4


def test_line_6_the_gradient_is_of_the_model_that_was_read_not_of_what_it_has_become() -> None:
    reader = peer(rate=1.0, learning_rate=0.1)
    read, _ = reader.begin()
    assert read is not None
    computed_at = read.clone()
    reader.hear(proposal(torch.ones(SIZE)))
    assert torch.equal(read, computed_at)  # ŵ, while w' has moved
    assert not torch.equal(reader.trained.params, computed_at)


@pytest.mark.parametrize("mechanism", ["gaussian", "discrete_gaussian"])
def test_line_7_and_E1_the_noise_on_the_sum_is_zC_and_L_divides_both(mechanism: str) -> None:
    noisy = peer(mechanism=mechanism, rate=1e-9, z=2.0, clip=0.5)  # no rows: noise alone
    drawn = torch.stack([_value(noisy.gradient(noisy.trained.params)) for _ in range(400)])
    assert float(drawn.std()) == pytest.approx(
        2.0 * 0.5 / BATCH, rel=0.06
    )  # 3,200 numbers: 1.25 % each σ
    assert float(drawn.std()) > 2 * 2.0 * 0.5 / BATCH**2  # the paper's: for the mean, on the sum


def _value(update: Released) -> Tensor:
    return update.vector.to(torch.float64) * update.scale


def test_line_7_every_example_is_clipped_before_the_sum() -> None:
    hot = Dataset(1e4 * torch.eye(3).view(3, 1, 1, 3), torch.tensor([0, 1, 0]), 2, "test")
    clipper = peer(mechanism="gaussian", rate=1.0, z=1e-6, clip=0.25, data=hot)
    assert float(_value(clipper.gradient(clipper.trained.params)).norm()) <= 3 * 0.25 / BATCH + 1e-6


def test_line_8_and_eq_3_one_exchange_is_the_pairwise_matrix() -> None:
    net = Net(4, "ring")
    before = torch.stack([p.trained.params for p in net.peers.values()])
    net.call("peer-0", lambda p: p.propose())
    partner = net.topology.peers.index(net.flying[0][0])
    net.settle()
    after = torch.stack([p.trained.params for p in net.peers.values()])
    assert torch.allclose(after, pairwise(4, 0, partner) @ before, atol=1e-6)  # δ is a float32


def test_line_9_and_eq_4_the_step_is_taken_from_what_averaging_has_made() -> None:
    stepper = peer(rate=1.0, learning_rate=0.1)
    read, _ = stepper.begin()
    assert read is not None
    gradient = stepper.gradient(read)
    answer = single(stepper.hear(proposal(torch.ones(SIZE))))
    assert isinstance(answer, Answer)
    averaged = stepper.trained.params
    assert torch.allclose(averaged, (torch.ones(SIZE) + read) / 2)
    stepper.finish(gradient)
    assert torch.allclose(stepper.trained.params, averaged - 0.1 * _value(gradient), atol=1e-12)


def test_eq_1_the_mean_of_all_models_moves_by_the_steps_alone() -> None:
    net = Net(4, "ring", learning_rate=0.3)
    start, moved = net.total(), torch.zeros(SIZE, dtype=torch.float64)
    for _ in range(30):
        for name, p in net.peers.items():
            read, out = p.begin()
            assert read is not None
            net.call(name, lambda _, out=out: out)  # type: ignore[misc]
            gradient = p.gradient(read)
            moved -= 0.3 * _value(gradient)
            net.call(name, lambda q, gradient=gradient: q.finish(gradient))  # type: ignore[misc]
        net.deliver()
    net.settle()
    assert torch.allclose(net.total(), start + moved, atol=1e-12)


def test_adpsgd_takes_the_mean_gradient_of_its_batch_without_noise() -> None:
    plain = peer(mechanism="none")
    drawn = torch.stack([plain.gradient(plain.trained.params).vector for _ in range(600)])
    rows = rows_of(plain)
    expected = mean_gradient(MODEL, plain.trained.params.float(), rows.x[:-1], rows.y[:-1])
    spread = drawn.std(0) / math.sqrt(len(drawn))
    assert bool(((drawn.mean(0) - expected).abs() < 5 * spread + 1e-6).all())
    assert plain.releaser.releases_left is None


# -- assumptions and appendix A --------------------------------------------------------------------


def test_assumption_2_3_staleness_is_bounded_and_nothing_is_refused_for_it() -> None:
    busy = make("peer-0", build("complete", names(6)), max_staleness=2)
    assert isinstance(busy, Peer)
    read, _ = busy.begin()
    assert read is not None
    answers = []
    for number in range(1, 6):
        answers += busy.hear(
            Proposal(f"peer-{number}", 1, 1, torch.full((SIZE,), float(number)), {})
        )
    assert len(answers) == 2  # the others wait for the step
    answers += busy.finish(busy.gradient(read))
    assert [out.to for out in answers] == [f"peer-{number}" for number in range(1, 6)]
    assert dict(busy.staleness) == {2: 1}


def test_appendix_a_the_global_counter_is_a_sum_that_no_duplicate_can_raise() -> None:
    counter = peer(horizon=10)
    late, newer = {"peer-1": 3, "stranger": 50}, {"peer-1": 5, "peer-0": 99}
    for counts in (newer, late, newer):
        counter.hear(replace(proposal(torch.zeros(SIZE)), counts=counts))
    assert counter.counts == {"peer-0": 0, "peer-1": 5}  # nobody else says what we have done
    assert counter.version == 5


def test_appendix_a_a_ring_of_senders_and_receivers_never_has_two_proposals_crossing() -> None:
    net = Net(6, "ring")
    for _ in range(5):
        for name in net.peers:
            net.call(name, lambda p: p.propose())
    proposing = {message.peer for _, message in net.flying if isinstance(message, Proposal)}
    assert proposing == {"peer-0", "peer-2", "peer-4"}


def test_no_peer_waits_for_one_that_is_away() -> None:
    net = Net(4, "ring", learning_rate=0.1)
    for _ in range(20):
        for name in ("peer-0", "peer-2", "peer-3"):
            net.step(name)
        net.flying = [(to, message) for to, message in net.flying if to != "peer-1"]  # it is dead
        while net.flying:
            net.deliver()
            net.flying = [(to, message) for to, message in net.flying if to != "peer-1"]
    counted = {name: p.steps for name, p in net.peers.items()}
    assert counted == {"peer-0": 20, "peer-1": 0, "peer-2": 20, "peer-3": 20}
    links = [net.peers[name].links["peer-1"] for name in ("peer-0", "peer-2")]  # type: ignore[union-attr]
    assert [(link.proposed, link.open) for link in links] == [
        (1, True),
        (1, True),
    ]  # one exchange each, kept open
    total = net.total()
    net.settle()  # it is back
    assert torch.allclose(net.total(), total, atol=1e-12)


# -- exactly once: what a random search seldom meets -----------------------------------------------


def test_an_old_answer_is_not_taken_for_the_new_one() -> None:
    proposer = peer()
    proposer.propose()
    first = Answer("peer-1", 1, 1, torch.ones(SIZE), {})
    proposer.hear(first)
    proposer.propose()
    before = proposer.trained.params
    proposer.hear(first)
    assert torch.equal(proposer.trained.params, before)
    assert not proposer.settled


def test_an_answer_to_an_earlier_life_is_nobodys() -> None:
    proposer = peer(life=8)
    proposer.propose()
    proposer.hear(Answer("peer-1", 7, 1, torch.ones(SIZE), {}))
    assert not proposer.settled


def test_an_old_proposal_is_not_answered_and_the_last_is_answered_in_the_same_bits() -> None:
    receiver = peer()
    for seq in (1, 2):
        receiver.hear(proposal(torch.full((SIZE,), float(seq)), seq))
    params = receiver.trained.params
    assert receiver.hear(proposal(torch.zeros(SIZE), 1)) == []
    again = single(receiver.hear(proposal(torch.full((SIZE,), 9.0), 2)))
    assert torch.equal(receiver.trained.params, params)
    assert isinstance(again, Answer)
    assert isinstance(again.delta, Shared)
    assert torch.equal(again.delta.vector, torch.full((SIZE,), 0.75))  # (2 - 0.5)/2


def test_a_peer_whose_disk_was_replaced_begins_again_and_its_past_is_over() -> None:
    receiver = peer()
    receiver.hear(proposal(torch.ones(SIZE), 5, life=1))
    assert receiver.hear(proposal(torch.ones(SIZE), 1, life=2)) != []
    params = receiver.trained.params
    assert receiver.hear(proposal(torch.zeros(SIZE), 6, life=1)) == []
    assert torch.equal(receiver.trained.params, params)


def test_a_repeated_proposal_carries_the_model_of_today() -> None:
    proposer = peer(rate=1.0, learning_rate=0.5)
    first = single(proposer.propose())
    read, _ = proposer.begin()
    assert read is not None
    proposer.finish(proposer.gradient(read))
    again = single(proposer.repeat(["peer-1"]))
    assert isinstance(first, Proposal)
    assert isinstance(again, Proposal)
    assert (first.seq, first.life) == (again.seq, again.life)
    assert isinstance(again.model, Shared)
    assert torch.equal(again.model.vector, proposer.trained.params.float())


@pytest.mark.parametrize(
    "vector", [torch.full((SIZE,), math.nan), torch.full((SIZE,), 2 * LARGEST), torch.ones(3)]
)
def test_what_nobody_has_learnt_is_not_averaged_with(vector: Tensor) -> None:
    receiver = peer()
    assert receiver.hear(proposal(vector)) == []
    assert receiver.refusals == 1
    assert not receiver.trained.params.any()


def test_strangers_and_other_messages_change_nothing() -> None:
    receiver = peer()
    assert receiver.hear(Proposal("peer-9", 1, 1, torch.ones(SIZE), {})) == []
    assert receiver.hear(Missing("peer-1", 0)) == []
    assert not receiver.trained.params.any()


# -- privacy ---------------------------------------------------------------------------------------


def test_what_a_neighbour_sees_are_the_noisy_gradients_themselves() -> None:
    """So the guarantee against it is the whole ledger: no 1/K (E2), no amplification by gossip."""
    stepper = peer(mechanism="gaussian", rate=0.5, learning_rate=0.25)
    for seq in range(1, 4):
        read, outgoing = stepper.begin()
        proposal_sent = single(outgoing)
        assert read is not None
        assert isinstance(proposal_sent, Proposal)
        assert isinstance(proposal_sent.model, Shared)
        gradient = stepper.gradient(read)
        stepper.finish(gradient)
        stepper.hear(Answer("peer-1", 1, seq, torch.zeros(SIZE), {}))
        now = stepper.trained.share().vector
        assert torch.allclose((proposal_sent.model.vector - now) / 0.25, gradient.vector, atol=1e-5)


def test_epsilon_from_the_event_log_is_the_ledgers() -> None:
    net = Net(
        4,
        "ring",
        mechanism="gaussian",
        rate=0.5,
        z=3.0,
        learning_rate=0.1,
        random=Random(),
        apart=False,
    )
    events: list[tuple[str, float, float]] = []
    for turn in range(12):
        for name in net.peers:
            if turn % (1 + int(name[-1])) == 0:  # of different speeds
                net.step(name)
                events.append((name, 0.5, 3.0))
        while net.flying:
            net.deliver()
    for name, p in net.peers.items():
        mine = [Spend(q, z, 1) for who, q, z in events if who == name]
        history = p.releaser.ledger.history()
        assert history == (Spend(0.5, 3.0, len(mine)),)
        assert p.steps == len(mine)
        assert epsilon_pld(history, 1e-5) == pytest.approx(epsilon_pld(mine, 1e-5))
        assert epsilon_rdp(history, 1e-5) == pytest.approx(epsilon_rdp(mine, 1e-5))


def test_E2_the_papers_rate_understates_what_a_worker_spends() -> None:
    K, q, z, K_i = 16, 256 / 3125, 1.0, 500
    assert epsilon_pld([Spend(q / K, z, K_i * K)], 1e-5) < 0.5 * epsilon_pld(
        [Spend(q, z, K_i)], 1e-5
    )


def theorem_2(mu: float, epsilon: float) -> bool:
    """Check whether (7) holds at the paper's CIFAR setting, with δ = 1e-5.

    There are K = 16 workers of n = 3,125 rows, B = 256, and T of 300 epochs.
    """
    K, n, B, T = 16, 3125, 256, 58_593
    alpha = math.log(1 / 1e-5) / ((1 - mu) * epsilon) + 1
    return alpha <= math.log(
        K**3 * n**3 * mu * epsilon / (K**2 * n**2 * mu * epsilon * B + 5 * T * alpha * B**3)
    )


@pytest.mark.parametrize(
    ("epsilon", "holds"), [(1.0, False), (4.0, False), (8.0, False), (10.0, True)]
)
def test_E3_eq_7_has_no_mu_at_the_papers_own_setting(epsilon: float, holds: bool) -> None:
    assert any(theorem_2(mu / 1000, epsilon) for mu in range(1, 1000)) == holds


def test_remark_1_is_no_bound_on_what_a_worker_has_spent_after_t_steps() -> None:
    stepper = peer(mechanism="gaussian", rate=0.05, z=1.0, random=Random(), learning_rate=0.1)
    spent = []
    for seq in range(1, 65):
        read, _ = stepper.begin()
        assert read is not None
        stepper.finish(stepper.gradient(read))
        stepper.hear(Answer("peer-1", 1, seq, torch.zeros(SIZE), {}))
        spent.append(epsilon_pld(stepper.releaser.ledger.history(), 1e-5))
    remark = [math.sqrt(t / 64) * spent[-1] for t in (1, 4, 16)]
    assert all(spent[t - 1] > 1.05 * claimed for t, claimed in zip((1, 4, 16), remark, strict=True))


def test_a_spent_budget_ends_the_steps_not_the_averaging() -> None:
    poor = peer(mechanism="gaussian", rate=0.5, z=1.0, epsilon=3.0, random=Random())
    assert poor.releaser.releases_left is not None
    for _ in range(poor.releaser.releases_left):
        read, _ = poor.begin()
        assert read is not None
        poor.finish(poor.gradient(read))
    read, _ = poor.begin()
    assert read is not None
    with pytest.raises(BudgetSpent):
        poor.gradient(read)
    assert poor.abandon() == []
    assert poor.hear(proposal(torch.ones(SIZE))) != []
    assert epsilon_pld(poor.releaser.ledger.history(), 1e-5) <= 3.0


def test_only_trained_makes_what_may_leave() -> None:
    with pytest.raises(TypeError, match="Trained only"):
        Shared(torch.zeros(3), object())


def test_a_model_that_diverges_stops_the_peer() -> None:
    wild = Trained(MODEL, 1)
    with pytest.raises(PrivacyError, match="finite"):
        wild.descend(released(torch.full((SIZE,), 3e38)), 10.0)


# -- SYNC ------------------------------------------------------------------------------------------


def test_sync_is_the_step_then_the_mean_of_all() -> None:
    net = Net(4, "complete", sync=True, learning_rate=0.2, apart=False, **EXACT)
    start = net.peers["peer-0"].trained.params
    steps = [_value(p.gradient(start)) for p in net.peers.values()]
    for name in net.peers:
        net.step(name)
    while net.flying:
        net.deliver()
    models = [p.trained.params for p in net.peers.values()]
    assert torch.allclose(models[0], start - 0.2 * torch.stack(steps).mean(0), atol=1e-4)
    assert all(torch.equal(models[0], model) for model in models)  # to the bit


def test_sync_waits_for_the_slowest_and_asks_for_what_was_lost() -> None:
    net = Net(3, "complete", sync=True, apart=False, learning_rate=0.1)
    for _ in range(3):
        for name in ("peer-0", "peer-1"):
            net.step(name)
    assert [p.steps for p in net.peers.values()] == [1, 1, 0]
    net.flying.clear()  # everything is lost
    net.step("peer-2")
    net.flying.clear()
    net.settle()
    assert [p.version for p in net.peers.values()] == [3, 3, 3]
    assert len({tuple(p.trained.params.tolist()) for p in net.peers.values()}) == 1


def test_sync_outlives_a_crash_of_any_worker_at_any_point_to_the_same_bits() -> None:
    chooser = Chooser(3)
    net = Net(3, "complete", sync=True, apart=False, learning_rate=0.1)
    for _ in range(60):
        for name in net.peers:
            net.step(name)
            if chooser.random() < 0.3:
                net.restart(name)
        while net.flying:
            if chooser.random() < 0.2:
                net.flying.pop(0)
            else:
                net.deliver(crash=chooser.random() < 0.1)
        net.settle()
    models = {tuple(p.trained.params.tolist()) for p in net.peers.values()}
    assert len(models) == 1
    assert len({p.round for p in net.peers.values() if isinstance(p, SyncPeer)}) == 1


def test_sync_who_comes_late_asks_before_its_own_step_for_what_was_said_without_it() -> None:
    # Given a peer that said its share of the first round when nobody was there,
    first, late = (make(name, PAIR, sync=True) for name in ("peer-0", "peer-1"))
    params, _ = first.begin()
    assert params is not None
    first.finish(first.gradient(params))
    # when another comes, then it asks for that at once, and has all that the round needs with its
    # own step.
    (request,) = late.repeat(["peer-0"])
    assert request == Outgoing("peer-0", Missing("peer-1", 0))
    (reply,) = first.hear(Missing("peer-1", 0))
    assert isinstance(reply.message, Share)
    late.hear(reply.message)
    assert late.repeat(["peer-0"]) == []
    params, _ = late.begin()
    assert params is not None
    late.finish(late.gradient(params))
    assert isinstance(late, SyncPeer)
    assert late.round == 1


def test_sync_shares_of_other_rounds_and_strangers_change_nothing() -> None:
    sync = make("peer-0", PAIR, sync=True)
    for message in (
        Share("peer-1", 7, torch.ones(SIZE)),
        Share("peer-9", 0, torch.ones(SIZE)),
        Missing("peer-1", 0),
    ):
        assert sync.hear(message) == []
    assert sync.begin()[0] is not None


# -- what a lying neighbour can do -----------------------------------------------------------------


def test_no_counter_is_believed_beyond_t_and_none_of_a_refused_message() -> None:
    receiver = peer(horizon=50)
    receiver.hear(replace(proposal(torch.full((SIZE,), math.inf)), counts={"peer-1": 7}))
    assert receiver.version == 0
    receiver.hear(replace(proposal(torch.zeros(SIZE)), counts={"peer-1": 2**64 - 1, "peer-0": 40}))
    assert receiver.counts["peer-1"] == 50
    assert receiver.steps == 0  # nobody tells it its own
    (report,) = receiver.report()
    assert isinstance(report.message, Report)
    assert report.message.version <= 50


def test_where_peers_say_their_steps_themselves_one_lie_is_worth_a_few_peers_steps() -> None:
    # Given four peers of a run of 4,000 steps, each of which says its own steps,
    names = [f"peer-{number}" for number in range(4)]
    receiver = make("peer-0", build("complete", names), horizon=4000)
    receiver.count_first_hand()
    for name, steps in (("peer-1", 100), ("peer-2", 120)):
        receiver.hear_steps(name, steps)
    receiver.counts["peer-0"] = 110
    # when a neighbour says that all have taken T, in an exchange and of itself,
    receiver.hear(replace(proposal(torch.zeros(SIZE)), counts={"peer-1": 4000, "peer-2": 4000}))
    receiver.hear_steps("peer-3", 2**60)
    # then it is believed three times what the peer in the middle has taken, and of others nothing,
    every = receiver.settings.report_every
    assert receiver.counts["peer-3"] <= 3 * 110 + every
    assert (receiver.counts["peer-1"], receiver.counts["peer-2"]) == (100, 120)
    assert not receiver.finished
    # and honest counters count as they are, however they come.
    for steps in (1300, 1200):
        for name in ("peer-1", "peer-2"):
            receiver.hear_steps(name, steps)
    receiver.counts["peer-0"] = 1300
    receiver.hear_steps("peer-1", 1300)
    assert [receiver.counts[f"peer-{n}"] for n in (1, 2)] == [1300, 1300]
    assert receiver.finished


def test_answers_in_bounds_that_lead_out_of_them_are_refused() -> None:
    proposer = peer()
    for seq in range(1, 5):
        proposer.links["peer-1"].open = False
        proposer.propose()
        proposer.hear(Answer("peer-1", 1, seq, torch.full((SIZE,), -0.9 * LARGEST), {}))
    assert float(proposer.trained.params.abs().max()) <= LARGEST
    assert proposer.refusals > 0


def test_a_neighbour_that_is_gone_or_never_answers_does_not_keep_the_end_from_coming() -> None:
    proposer = peer(horizon=1)
    proposer.propose()
    proposer.counts["peer-1"] = 1
    assert proposer.finished
    assert not proposer.settled
    proposer.here.discard("peer-1")
    assert proposer.settled
    proposer.here.add("peer-1")
    assert not proposer.settled
    proposer.patient = False
    assert proposer.settled
    (report,) = proposer.report()
    assert isinstance(report.message, Report)
    assert report.message.version == 1
    before = proposer.trained.params
    proposer.hear(Answer("peer-1", 1, 1, torch.ones(SIZE), {}))  # late, and still once
    assert torch.equal(proposer.trained.params, before - 1)
