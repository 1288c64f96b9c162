"""FedAsync, FedBuff, FedAvg and SGD against their papers: Algorithm 1 and section 5.2 of FedAsync
line by line.

The mistakes that other systems made are each held off by a test of their own.
"""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tacit_services.journal import snapshot_file as state_file

from tacit.algorithms import registry
from tacit.algorithms.base.server import ServerRole
from tacit.algorithms.fedasync.fedasync_settings import FedAsync
from tacit.algorithms.fedasync.fedavg import AveragingServer
from tacit.algorithms.fedasync.fedbuff import BufferedServer
from tacit.algorithms.fedasync.mixing import MixingServer, staleness_weight
from tacit.privacy.accounting import Spend
from tacit.protocol.messages import EVERYONE, Deadline, Halt, Retired
from tests.helpers.fedasync import MODEL, SIZE, addressees, hello, joined, run_file, server, update

# -- s(t - τ), section 5.2 -------------------------------------------------------------------------


def section_of(staleness: str, a: float = 0.5, b: int = 4) -> FedAsync:
    return FedAsync(name="fedasync", staleness=staleness, a=a, b=b)  # type: ignore[arg-type]


@pytest.mark.parametrize("staleness", ["constant", "polynomial", "hinge"])
def test_a_fresh_update_has_weight_one(staleness: str) -> None:
    assert staleness_weight(0, section_of(staleness)) == 1.0


def test_the_three_weights_by_hand() -> None:
    constant, polynomial, hinge = (
        section_of("constant"),
        section_of("polynomial"),
        section_of("hinge", a=10.0),
    )
    for u in range(30):
        assert staleness_weight(u, constant) == 1.0
        assert staleness_weight(u, polynomial) == pytest.approx((u + 1) ** -0.5)
        assert staleness_weight(u, hinge) == (
            1.0 if u <= 4 else pytest.approx(1 / (10 * (u - 4) + 1))
        )


def test_the_bracket_of_the_hinge_is_where_the_paper_has_it() -> None:
    # 1 / (a·((s - b) + 1)), as one framework has it, would be 0.05.
    assert staleness_weight(5, section_of("hinge", a=10.0, b=4)) == pytest.approx(1 / 11)


# -- Updater ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("section", "weights"),
    [
        ("mixing = 0.9", (0.9, 0.9, 0.9)),
        ('mixing = 0.9\nstaleness = "polynomial"\na = 2.0', (0.9, 0.9 / 9, 0.9 / 4)),
        ('mixing = 0.9\nstaleness = "hinge"\na = 10.0\nb = 1', (0.9, 0.9 / 11, 0.9)),
    ],
)
def test_three_updates_by_hand(section: str, weights: tuple[float, float, float]) -> None:
    # Staleness 0, 2, 1 (two others are mixed in before the second).
    role = joined(server(section=section), "a", "b", "c")
    x = torch.zeros(SIZE, dtype=torch.float64)

    def mixed(edge: str, base: int, value: float, weight: float) -> None:
        nonlocal x
        role.on_message(update(edge, base, value))
        x = (1 - weight) * x + weight * value
        torch.testing.assert_close(role.params.double(), x, rtol=0, atol=1e-6)
        assert role.schedule()["mixing"] == pytest.approx(weight)

    mixed("a", 0, 1.0, weights[0])
    mixed("a", 1, -2.0, weights[0])  # fresh again: α does not compound
    mixed("b", 0, 3.0, weights[1])
    mixed("c", 2, 0.5, weights[2])
    assert role.version == 4
    assert dict(role.staleness) == {0: 2, 2: 1, 1: 1}


def test_alpha_never_compounds() -> None:
    # α·= s(…) gave .9, .1, .0063, .0016, .00006 for staleness 0, 2, 3, 1, 4 in another system: a
    # frozen model.
    role = joined(server(section='mixing = 0.9\nstaleness = "polynomial"\na = 2.0'), "a")
    rates = []
    for version, staleness in enumerate((0, 0, 2, 3, 1, 4)):
        role.on_message(update("a", version - staleness, 1.0))
        rates.append(role.schedule()["mixing"])
    assert rates[1:] == pytest.approx([0.9, 0.1, 0.9 / 16, 0.225, 0.036])


