"""VAFL against its paper.

There is one test per equation, line of Algorithms 1 and 2, update rule and theorem's step size.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from tacit.algorithms.vafl import vertical_settings
from tacit.algorithms.vafl.centralised import centralised
from tacit.algorithms.vafl.label_server import LabelServer
from tacit.algorithms.vafl.step_rules import batch_rows
from tacit.privacy.release.embeddings import EmbeddingPlan
from tacit.protocol.messages import EVERYONE, Deadline, Halt, Hello, Retired, Update
from tacit.protocol.vertical import Feedback, Request, Roster, UploadPart
from tests.helpers.vafl_rig import World, blocks, part_of, run_file, table, take, uploads, world

FRESH = EmbeddingPlan("fresh", 1.0, 5.0, 1e6, 1e-5)
PROTOCOL = vertical_settings.vertical(run_file().define()).protocol
CACHED = EmbeddingPlan("cached", 1.0, 5.0, 1e6, 1e-5)


def loss_at(server: LabelServer, params: Tensor, h: Tensor, rows: Tensor) -> Tensor:
    """Return ℓ of eq. (1) for the sum head: the mean of -ln softmax(Σ_m h_m + θ_0)[y]."""
    scores = h.sum(1) + params
    right = scores[torch.arange(len(rows)), server.labelled.labels[rows]]
    return (scores.exp().sum(1).log() - right).mean()


def first_upload(world: World) -> Update:
    return next(uploads(world))


def vectors(message: Update) -> Tensor:
    return message.vector.view(len(part_of(message).rows), -1)


# -- the problem -----------------------------------------------------------------------------------


def test_eq_1_with_linear_embeddings_is_logistic_regression_on_all_features() -> None:
    federation = world().after_tables()
    server, rows = federation.server, torch.arange(50)
    x, _, _ = table("digits", None)
    weights, bias = torch.zeros(10, 64), torch.zeros(10)
    for number, party in enumerate(federation.parties.values()):
        parts = dict(zip(("w", "b"), torch.split(party.theta, [160, 10]), strict=True))
        weights[:, 16 * number : 16 * number + 16] = parts["w"].view(10, 16)
        bias += parts["b"]
    expected = x[:50].flatten(1) @ weights.T + bias + server.params
    assert torch.allclose(server.scores(rows), expected, atol=1e-5)


def test_eq_1_each_client_has_its_own_regularizer() -> None:
    plain, penalised = world(), world(regularization=0.5)
    for federation in (plain, penalised):
        federation.after_tables()
    before = {name: party.theta for name, party in penalised.parties.items()}
    for federation in (plain, penalised):
        federation.deliver(take(federation, first_upload(federation)))
    name = next(name for name, party in plain.parties.items() if party.step == 2)
    difference = plain.parties[name].theta - penalised.parties[name].theta
    assert torch.allclose(
        difference, 0.5 * 0.5 * before[name], atol=1e-6
    )  # η·λ·θ_m of (4a), η = 0.5


# -- Algorithm 1 -----------------------------------------------------------------------------------


def test_line_1_every_model_has_its_own_beginning() -> None:
    federation = world()
    thetas = [party.theta for party in federation.parties.values()]
    assert all(
        not torch.equal(theta, other) for theta in thetas for other in thetas if theta is not other
    )
    again = world()
    assert all(
        torch.equal(federation.parties[n].theta, again.parties[n].theta) for n in federation.parties
    )
    assert torch.equal(federation.server.params, torch.zeros(10))


def test_line_4_an_epoch_takes_every_record_once_in_an_order_of_its_own() -> None:
    first = [batch_rows(PROTOCOL, 0, step, 320) for step in range(1, 11)]
    second = [batch_rows(PROTOCOL, 0, step, 320) for step in range(11, 21)]
    assert torch.equal(torch.cat(first).sort().values, torch.arange(320))
    assert torch.equal(torch.cat(second).sort().values, torch.arange(320))
    assert not torch.equal(torch.cat(first), torch.cat(second))
    assert all(
        torch.equal(batch, batch_rows(PROTOCOL, 0, step, 320))
        for step, batch in enumerate(first, 1)
    )


def test_line_4_parties_choose_without_coordination_unless_synchronous() -> None:
    assert not torch.equal(batch_rows(PROTOCOL, 0, 1, 320), batch_rows(PROTOCOL, 1, 1, 320))
    together = vertical_settings.vertical(run_file(synchronous=True).define()).protocol
    assert torch.equal(batch_rows(together, 0, 1, 320), batch_rows(together, 1, 1, 320))


def test_line_5_an_upload_is_h_of_the_chosen_records_and_of_no_other() -> None:
    federation = world().after_tables()
    server, message = federation.server, first_upload(federation)
    party = federation.parties[message.edge]
    assert torch.equal(
        part_of(message).rows, batch_rows(PROTOCOL, party.number, 1, server.labelled.records)
    )
    x, _, _ = table("digits", None)
    expected = party.embedding.embed(party.theta, blocks(x, 4)[party.number][part_of(message).rows])
    assert torch.allclose(vectors(message), expected, atol=1e-6)
    before = server.table.clone()
    federation.deliver(replace(take(federation, message), vector=message.vector + 1))
    moved = (server.table - before).abs().sum(2) > 0
    expected_moves = torch.zeros_like(moved)
    expected_moves[part_of(message).rows, server.place(message.edge)] = True
    assert torch.equal(moved, expected_moves)


def test_eqs_2a_2b_both_gradients_are_at_theta_0_k_and_the_table_as_it_is() -> None:
    federation = world().after_tables()
    server = federation.server
    for _ in range(5):  # entries of several ages
        federation.deliver(federation.under_way.pop(0))
    message = federation.under_way.pop(0)
    assert isinstance(message, Update)
    params, h = server.params.clone().requires_grad_(), server.table[part_of(message).rows].clone()
    h[:, server.place(message.edge)] = vectors(message)
    h.requires_grad_()
    torch.autograd.backward(loss_at(server, params, h, part_of(message).rows))
    before = server.params
    (reply,) = federation.deliver(message)
    assert params.grad is not None
    assert h.grad is not None
    assert torch.allclose(server.params, before - 0.5 * params.grad, atol=1e-6)  # line 10
    assert reply.to == message.edge  # line 13: to the client that asked
    assert isinstance(reply.message, Feedback)
    assert reply.message.gradient is not None
    assert torch.allclose(reply.message.gradient, h.grad[:, server.place(message.edge)], atol=1e-7)


def test_eq_4b_the_other_clients_stay_as_they_are() -> None:
    federation = world().after_tables()
    before = {name: party.theta for name, party in federation.parties.items()}
    message = take(federation, first_upload(federation))
    federation.deliver(message)
    assert [name for name in before if federation.parties[name].theta is not before[name]] == [
        message.edge
    ]


@settings(max_examples=20, deadline=None)
@given(order=st.integers(0, 10**6), steps=st.integers(1, 40))
def test_eq_3_the_delay_recursion(order: int, steps: int) -> None:
    federation = world(run_file(updates=10**6), data=small()).after_tables()
    server = federation.server
    everything = torch.arange(server.labelled.records)
    delays = torch.zeros(server.labelled.records, 4, dtype=torch.int64)
    assert torch.equal(server.delays(everything), delays)
    chosen = torch.Generator().manual_seed(order)
    for _ in range(steps):
        place = int(torch.randint(len(federation.under_way), (1,), generator=chosen))
        message = federation.under_way.pop(place)
        assert isinstance(message, Update)
        federation.deliver(message)
        delays += 1  # τ_{n,m}^{k+1} = τ_{n,m}^k + 1 …
        delays[part_of(message).rows, server.place(message.edge)] = (
            1  # … but 1 for m = m_k, n = n_k
        )
        assert torch.equal(server.delays(everything), delays)


def small() -> tuple[Tensor, Tensor, int]:
    x, y, _ = table("digits", None, 128)
    return x[:160], y[:160], 128


def test_lines_2_and_14_it_ends_after_k_iterations_and_says_so_to_everyone() -> None:
    federation = world(run_file(updates=7)).start()
    server = federation.run()
    assert (server.version, server.halt_reason) == (7, "all updates applied")
    late = Update("edge-0", 7, torch.ones(30), 1.0, (), part=UploadPart(9, 0, torch.arange(3)))
    assert server.screen(late) == "halted"
    server.on_message(late)
    assert server.version == 7
    (hello,) = federation.parties["edge-0"].start()
    assert isinstance(hello.message, Hello)
    (reply,) = server.on_message(hello.message)
    assert reply.message == Halt(7, "all updates applied")


def test_nothing_begins_before_every_table_is_there() -> None:
    federation = world()
    names = list(federation.parties)
    for name in names:
        federation.say(federation.parties[name].start())
    hellos, federation.under_way = federation.under_way, []
    for hello in hellos:
        (reply,) = federation.deliver(hello)
        assert isinstance(reply.message, Roster)
    tables, federation.under_way = federation.under_way, []
    replies = [federation.deliver(message) for message in tables]
    assert [len(reply) for reply in replies] == [0, 0, 0, 4]
    assert {out.to for out in replies[-1]} == set(names)
    assert federation.server.version == 0


# -- Algorithm 2 and the other update rules --------------------------------------------------------


def test_algorithm_2_waits_for_t_clients_and_answers_each_of_them() -> None:
    federation = world(run_file(t=3)).after_tables()
    server = federation.server
    before = server.params
    batch = [take(federation, message) for message in list(uploads(federation))[:3]]
    assert federation.deliver(batch[0]) == federation.deliver(batch[1]) == []
    assert torch.equal(server.params, before)
    replies = federation.deliver(batch[2])
    assert [out.to for out in replies] == [message.edge for message in batch]
    assert server.version == 1  # one iteration for the t of them
    mean = (
        sum(server_gradient(server, before, part_of(message).rows) for message in batch) / 3
    )  # appendix D: 1/t Σ
    assert torch.allclose(server.params, before - 0.5 * mean, atol=1e-6)
    for out, message in zip(replies, batch, strict=True):
        assert isinstance(out.message, Feedback)
        assert (out.message.step, out.message.iteration) == (part_of(message).step, 0)


def server_gradient(server: LabelServer, params: Tensor, rows: Tensor) -> Tensor:
    leaf = params.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(loss_at(server, leaf, server.table[rows], rows), leaf)
    return gradient


def test_algorithm_2_with_t_1_is_algorithm_1() -> None:
    waiting, plain = (world(settings_).start().run(3) for settings_ in (run_file(t=1), run_file()))
    assert torch.equal(waiting.params, plain.params)


def test_t_synchronous_with_common_batches_and_t_m_is_centralised_sgd() -> None:
    federation = world(run_file(synchronous=True, updates=60), regularization=0.01).start()
    protocol = federation.server.protocol
    assert (protocol.t, protocol.coordinated) == (4, True)
    federation.run(2)
    x, y, records = table("digits", None)
    views = [view[:records] for view in blocks(x, 4)]
    models = [party.embedding for party in federation.parties.values()]
    params, thetas = centralised(
        protocol, 60, models, federation.server.head, views, y[:records], 0.01
    )
    assert torch.allclose(federation.server.params, params, atol=1e-4)
    # The run ends with the 60th update of θ_0; the parties' 60th is still on its way.
    previous = centralised(protocol, 59, models, federation.server.head, views, y[:records], 0.01)[
        1
    ]
    for party, theta, after in zip(federation.parties.values(), previous, thetas, strict=True):
        assert torch.allclose(party.theta, theta, atol=1e-4)
        assert not torch.allclose(party.theta, after, atol=1e-4)


@settings(max_examples=5, deadline=None)
@given(order=st.integers(0, 10**6), bound=st.integers(2, 12), t=st.integers(1, 3))
def test_bounded_delay_no_entry_older_than_d_is_ever_used(order: int, bound: int, t: int) -> None:
    used: list[int] = []

    class Watched(LabelServer):
        def _iterate(self, group: Any) -> Any:
            used.append(max(int(self.delays(rows).max()) for _, _, rows in group))
            return super()._iterate(group)

    federation = world(run_file(algorithm=f"max_delay = {bound}", updates=30, t=t), data=small())
    federation.server.__class__ = Watched
    server = federation.start().run(order)
    assert server.version == 30  # and it never waits for ever
    assert max(used) <= bound
    assert server.requests.issued > 0 or max(used) < bound


def test_without_a_bound_old_entries_are_used() -> None:
    federation = world(run_file(updates=60), data=small())
    server = federation.start().run(1)
    assert int(server.delays(torch.arange(server.labelled.records)).max()) > 30
    assert server.requests.issued == 4  # of the evaluation at the end


def test_bounded_delay_the_server_waits_for_the_fresh_ones_then_goes_on() -> None:
    federation = world(run_file(algorithm="max_delay = 1")).after_tables()
    server = federation.server
    for _ in range(2):
        federation.deliver(federation.under_way.pop(0))
    message = federation.under_way.pop(0)
    replies = federation.deliver(message)  # delays of 2 > D at the other parties
    addressees = {out.to for out in replies}
    assert message.edge not in addressees
    assert all(isinstance(out.message, Request) for out in replies)
    assert server.version == 2
    refreshed = [m for m in federation.under_way if isinstance(m, Update) and part_of(m).request]
    assert {m.edge for m in refreshed} == addressees
    for m in refreshed:
        federation.deliver(take(federation, m))
    assert server.version == 3
    assert not server.requests.waiting()


# -- who fails, repeats or leaves ------------------------------------------------------------------


def test_an_answer_that_comes_twice_is_used_once() -> None:
    federation = world(plan=FRESH).after_tables()
    message = take(federation, first_upload(federation))
    party = federation.parties[message.edge]
    (reply,) = federation.deliver(message)
    theta, charged = party.theta, party.releaser.ledger.charged()
    assert isinstance(reply.message, Feedback)
    assert party.on_message(reply.message) == []
    assert torch.equal(party.theta, theta)
    assert party.releaser.ledger.charged() == charged


def test_a_roster_or_a_request_that_comes_twice_is_answered_once() -> None:
    federation = world(plan=FRESH).after_tables()
    party = federation.parties["edge-0"]
    assert (
        party.on_message(
            Roster(federation.server.labelled.names, federation.server.labelled.records)
        )
        == []
    )
    assert len(party.on_message(Request(5, torch.arange(3)))) == 1
    assert party.on_message(Request(5, torch.arange(3))) == []
    assert party.on_message(Request(4, torch.arange(3))) == []


def test_a_party_that_asks_again_gets_the_same_answer_and_none_while_it_is_waited_for() -> None:
    federation = world(run_file(t=2)).after_tables()
    server, (first, second) = federation.server, list(uploads(federation))[:2]
    for message in (first, second):
        take(federation, message)
    federation.deliver(first)
    assert server.answer(first.edge) == []  # its upload waits for a second
    replies = federation.deliver(second)
    assert [server.answer(out.to)[0].message for out in replies] == [out.message for out in replies]


def test_a_party_that_retires_is_not_waited_for() -> None:
    federation = world(run_file(t=4)).after_tables()
    batch = list(uploads(federation))
    for message in batch[:3]:
        assert federation.deliver(take(federation, message)) == []
    take(federation, batch[3])
    replies = federation.deliver(Retired(batch[3].edge, "its budget is spent", ()))
    assert [out.to for out in replies] == [message.edge for message in batch[:3]]
    assert federation.server.version == 1


def test_when_every_party_has_retired_the_run_is_over() -> None:
    federation = world().after_tables()
    server = federation.server
    for name in federation.parties:
        replies = server.on_message(Retired(name, "its budget is spent", ()))
    assert [out.to for out in replies] == [EVERYONE]
    assert server.halt_reason == "every party has retired"


def test_a_party_too_many_is_told_so() -> None:
    federation = world().after_tables()
    (out,) = federation.parties["edge-0"].start()
    assert isinstance(out.message, Hello)
    (reply,) = federation.server.on_message(replace(out.message, edge="stranger"))
    assert reply.message == Halt(0, "this run has its 4 parties")
    assert "stranger" not in federation.server.edges


# -- perturbed embeddings in the protocol ----------------------------------------------------------


def test_a_frozen_party_learns_nothing_and_is_sent_no_gradient() -> None:
    federation = world(plan=FRESH, combine="concat", width=4)
    before = {name: party.theta for name, party in federation.parties.items()}
    server = federation.start().run()
    assert server.version == 200
    assert all(federation.parties[name].theta is theta for name, theta in before.items())
    assert all(answer.gradient is None for answer in server.answers.values())
    assert not torch.equal(server.params, torch.zeros_like(server.params))


def test_a_cached_release_is_made_once_whatever_the_number_of_epochs() -> None:
    federation = world(plan=CACHED, combine="concat", width=4).start()
    server = federation.run()
    assert server.version == 200
    assert all(party.releaser.ledger.charged().count == 1 for party in federation.parties.values())


def test_the_smoothing_neurons_are_the_same_in_an_upload_and_in_its_gradient() -> None:
    federation = world(kind="mlp", hidden=(5,), smoothing=0.5).after_tables()
    party = federation.parties["edge-1"]
    message = next(m for m in uploads(federation) if m.edge == "edge-1")
    assert torch.equal(party._embed(party.theta, part_of(message).rows), vectors(message))


# -- evaluation ------------------------------------------------------------------------------------


def test_an_evaluation_sees_fresh_embeddings_of_rows_that_are_not_trained_on() -> None:
    federation = world(run_file(updates=30, every=10)).start()
    server = federation.server
    federation.run(until=lambda: server.evaluation.latest is not None)
    assert server.evaluation.latest is not None
    version, params, embeddings = server.evaluation.latest
    assert 10 <= version < 30
    assert torch.equal(params, server.params) or version < server.version
    assert embeddings.x.shape == (20, 4, 10)
    federation.run()
    assert server.halt_reason == "all updates applied"
    assert server.evaluation.latest[0] == 30
    assert len(server.evaluation.latest[2]) == len(server.labelled.names) - server.labelled.records
    x, y, records = table("digits", None)
    for party in federation.parties.values():
        expected = party.embedding.embed(party.theta, blocks(x, 4)[party.number][records:])
        assert torch.allclose(
            server.evaluation.latest[2].x[:, server.place(party.edge)], expected, atol=1e-5
        )
    assert torch.equal(server.evaluation.latest[2].y, y[records:])


def test_the_last_evaluation_does_not_wait_for_ever() -> None:
    federation = world(run_file(updates=5)).start()
    server = federation.server
    federation.run(until=lambda: server.version == 5)
    assert not server.halted
    timer = server.timer()
    assert timer is not None
    assert server.on_message(Deadline(timer.number - 1)) == []
    (out,) = server.on_message(Deadline(timer.number))
    assert out.message == Halt(5, "all updates applied")


# -- the role in a driver --------------------------------------------------------------------------


def test_a_snapshot_at_any_point_goes_on_to_the_same_bits() -> None:
    settings_ = run_file(updates=24, every=8, t=2, algorithm="max_delay = 6")
    broken = world(settings_, data=small()).start()
    drawn = 0
    while broken.under_way and not broken.server.halted:
        message = broken.under_way[drawn % len(broken.under_way)]
        take(broken, message)
        broken.deliver(message)
        drawn += 7
        tensors, values = broken.server.state()
        again = world(settings_, data=small()).server
        again.restore(
            {name: tensor.clone() for name, tensor in tensors.items()},
            json.loads(json.dumps(values)),
        )
        # The latest evaluation is kept for showing only.
        again.evaluation.latest = broken.server.evaluation.latest
        broken.server = again
    assert broken.server.version == 24
    assert broken.server.halted
    unbroken = world(settings_, data=small()).start()
    drawn = 0
    while unbroken.under_way and not unbroken.server.halted:
        message = unbroken.under_way[drawn % len(unbroken.under_way)]
        take(unbroken, message)
        unbroken.deliver(message)
        drawn += 7
    assert torch.equal(unbroken.server.params, broken.server.params)
    assert torch.equal(unbroken.server.table, broken.server.table)


def test_a_party_restored_between_any_two_messages_goes_on_to_the_same_bits() -> None:
    unbroken, restarted = world().after_tables(), world().after_tables()
    for _ in range(6):
        for federation in (unbroken, restarted):
            federation.deliver(federation.under_way.pop(0))
        for name, party in restarted.parties.items():
            tensors, values = party.state()
            fresh = world().parties[name]
            fresh.restore(tensors, json.loads(json.dumps(values)))
            restarted.parties[name] = fresh
    assert all(
        torch.equal(unbroken.parties[name].theta, party.theta)
        for name, party in restarted.parties.items()
    )
    assert torch.equal(unbroken.server.params, restarted.server.params)


@pytest.mark.parametrize(
    ("part", "numbers", "reason"),
    [
        (UploadPart(1, 0, torch.tensor([3, 3])), 20, "rows"),
        (UploadPart(1, 0, torch.tensor([10**6])), 10, "rows"),
        (UploadPart(1, 0, torch.tensor([], dtype=torch.int64)), 0, "rows"),
        (UploadPart(1, 0, torch.tensor([1, 2])), 19, "shape"),
        (None, 10, "kind"),
        (UploadPart(1, 0, torch.tensor([1, 2])), 20, None),
        (UploadPart(1, 0, torch.tensor([1, 2])), 0, None),
    ],
)
def test_what_is_no_upload_never_enters_the_journal(
    part: UploadPart | None, numbers: int, reason: str | None
) -> None:
    server = world().after_tables().server
    assert server.screen(Update("edge-0", 0, torch.ones(numbers), 1.0, (), part=part)) == reason
    assert (
        server.screen(Update("stranger", 0, torch.ones(numbers), 1.0, (), part=part)) == "unknown"
    )


# -- what it reaches -------------------------------------------------------------------------------


def reference(
    federation: World, horizon: int, views: list[Tensor], y: Tensor, penalty: float
) -> float:
    """Return the accuracy of the centralised model on the rows behind the training records."""
    server, models = federation.server, [party.embedding for party in federation.parties.values()]
    records = server.labelled.records
    params, thetas = centralised(
        server.protocol,
        horizon,
        models,
        server.head,
        [v[:records] for v in views],
        y[:records],
        penalty,
    )
    h = torch.stack(
        [
            e.embed(theta, view[records:])
            for e, theta, view in zip(models, thetas, views, strict=True)
        ],
        1,
    )
    return float((server.head.logits(params, h).argmax(1) == y[records:]).float().mean())


@pytest.mark.exhaustive
def test_parkinsons_over_three_parties_reaches_the_centralised_model(
    data_root: Path | None,
) -> None:
    if data_root is None:
        pytest.skip("no real data")
    data = table("pd-speech", data_root)
    settings_ = run_file(updates=900, batch=20.0, parties=3, rate=0.003)
    federation = world(settings_, data=data, width=2, regularization=0.001).start()
    federation.run()
    central = reference(
        federation, 300, blocks(data[0], 3), data[1], 0.001
    )  # as many steps as each party took
    assert federation.accuracy() > central - 0.01
    assert central > 0.7


@pytest.mark.exhaustive
@pytest.mark.parametrize(("t", "updates"), [(1, 3000), (3, 1500), (7, 1500)])
def test_mnist_over_seven_parties_reaches_the_centralised_model(
    data_root: Path | None, t: int, updates: int
) -> None:
    data = table("mnist", data_root or pytest.skip("no real data"), 20_000)
    federation = world(
        run_file(updates=updates, t=t, batch=200.0, parties=7), data=data, regularization=0.001
    ).start()
    federation.run()
    central = reference(federation, 1500, blocks(data[0], 7), data[1], 0.001)
    assert federation.accuracy() > central - 0.01 > 0.87
