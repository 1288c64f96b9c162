"""The server's guard over a real broker.

What it refuses is in no journal, and honest edges do not notice it.
"""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest
from tacit_services.aggregator.api.operator import Operator
from tacit_services.aggregator.api.routes import create_app
from tacit_services.aggregator.reporting.run_status import RunStatus
from tacit_services.transport.flood_limit import FRUITLESS_AT_ONCE

from tacit.algorithms.mapa.mapa import MapaServer
from tacit.config import sections
from tacit.protocol import topics, wire, wire_up
from tacit.protocol._pb import wire_pb2 as pb
from tacit.protocol.messages import Update
from tests.golden.harness import sha256
from tests.helpers.processes import refold
from tests.helpers.rest import TOKEN, serving
from tests.helpers.rig import STATUS, Hostile, Message, Rig, run_file
from tests.helpers.servers import PATIENCE, Mosquitto, wait_for

Guarded = Callable[..., Rig]


@pytest.fixture
def guarded(broker: Mosquitto, request: pytest.FixtureRequest) -> Iterator[Guarded]:
    """Yield a function that serves a driver with this [guard]."""
    rigs: list[Rig] = []

    def make(
        updates: int = 1000, clock: Callable[[], float] = time.monotonic, **section: float
    ) -> Rig:
        run = run_file(updates=updates).model_copy(
            update={"guard": sections.Guard.model_validate(section)}
        )
        name = f"guard-{abs(hash(request.node.name))}"
        rig = Rig(run, f"{broker.host}:{broker.port}", name, clock=clock)
        rig.serve()
        rigs.append(rig)
        return rig

    yield make
    for rig in rigs:
        rig.close()
        assert not rig.failures


def known(rig: Rig, name: str) -> Hostile:
    caller = Hostile(rig, name)
    assert caller.hello() == STATUS.ACCEPTED
    return caller


def delivered(caller: Hostile) -> None:
    """Wait until the broker has all that it has published."""
    assert caller.connection._newest is not None
    caller.connection._newest.wait_for_publish(PATIENCE)


def resent(caller: Hostile, message: Message) -> int:
    """Return the status of `message`, which is sent again and again as an edge's client does.

    What comes before the subscription to it is lost.
    """
    statuses: list[int] = []

    def answered() -> bool:
        (payload,) = caller.parts(message)
        caller.publish(message.seq, payload)
        with contextlib.suppress(TimeoutError):
            statuses.append(int(caller.receipt(message.seq, 1.0).status))
        return bool(statuses)

    wait_for(answered)
    return statuses[0]


def reason(caller: Hostile, value: float, base: int | None = None) -> str:
    """Return the reason in the answer to an update of this value in every coordinate."""
    message = caller.update(value, base=base)
    message.meta.update.clip = 1e5  # what the edge says it clipped to does not help it
    caller.publish(message.seq, caller.parts(message)[0])
    return str(caller.receipt(message.seq).reason)


def test_an_update_too_long_to_be_honest_is_not_in_the_journal(guarded: Guarded) -> None:
    rig = guarded(norm_factor=1.0)
    edge = known(rig, "edge-0")
    (payload,) = edge.parts(edge.update(1.0))
    bound = bound_of(rig, received(rig, payload))
    longest = bound / rig.model.size**0.5
    assert edge.said(edge.update(0.999 * longest)) == STATUS.ACCEPTED
    before = rig.fold()
    assert reason(edge, 1.001 * longest) == "norm"
    assert reason(edge, -1e30) == "norm"
    assert rig.fold() == before
    assert rig.live.counts["rejected:norm"] == 2
    journal = [record.payload for record in rig.store.read(0, 100)]
    assert len(journal) == 2
    assert sha256(refold(rig.run, journal)[0]) == before[1]
    edge.connection.stop()


def received(rig: Rig, payload: bytes) -> Update:
    """Return the update in one part, as the driver reads it."""
    message = wire_up.read_up(
        wire.decode(bytearray(payload[wire.PART_HEADER :])), rig.schema, rig.model.size
    )
    assert isinstance(message, Update)
    return message


def bound_of(rig: Rig, update: Update) -> float:
    return rig.live.guard.bound(update.edge, update.base_version, update.vector.numel())