def test_a_model_is_mixed_in_not_added() -> None:
    role = joined(server(section="mixing = 0.25"), "a")
    for version in range(200):
        role.on_message(update("a", version, 5.0))
    assert float(role.params.abs().max()) <= 5.0 + 1e-5  # w += α·w_client grows without end
    torch.testing.assert_close(role.params, torch.full((SIZE,), 5.0))


def test_alpha_decays_after_its_part_of_the_run() -> None:
    role = joined(
        server(section="mixing = 0.8\nmixing_decay = 0.5\nmixing_decay_at = 0.4", updates=10), "a"
    )
    rates = []
    for version in range(10):
        role.on_message(update("a", version, 1.0))
        rates.append(role.schedule()["mixing"])
    assert rates == pytest.approx([0.8] * 4 + [0.4] * 6)


def test_too_stale_is_paid_for_and_not_applied() -> None:
    role = joined(server(section="max_staleness = 2"), "a", "b")
    for version in range(3):
        role.on_message(update("a", version, 1.0))
    before = role.params.clone()
    (again,) = role.on_message(update("b", 0, 9.0))
    assert torch.equal(role.params, before)
    assert (role.stale, role.version, again.to) == (1, 3, "b")
    assert role.edges["b"].spent == (Spend(0.1, 1.0, 1),)


def test_staleness_is_measured_from_the_base_in_the_message_and_survives_a_restart_of_the_edge() -> (
    None
):
    role = joined(server(section='staleness = "polynomial"\nmixing = 1.0\na = 1.0'), "a", "b")
    for version in range(3):
        role.on_message(update("a", version, 0.0))
    joined(role, "b")  # downloads again; what it had under way is as old as before
    role.on_message(update("b", 0, 1.0))
    assert role.schedule()["mixing"] == pytest.approx(1 / 4)


def test_the_end() -> None:
    role = joined(server(updates=2), "a")
    role.on_message(update("a", 0, 1.0))
    (out,) = role.on_message(update("a", 1, 1.0))
    assert (out.to, out.message) == (EVERYONE, Halt(2, "all updates applied"))


# -- Scheduler -------------------------------------------------------------------------------------


def test_without_a_limit_everybody_works_all_the_time() -> None:
    role = server()
    assert addressees(role.on_message(hello("a"))) == ["a"]
    assert addressees(role.on_message(hello("b"))) == ["b"]
    assert addressees(role.on_message(update("a", 0, 1.0))) == ["a"]
    assert role.timer() is None


def test_the_scheduler_triggers_the_longest_idle() -> None:
    role = server(section="concurrency = 2")
    assert [addressees(role.on_message(hello(edge))) for edge in "abcd"] == [["a"], ["b"], [], []]
    assert addressees(role.on_message(update("a", 0, 1.0))) == ["c"]
    assert addressees(role.on_message(update("b", 0, 1.0))) == ["d"]
    assert addressees(role.on_message(update("c", 1, 1.0))) == ["a"]
    assert addressees(role.on_message(hello("a"))) == ["a"]  # it is at work: the same task again
    assert role.on_message(hello("b")) == []


def test_concurrency_bounds_the_staleness() -> None:
    role = server(section="concurrency = 3", count=10)
    base: dict[str, int] = {}
    for number in range(10):
        base |= {out.to: 0 for out in role.on_message(hello(f"e{number}"))}
    generator = torch.Generator().manual_seed(1)
    for _ in range(300):
        edge = sorted(base)[int(torch.randint(len(base), (1,), generator=generator))]
        for out in role.on_message(update(edge, base.pop(edge), 1.0)):
            base[out.to] = role.version
    assert len(base) == 3
    assert min(record.updates for record in role.edges.values()) > 10  # everybody's turn comes
    assert max(role.staleness) < 40


def test_the_task_of_a_dead_worker_is_given_to_another() -> None:
    role = server(section="concurrency = 1\ndeadline_s = 7.0")
    joined(role, "dead", "b")
    timer = role.timer()
    assert timer is not None
    assert timer.seconds == 7.0
    assert role.on_message(Deadline(timer.number)) == []  # it has not had a whole period yet
    assert role.on_message(Deadline(timer.number)) == []  # an old timer
    again = role.timer()
    assert again is not None
    assert addressees(role.on_message(Deadline(again.number))) == ["b"]
    role.on_message(update("b", 0, 1.0))
    role.on_message(update("dead", 0, 1.0))  # it lived: what it sends still counts
    assert role.version == 2


