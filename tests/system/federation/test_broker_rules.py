"""A federation's broker: who may say and hear what, while consents come and go and it is killed."""

from __future__ import annotations

import ssl
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from tacit_services.enrollment import certificates
from tacit_services.enrollment.acl import acl_of_federation, aggregator_name
from tacit_services.enrollment.authority import CertificateAuthority
from tacit_services.federation.broker import FederationBroker
from tacit_services.federation.broker_rules import BrokerRules
from tacit_services.transport.mqtt import Connection
from tacit_services.transport.tls import Tls

from tacit.errors import ServiceError
from tacit.protocol import topics
from tests.helpers.federation_broker import UP, Federation, arrives, connected, meet
from tests.helpers.servers import HOST, PATIENCE, need, wait_for


@pytest.fixture
def federation(tmp_path: Path) -> Iterator[Federation]:
    need("mosquitto")
    opened = Federation(tmp_path)
    yield opened
    opened.end()


def test_a_member_talks_in_a_run_that_it_has_consented_to_and_says_nothing_else(
    federation: Federation,
) -> None:
    # Given two runs, one member in both, one in the first only,
    federation.rules.open("r", "edge-0")
    federation.rules.open("s", "edge-0")
    federation.rules.open("r", "edge-1")
    everything = [topics.up_all("r"), topics.up_all("s"), topics.presence_all("s")]
    with ExitStack() as stack:
        enter = stack.enter_context
        _, at_r = enter(connected(federation, aggregator_name("r"), *UP))
        _, at_s = enter(connected(federation, aggregator_name("s"), *everything))
        first, _ = enter(connected(federation, "edge-0"))
        second, _ = enter(connected(federation, "edge-1"))
        # then both reach the first run's aggregator, and one the second's,
        own, other = topics.up_numbered("r", "edge-1"), topics.up_numbered("s", "edge-0")
        assert arrives(second, own, at_r, own)
        assert arrives(first, other, at_s, other)
        # but nobody another's topics, another run's, or what is the aggregator's,
        for topic in (
            topics.up_numbered("r", "edge-0"),
            topics.presence("r", "edge-0"),
            topics.up("r", "edge-1", 7, 0),
            topics.model("r"),
            topics.down("r", "edge-0", "model"),
        ):
            assert not arrives(second, topic, at_r, own), topic
        first.publish(topics.up_numbered("s", "edge-1"), b"forged")
        second.publish(topics.up_numbered("s", "edge-1"), b"not consented")
        second.publish(topics.presence("s", "edge-1"), b"not consented")
        second.publish("$CONTROL/dynamic-security/v1", b'{"commands":[{"command":"listRoles"}]}')
        assert arrives(second, own, at_r, own)
        # and the second run's aggregator, which asks for all of both, hears of its own only.
        assert arrives(first, other, at_s, other)


def test_a_member_hears_what_is_for_it_and_no_other_run_or_member(federation: Federation) -> None:
    federation.rules.open("r", "edge-0")
    federation.rules.open("r", "edge-1")
    federation.rules.open_run("s")
    foreign = [
        topics.down_all("r", "edge-1"),
        topics.up_all("r"),
        topics.presence_all("r"),
        topics.model("s"),
        topics.down_all("s", "edge-0"),
        "$CONTROL/dynamic-security/v1/response",
        "$SYS/#",
        "#",
    ]
    own = [topics.model("r"), topics.down_all("r", "edge-0")]
    with ExitStack() as stack:
        enter = stack.enter_context
        aggregator, _ = enter(connected(federation, aggregator_name("r"), *UP))
        other, _ = enter(connected(federation, aggregator_name("s")))
        edge, heard = enter(connected(federation, "edge-0", *own, *foreign))
        wait_for(lambda: edge.refused == frozenset(foreign))
        other.publish(topics.model("s"), b"secret", retain=True)
        other.publish(topics.model("r"), b"forged", retain=True)
        aggregator.publish(topics.down("r", "edge-1", "model"), b"for another")
        aggregator.publish(topics.model("r"), b"announced", retain=True)
        aggregator.publish(topics.down("r", "edge-0", "model"), b"for edge-0")
        assert [heard.next(), heard.next()] == [b"announced", b"for edge-0"]