def test_what_an_edge_says_of_itself_moves_no_number_of_the_run(
    guarded: Guarded, tmp_path: Path
) -> None:
    # Given a run with honest edges, one of which has pushed,
    rig = guarded(quarantine_after=1)
    edges = [known(rig, f"edge-{number}") for number in range(2)]
    assert edges[0].said(edges[0].update()) == STATUS.ACCEPTED
    with rig.live.lock:
        before = rig.live.role.schedule()
    # when one of them, one in quarantine and one that nobody knows say that they are all noise, and
    # of another δ,
    assert reason(edges[1], -1e30) == "norm"
    liars = [edges[0], Hostile(rig, "edge-7"), Hostile(rig, "stranger")]
    for liar in liars:
        known_name = liar.edge in rig.live.names
        claims = {
            "epsilon": 1e300,
            "delta": 0.9,
            "noise_variance": 1e308,
            "clip_min": 1e-300,
            "clip_max": 1e308,
        }
        status = STATUS.ACCEPTED if known_name else STATUS.REJECTED
        assert liar.said(liar.greeting(mechanism="none", **claims)) == status
    # then the next step is as long as it was, also for who folds the journal,
    with rig.live.lock:
        assert rig.live.role.schedule() == before
    assert edges[0].said(edges[0].update()) == STATUS.ACCEPTED
    again, _ = refold(rig.run, [record.payload for record in rig.store.read(0, 100)])
    assert sha256(again) == sha256(rig.live.role)
    # and the report says of them what the run file does.
    privacy = rig.run.privacy
    for row in RunStatus(rig.run.define(), rig.live, tmp_path / "metrics.jsonl").edges():
        assert (row["delta"], row["budget"], row["mechanism"]) == (
            privacy.delta,
            privacy.epsilon,
            privacy.mechanism,
        )
        assert row["clip"] == [privacy.clip_min, privacy.clip_max]
    for caller in {*edges, *liars}:
        caller.connection.stop()


def test_who_is_quick_cannot_say_that_it_is_slow(guarded: Guarded) -> None:
    # Given an edge whose updates come one after the other, and another,
    rig = guarded()
    quick, other = known(rig, "edge-0"), known(rig, "edge-1")
    for _ in range(6):
        assert quick.said(quick.update()) == STATUS.ACCEPTED
    with rig.live.lock:
        before = rig.live.role.schedule()["learning_rate"]
    # when it says that it has worked on the first model all the time, which would make everybody's
    # steps a seventh,
    assert reason(quick, 1e-3, base=0) == "version"
    # then no step is shorter; what it was sent after its last message but one it may still have.
    with rig.live.lock:
        assert rig.live.role.schedule()["learning_rate"] == before
    late = quick.update(base=4)
    assert quick.said(late) == STATUS.ACCEPTED
    # Who has been silent as long is believed, and a message that was accepted is known again.
    assert other.said(other.update(base=0)) == STATUS.ACCEPTED
    for _ in range(3):
        assert quick.said(quick.update()) == STATUS.ACCEPTED
    assert quick.said(late) == STATUS.DUPLICATE
    for caller in (quick, other):
        caller.connection.stop()


def test_without_a_guard_only_what_no_training_makes_is_refused(guarded: Guarded) -> None:
    rig = guarded()
    edge = known(rig, "edge-0")
    assert not rig.run.guard.active
    assert reason(edge, -1e30) == "norm"
    assert edge.said(edge.update(-9e5)) == STATUS.ACCEPTED
    assert float(rig.live.role.params.abs().max()) > 5e4
    edge.connection.stop()


def test_honest_edges_complete_under_the_tightest_guard(guarded: Guarded, tmp_path: Path) -> None:
    rig = guarded(updates=80, norm_factor=1.0, quarantine_after=1, rate=1000.0, burst=100)
    for number in range(2):
        rig.edge(number, tmp_path)
    assert rig.finished().version == 80
    assert rig.live.counts["rejected:norm"] == 0