def test_a_retired_worker_makes_room() -> None:
    role = joined(server(section="concurrency = 1"), "a", "b")
    assert addressees(role.on_message(Retired("a", "spent", ()))) == ["b"]


# -- FedBuff ---------------------------------------------------------------------------------------


def test_fedbuff_by_hand() -> None:
    section = 'buffer = 2\nserver_rate = 0.5\nstaleness = "polynomial"\na = 0.5'
    role = joined(server("fedbuff", section), "a", "b")
    role.on_message(update("a", 0, 1.0))
    assert role.version == 0
    assert torch.equal(role.params, torch.zeros(SIZE))
    role.on_message(
        update("a", 0, 3.0)
    )  # the same version still: fresh, weight 1, not 1/(1 + √1) nor 1/√2
    torch.testing.assert_close(role.params, torch.full((SIZE,), 0.5 * (1.0 + 3.0) / 2))
    assert role.version == 1
    role.on_message(update("b", 0, 2.0))  # one version old
    role.on_message(update("a", 1, 1.0))
    torch.testing.assert_close(
        role.params, torch.full((SIZE,), 1.0 + 0.5 * (2.0 / 2**0.5 + 1.0) / 2)
    )
    assert role.version == 2


def test_fedbuff_takes_distances_to_the_base_not_to_the_current_model() -> None:
    # Two edges, both from version 0; the second arrives after the model has moved. Its distance is
    # its own.
    role = joined(server("fedbuff", "buffer = 1\nstaleness = 'constant'"), "a", "b")
    base = role.params.clone()
    role.on_message(update("a", 0, torch.full((SIZE,), 4.0) - base))
    role.on_message(update("b", 0, torch.full((SIZE,), 6.0) - base))
    torch.testing.assert_close(
        role.params, torch.full((SIZE,), 10.0)
    )  # 6 if taken against the current model


# -- FedAvg ----------------------------------------------------------------------------------------


def test_fedavg_averages_those_it_asked() -> None:
    role = server("fedavg", "clients = 2", count=4)
    outgoing = [role.on_message(hello(edge)) for edge in "abcd"]
    assert outgoing[:3] == [[], [], []]
    chosen = addressees(outgoing[3])
    assert len(chosen) == 2
    first, second = chosen
    assert role.on_message(update(first, 0, 1.0)) == []
    then = role.on_message(update(second, 0, 3.0))
    torch.testing.assert_close(role.params, torch.full((SIZE,), 2.0))
    assert role.version == 1
    assert len(addressees(then)) == 2


def test_every_worker_is_chosen_about_as_often() -> None:
    role = server("fedavg", "clients = 10", count=40)
    addressed: list[str] = []
    for number in range(40):
        addressed += addressees(role.on_message(hello(f"e{number}")))
    chosen: dict[str, int] = {}
    for _ in range(200):
        now, addressed = addressed, []
        for edge in now:
            chosen[edge] = chosen.get(edge, 0) + 1
            addressed += addressees(role.on_message(update(edge, role.version, 1.0)))
    assert len(chosen) == 40
    assert 20 < min(chosen.values()) <= max(chosen.values()) < 85  # 50 expected, std 6


def test_the_average_does_not_depend_on_the_order_of_arrival() -> None:
    values = {
        edge: torch.randn(SIZE, generator=torch.Generator().manual_seed(n))
        for n, edge in enumerate("abcd")
    }
    models = []
    for order in ("abcd", "dcba", "cadb"):
        role = joined(server("fedavg"), *"abcd")
        for edge in order:
            role.on_message(update(edge, 0, values[edge]))
        models.append(role.params)
    assert torch.equal(models[0], models[1])
    assert torch.equal(models[0], models[2])


def test_a_dead_worker_does_not_block_a_round_and_is_not_asked_again() -> None:
    role = joined(server("fedavg", "deadline_s = 5.0\nquorum = 0.5"), *"abcd")
    for edge in "abc":
        role.on_message(update(edge, 0, 1.0))
    timer = role.timer()
    assert timer is not None
    assert timer.seconds == 5.0
    then = role.on_message(Deadline(timer.number))
    assert role.version == 1
    assert addressees(then) == ["a", "b", "c"]
    for edge in "abc":
        role.on_message(update(edge, 1, 2.0))
    assert role.version == 2  # nobody waited for d
    assert role.schedule()["absent"] == 1
    role.on_message(update("d", 0, 9.0))  # too late, but alive
    assert role.stale == 1
    for edge in "abc":
        then = role.on_message(update(edge, 2, 2.0))
    assert addressees(then) == ["a", "b", "c", "d"]