def test_after_a_withdrawal_nothing_passes_and_a_new_consent_opens_it_again(
    federation: Federation,
) -> None:
    federation.rules.open("r", "edge-0")
    federation.rules.open("r", "edge-1")
    own, other = topics.up_numbered("r", "edge-0"), topics.up_numbered("r", "edge-1")
    with ExitStack() as stack:
        enter = stack.enter_context
        aggregator, at_r = enter(connected(federation, aggregator_name("r"), *UP))
        edge, heard = enter(connected(federation, "edge-0", topics.down_all("r", "edge-0")))
        witness, told = enter(connected(federation, "edge-1", topics.down_all("r", "edge-1")))
        assert arrives(edge, own, at_r, own)
        # When the owner withdraws,
        federation.rules.close("r", "edge-0")
        # then the aggregator is told, and nothing passes in either direction.
        assert at_r.next() == b"left"
        wait_for(lambda: edge.up and edge.refused == frozenset(edge.listening))
        edge.publish(own, b"tried")
        aggregator.publish(topics.down("r", "edge-0", "model"), b"tried")
        aggregator.publish(topics.down("r", "edge-1", "model"), b"a model")
        assert told.next() == b"a model"
        witness.publish(other, b"allowed")
        assert at_r.next() == b"allowed"
        assert heard.messages.empty()
        # When the owner consents again, it is as before.
        federation.rules.open("r", "edge-0")
        meet(edge, own, at_r)
        meet(aggregator, topics.down("r", "edge-0", "model"), heard)


def test_rules_outlive_a_kill_of_the_broker_and_change_while_it_is_dead(
    federation: Federation,
) -> None:
    federation.rules.open("r", "edge-0")
    federation.rules.open("r", "edge-1")
    own, other = topics.up_numbered("r", "edge-0"), topics.up_numbered("r", "edge-1")
    with ExitStack() as stack:
        enter = stack.enter_context
        _, at_r = enter(connected(federation, aggregator_name("r"), *UP))
        edge, _ = enter(connected(federation, "edge-0"))
        withdrawn, _ = enter(connected(federation, "edge-1"))
        # What the plugin has written is cut off by the crash, too.
        (federation.folder / "broker" / "dynamic-security.json").write_text("{")
        federation.kill()
        meet(edge, own, at_r)
        meet(withdrawn, other, at_r)
        federation.rules.close("r", "edge-1")
        assert at_r.next() == b"left"
        federation.kill()
        before = withdrawn.connects
        meet(edge, own, at_r)
        wait_for(lambda: withdrawn.up and withdrawn.connects > before - 1)
        withdrawn.publish(other, b"tried")
        assert arrives(edge, own, at_r, own)


def test_rules_outlive_their_host(tmp_path: Path) -> None:
    first = Federation(tmp_path)
    first.rules.open("r", "edge-0")
    first.rules.open("r", "edge-1")
    first.rules.close("r", "edge-1")
    first.end()
    second = Federation(tmp_path)
    try:
        assert second.rules.runs() == {"r": ("edge-0",)}
        own = topics.up_numbered("r", "edge-0")
        with (
            connected(second, aggregator_name("r"), *UP) as (_, at_r),
            connected(second, "edge-1") as (withdrawn, _),
            connected(second, "edge-0") as (edge, _),
        ):
            withdrawn.publish(topics.up_numbered("r", "edge-1"), b"tried")
            assert arrives(edge, own, at_r, own)
    finally:
        second.end()


def test_a_run_that_is_over_leaves_nothing_at_the_broker(federation: Federation) -> None:
    federation.rules.open("r", "edge-0")
    own = topics.up_numbered("r", "edge-0")
    with ExitStack() as stack:
        enter = stack.enter_context
        aggregator, at_r = enter(connected(federation, aggregator_name("r"), *UP))
        edge, _ = enter(connected(federation, "edge-0"))
        aggregator.publish(topics.model("r"), bytes(1000), retain=True)
        edge.publish(topics.presence("r", "edge-0"), b"online", retain=True)
        assert at_r.next() == b"online"
        federation.rules.close_run("r")
        assert federation.rules.runs() == {}
        wait_for(lambda: edge.up and aggregator.up)
        edge.publish(own, b"tried")
        # When a run of this name is opened again, it begins with nothing.
        federation.rules.open("r", "edge-0")
        _, fresh = enter(connected(federation, "edge-0", topics.model("r")))
        _, at_new = enter(connected(federation, aggregator_name("r"), *UP))
        meet(edge, own, at_new)
        meet(aggregator, topics.model("r"), fresh)
        assert not [m for m in at_new.seen if m in (b"tried", b"online")]
        assert bytes(1000) not in fresh.seen


def test_who_was_revoked_is_thrown_out_and_does_not_get_in_again(federation: Federation) -> None:
    federation.rules.open("r", "edge-0")
    federation.rules.open("s", "edge-0")
    federation.rules.open("r", "edge-1")
    own, other = topics.up_numbered("r", "edge-0"), topics.up_numbered("r", "edge-1")
    with (
        connected(federation, aggregator_name("r"), *UP) as (_, at_r),
        connected(federation, "edge-1") as (witness, _),
        connected(federation, "edge-0") as (edge, _),
    ):
        assert arrives(edge, own, at_r, own)
        federation.authority.revoke("edge-0")
        federation.rules.disconnect("edge-0")
        assert federation.rules.runs() == {"r": ("edge-1",), "s": ()}
        assert at_r.next() == b"left"
        wait_for(lambda: not edge.up)
        edge.publish(own, b"too late")
        assert not gets_in(federation, "edge-0")
        # Nobody else has noticed.
        assert arrives(witness, other, at_r, other)
        assert (edge.connects, witness.connects) == (1, 1)
        federation.kill()
        meet(witness, other, at_r)
        assert not gets_in(federation, "edge-0")
        assert b"too late" not in at_r.seen