def test_an_edge_that_sends_too_often_is_told_to_wait_and_its_resends_are_not(
    guarded: Guarded,
) -> None:
    now = [0.0]
    rig = guarded(rate=2.0, burst=3, clock=lambda: now[0])
    edge, other = known(rig, "edge-0"), known(rig, "edge-1")
    assert [edge.said(edge.update()) for _ in range(2)] == [STATUS.ACCEPTED] * 2
    late = edge.update()
    (payload,) = edge.parts(late)
    edge.publish(late.seq, payload)
    receipt = edge.receipt(late.seq)
    assert receipt.status == STATUS.BUSY
    assert 0 < receipt.retry_after_s <= 0.5
    assert rig.live.counts["throttled"] == 1
    # A resend of what was accepted is answered at once; another edge is served.
    again = edge.update()
    again.seq, edge.seq = late.seq - 1, late.seq
    assert edge.said(again) == STATUS.DUPLICATE
    assert other.said(other.update()) == STATUS.ACCEPTED

    # And in time the same bytes are taken.
    now[0] += 0.5
    assert edge.said(late) == STATUS.ACCEPTED
    for caller in (edge, other):
        caller.connection.stop()


def test_quarantine_is_shown_and_ends_by_an_operator_or_a_restart(
    guarded: Guarded, tmp_path: Path
) -> None:
    # Given an edge that was refused three times,
    rig = guarded(norm_factor=1.0, quarantine_after=3)
    edge, other = known(rig, "edge-0"), known(rig, "edge-1")
    rig.live.presence["edge-0"] = "online"
    assert [reason(edge, 1e9) for _ in range(3)] == ["norm"] * 3
    # then nothing more is taken of it, not even a Hello (a model would cost it budget for nothing),
    before = rig.fold()
    assert reason(edge, 0.0) == "quarantined"
    assert edge.said(edge.greeting()) == STATUS.REJECTED
    assert rig.fold() == before
    # while others are served, and what it has spent in the end is heard.
    assert other.said(other.update()) == STATUS.ACCEPTED
    operator, run_status = (
        Operator(TOKEN),
        RunStatus(rig.run.define(), rig.live, tmp_path / "metrics.jsonl"),
    )
    rig.idle = lambda: operator.enter(rig.driver)
    with (
        serving(create_app(run_status, operator, rig.model), operator) as url,
        httpx.Client(base_url=url, trust_env=False, timeout=PATIENCE) as web,
    ):
        assert web.get("/v1/edges/edge-0").json()["state"] == "quarantined"
        assert "tacit_edges_quarantined 1.0" in web.get("/metrics").text
        # When an operator releases it, it works again.
        bearer = {"Authorization": f"Bearer {TOKEN}"}
        assert web.post("/v1/edges/edge-0/release").status_code == 401
        assert web.post("/v1/edges/edge-0/release", headers=bearer).json()["released"] is True
        assert web.post("/v1/edges/edge-0/release", headers=bearer).status_code == 404
        assert web.get("/v1/edges/edge-0").json()["state"] == "online"
    assert edge.said(edge.update()) == STATUS.ACCEPTED
    # And a restart forgets.
    assert [reason(edge, 1e9) for _ in range(4)] == ["norm"] * 3 + ["quarantined"]
    assert edge.said(edge.message(pb.Meta(retired=pb.Retired(reason="enough")))) == STATUS.ACCEPTED
    rig.restart()
    assert edge.said(edge.update()) == STATUS.ACCEPTED
    for caller in (edge, other):
        caller.connection.stop()


def test_clip_is_what_the_server_asked_for_with_that_model(guarded: Guarded) -> None:
    rig = guarded(norm_factor=1.0)
    edge = known(rig, "edge-0")
    (payload,) = edge.parts(edge.update(1.0, base=0))
    update, role = received(rig, payload), rig.live.role
    assert isinstance(role, MapaServer)
    first, factor = bound_of(rig, update), role.algorithm.reduction
    with rig.live.lock:
        for role.version in (10, 11, 15):
            role._next_stage()
        tensors, values = role.state()
        role.restore(tensors, json.loads(json.dumps(values)))
        for version, stages in ((9, 0), (10, 1), (11, 2), (14, 2), (15, 3), (16, 3)):
            bound = rig.live.guard.bound("edge-0", version, update.vector.numel())
            assert bound == pytest.approx(first * factor**stages)
    edge.connection.stop()


def test_a_flood_is_dropped_at_the_door_and_others_are_served(guarded: Guarded) -> None:
    # Given a rate of 5 updates a second, and an edge that sends a thousand without waiting for an
    # answer,
    rig = guarded(rate=5.0, burst=5)
    limiter = rig.live.limiter
    flooding, honest = known(rig, "edge-0"), known(rig, "edge-1")
    payload = flooding.parts(flooding.update())[0]
    for _ in range(1000):
        flooding.publish(flooding.seq, payload)
    # then another is served, and most of the flood is neither answered nor read, and soon not even
    # delivered.
    assert honest.said(honest.update()) == STATUS.ACCEPTED
    wait_for(lambda: limiter.shut() == {"edge-0"})
    assert limiter.dropped > 200
    assert rig.live.role.edges["edge-0"].updates == 1
    assert rig.live.counts["throttled"] < 100
    flooding.connection.stop()
    honest.connection.stop()