def test_below_the_quorum_others_are_asked_and_nothing_is_averaged() -> None:
    role = joined(server("fedavg", "clients = 2\nquorum = 1.0", count=3), *"abc")
    assert isinstance(role, AveragingServer)
    first, second = role.asked
    role.on_message(update(first, 0, 1.0))
    timer = role.timer()
    assert timer is not None
    (spare,) = {"a", "b", "c"} - {first, second}
    assert addressees(role.on_message(Deadline(timer.number))) == [spare]
    assert role.version == 0
    role.on_message(update(spare, 0, 5.0))
    torch.testing.assert_close(role.params, torch.full((SIZE,), 3.0))


def test_an_edge_counts_once_a_round() -> None:
    role = joined(server("fedavg"), *"abcd")
    role.on_message(update("a", 0, 1.0))
    assert role.on_message(update("a", 0, 100.0)) == []
    assert role.stale == 1
    for edge in "bcd":
        role.on_message(update(edge, 0, 1.0))
    torch.testing.assert_close(role.params, torch.ones(SIZE))


def test_a_round_does_not_wait_for_a_retired_edge() -> None:
    role = joined(server("fedavg"), *"abcd")
    for edge in "abc":
        role.on_message(update(edge, 0, 1.0))
    role.on_message(Retired("d", "spent", ()))
    assert role.version == 1


def test_the_first_round_begins_without_those_who_never_come() -> None:
    role = joined(server("fedavg", "deadline_s = 3.0"), "a", "b", "c")
    timer = role.timer()
    assert timer is not None
    assert addressees(role.on_message(Deadline(timer.number))) == ["a", "b", "c"]
    assert addressees(role.on_message(hello("d"))) == ["d"]  # and it may still join


# -- restarts --------------------------------------------------------------------------------------


@settings(max_examples=60, deadline=None)
@given(
    st.sampled_from(
        [
            ("fedasync", 'concurrency = 2\nstaleness = "polynomial"'),
            ("fedbuff", "buffer = 3"),
            ("fedavg", ""),
            ("fedavg", "clients = 2\nquorum = 1.0"),
            ("dp-pasgd", ""),
        ]
    ),
    st.lists(
        st.tuples(st.sampled_from(["hello", "update", "deadline", "retired"]), st.integers(0, 3)),
        max_size=40,
    ),
    st.data(),
)
def test_a_restart_at_any_point_gives_the_same_bits(
    which: tuple[str, str], events: list[tuple[str, int]], data: st.DataObject
) -> None:
    name, section = which
    unbroken, cut = server(name, section), data.draw(st.integers(0, len(events)))
    halves = server(name, section)
    for role, breaks in ((unbroken, False), (halves, True)):
        for place, event in enumerate(events):
            if (
                breaks and place == cut
            ):  # through the bytes of a snapshot, into a new process's role
                tensors, values = state_file.loads(state_file.dumps(*role.state()))
                role = server(name, section)
                role.restore(tensors, values)
            happen(role, *event, place)
        if breaks:
            halves = role
    assert torch.equal(unbroken.params, halves.params)
    assert unbroken.state()[1] == halves.state()[1]


def happen(role: ServerRole, kind: str, number: int, place: int) -> None:
    edge = f"edge-{number}"
    if kind == "hello":
        role.on_message(hello(edge))
    elif kind == "retired":
        role.on_message(Retired(edge, "spent", ()))
    elif kind == "deadline":
        timer = role.timer()
        role.on_message(Deadline(timer.number if timer else 0))
    elif edge in role.edges:
        role.on_message(update(edge, max(0, role.version - place % 3), float(place)))


def test_sgd_is_one_worker_whose_model_replaces_the_other() -> None:
    role = registry.server(run_file("sgd", "mixing = 1.0\nsteps_min = 1", count=1).define(), MODEL)
    assert isinstance(role, MixingServer)
    joined(role, "a")
    role.on_message(update("a", 0, 4.0))
    assert torch.equal(role.params, torch.full((SIZE,), 4.0))


def test_the_roles_are_what_their_names_say() -> None:
    assert type(server("fedasync")) is MixingServer
    assert type(server("fedbuff")) is BufferedServer
    assert type(server("fedavg")) is AveragingServer