def gets_in(federation: Federation, name: str) -> bool:
    tls = federation.tls(name)
    connection = Connection(federation.address, "again", [], lambda _: None, tls=tls)
    try:
        connection.start(1.0)
    except ServiceError:
        return False
    connection.stop()
    return True


@pytest.mark.parametrize("runs", [(), ("r",), ("r", "s")])
def test_who_was_revoked_is_thrown_out_however_many_runs_it_was_let_in_to(
    federation: Federation, runs: tuple[str, ...]
) -> None:
    for run in runs:
        federation.rules.open(run, "edge-0")
    with (
        connected(federation, "edge-0") as (revoked, _),
        connected(federation, "edge-1") as (other, _),
    ):
        federation.authority.revoke("edge-0")
        federation.rules.disconnect("edge-0")
        wait_for(lambda: not revoked.up)
        federation.rules.disconnect("edge-0")  # again, as after an answer that was lost
        assert (revoked.connects, other.connects, other.up) == (1, 1, True)


def test_a_rule_that_holds_already_disconnects_nobody(federation: Federation) -> None:
    federation.rules.open("r", "edge-0")
    with connected(federation, "edge-0") as (edge, _):
        federation.rules.open("r", "edge-0")
        federation.rules.open_run("r")
        federation.rules.close("r", "edge-7")
        federation.rules.close_run("unknown")
        federation.rules.open("r", "edge-2")
        assert edge.connects == 1
    federation.rules.close("r", "edge-0")
    federation.rules.close("r", "edge-0")
    assert federation.rules.runs() == {"r": ("edge-2",)}


def test_nobody_takes_over_a_session_by_its_name(federation: Federation) -> None:
    # Given an edge, and a member that connects under its id, as one may that writes its own client,
    federation.rules.open("r", "edge-0")
    federation.rules.open("r", "edge-1")
    own = topics.up_numbered("r", "edge-0")
    edge, thief = (
        Connection(federation.address, "r-edge-0", [], lambda _: None, tls=federation.tls(name))
        for name in ("edge-0", "edge-1")
    )
    thief._client._client_id = b"r-edge-0"
    with connected(federation, aggregator_name("r"), *UP) as (_, at_r):
        edge.start(PATIENCE)
        thief.start(PATIENCE)
        # then the edge goes on undisturbed.
        assert arrives(edge, own, at_r, own)
        assert edge.connects == 1
        thief.stop()
        edge.stop()


def test_strangers_do_not_get_in(federation: Federation, tmp_path: Path) -> None:
    other = CertificateAuthority.create(tmp_path / "other")
    stranger = other.issue("edge-0")
    tls = Tls(federation.authority.folder / "ca.crt", stranger / "tls.crt", stranger / "tls.key")
    for access in (tls, None):
        connection = Connection(federation.address, "x", [], lambda _: None, tls=access)
        with pytest.raises(ServiceError):
            connection.start(1.0)


def test_a_broker_that_is_away_leaves_the_rule_for_its_next_start(tmp_path: Path) -> None:
    federation = Federation(tmp_path)
    impatient = BrokerRules(
        federation.broker._kept, federation.address, federation.tls("host"), lambda: None, 1.0
    )
    federation.children[0].stop()
    with pytest.raises(ServiceError, match="holds from the broker's next start on"):
        impatient.open("r", "edge-0")
    impatient.stop()
    federation.end()
    assert federation.rules.runs() == {"r": ("edge-0",)}


def test_the_certificate_is_for_the_hosts_name(federation: Federation) -> None:
    again = FederationBroker(
        federation.folder / "broker", federation.authority, ["fed.example.org", HOST]
    )
    assert again is not None
    context = ssl.create_default_context(cafile=federation.authority.folder / "ca.crt")
    assert context.cert_store_stats()["x509_ca"] == 1
    newest = federation.authority.issued("broker")[-1]
    assert "fed.example.org" in certificates.hosts(newest)


def test_an_organisations_own_broker_gets_the_same_rules_as_text() -> None:
    text = acl_of_federation({"r": ["edge-0"], "s": []})
    assert "user aggregator-r\n" in text
    assert "user aggregator-s\n" in text
    assert "topic write tacit/v1/r/up/edge-0/0/0\n" in text
    assert "tacit/v1/s/up/edge-0" not in text