def test_who_only_begins_messages_is_shut_out_without_a_guard(guarded: Guarded) -> None:
    # Given no rate, and an edge that sends questions after messages that it never sends,
    rig = guarded()
    limiter = rig.live.limiter
    idle, honest = known(rig, "edge-0"), known(rig, "edge-1")
    question = wire.question(bytes(idle.parts(idle.update())[0]), 1024)
    for number in range(FRUITLESS_AT_ONCE + 1000):
        idle.publish(idle.seq + 1 + number, question)
    # then it is not even delivered any more, and another is served.
    wait_for(lambda: limiter.shut() == {"edge-0"})
    assert honest.said(honest.update()) == STATUS.ACCEPTED
    idle.connection.stop()
    honest.connection.stop()


def test_at_the_end_the_last_account_of_one_that_was_shut_out_is_heard(guarded: Guarded) -> None:
    # Given an edge that has flooded and is not heard, and has spent more than the aggregator knows,
    now = [0.0]
    rig = guarded(updates=1, rate=5.0, burst=5, clock=lambda: now[0])
    limiter = rig.live.limiter
    flooding, honest = known(rig, "edge-0"), known(rig, "edge-1")
    for edge in ("edge-0", "edge-1"):
        flooding.connection.publish(topics.presence(rig.run_id, edge), b"online", retain=True)
    payload = flooding.parts(flooding.update())[0]
    for _ in range(500):
        flooding.publish(7, payload)
    wait_for(lambda: limiter.shut() == {"edge-0"})
    delivered(flooding)
    spent = rig.live.role.edges["edge-0"].spent
    assert honest.said(honest.update()) == STATUS.ACCEPTED  # the last update of the run
    # then its farewell is taken all the same.
    flooding.receive("halt")  # said once everybody is heard again
    now[0] += 1.0  # shut out still, but what it says has room at the door again
    account = pb.Retired(reason="the end")
    account.spent.append(pb.Spend(sampling_rate=0.1, noise_multiplier=1.0, count=9))
    assert flooding.said(flooding.message(pb.Meta(retired=account))) == STATUS.ACCEPTED
    assert rig.live.role.edges["edge-0"].spent != spent
    flooding.connection.stop()
    honest.connection.stop()


def test_who_goes_on_flooding_is_not_even_delivered_and_newcomers_are_heard(
    guarded: Guarded,
) -> None:
    # Given an edge that goes on long after its messages are dropped, until the broker is told to
    # keep them,
    now = [0.0]
    rig = guarded(rate=5.0, burst=5, clock=lambda: now[0])
    limiter = rig.live.limiter
    flooding, honest = known(rig, "edge-0"), known(rig, "edge-1")
    payload = flooding.parts(flooding.update())[0]
    for _ in range(500):
        flooding.publish(flooding.seq, payload)
    wait_for(lambda: limiter.shut() == {"edge-0"})
    wait_for(lambda: rig.connection.listening == frozenset(rig.live.subscriptions()))
    delivered(flooding)
    assert (
        honest.said(honest.update()) == STATUS.ACCEPTED
    )  # which came after all that the broker had for us
    dropped = limiter.dropped
    for _ in range(500):
        flooding.publish(flooding.seq, payload)
    delivered(flooding)
    # then nothing of it comes any more, while whoever comes is heard;
    late = Hostile(rig, "edge-2")
    late.connection.publish(topics.presence(rig.run_id, "edge-2"), b"online", retain=True)
    wait_for(lambda: rig.live.presence.get("edge-2") == "online")
    assert resent(late, late.greeting()) == STATUS.ACCEPTED
    assert honest.said(honest.update()) == STATUS.ACCEPTED
    assert limiter.dropped == dropped
    # and when its time is over, everybody is heard again, itself included.
    now[0] += 11.0
    wait_for(lambda: topics.up_all(rig.run_id) in rig.connection.listening)
    assert resent(flooding, flooding.update()) == STATUS.ACCEPTED
    for caller in (flooding, honest, late):
        caller.connection.stop()
