"""A member is revoked while runs train: it is out at once, and nobody else notices.

The seconds and rates that docs/federation.md has are printed (`pytest -rP`).
"""

from __future__ import annotations

import json
import signal
import statistics
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
from tacit_services.enrollment.acl import aggregator_name
from tacit_services.transport.mqtt import Connection

from tacit.protocol import topics
from tests.helpers.federation import Host, Member, endless_run, federation
from tests.helpers.federation_broker import Federation, Heard, connected, meet
from tests.helpers.servers import PATIENCE, wait_for
from tests.system.federation.test_federation import BY_POLICY

RUN = "long"
LOST = "connection lost"
REVOKED = 20  # members, one after the other
PASSING = 500  # messages in a window
MEASURED = 40  # updates of the others in a window: of seconds, as a shared machine is unsteady


@contextmanager
def stubborn(host: Host, site: Member) -> Iterator[Connection]:
    """Yield a connection with a member's certificate, which comes again whenever it ends."""
    connection = Connection(host.address, "stubborn", [], lambda _: None, tls=site.tls)
    connection.start(PATIENCE)
    try:
        yield connection
    finally:
        connection.stop()


def when_down(connection: Connection) -> float:
    """Return when a connection has ended, in seconds since 1970."""
    wait_for(lambda: not connection.up)
    return time.time()


def listed(host: Host) -> list[dict[str, Any]]:
    """Return the members, as the host lists them."""
    words = ("members", "list", "--federation", host.place, "--json")
    content: dict[str, list[dict[str, Any]]] = json.loads(host.tacit(*words))
    return content["members"]


def rate(host: Host, edges: set[str]) -> float:
    """Return updates of `edges` a second, from now on."""
    first = len(host.journalled(RUN))
    began = time.monotonic()

    def count() -> int:
        return sum(edge in edges for edge, _ in host.accepted(RUN, first))

    host.wait(lambda: count() >= MEASURED)
    return count() / (time.monotonic() - began)


@pytest.mark.exhaustive
def test_who_is_revoked_is_out_and_the_others_train_on(tmp_path: Path) -> None:
    with federation(tmp_path, members=3) as (host, sites):
        # Given: a run, and a member whose process of it nobody ends but the broker
        for site in sites:
            site.join(host, BY_POLICY)
        run = endless_run(tmp_path, count=3)
        host.tacit("submit", run, "--name", RUN, "--federation", host.place)
        *others, outcast = sites
        ids = {site.identity for site in others}
        host.wait_run(RUN, lambda stands: stands["applied"] > 0)
        host.wait(lambda: {edge for edge, _ in host.accepted(RUN)} == ids | {outcast.identity})
        assert outcast.joined is not None
        outcast.joined.send_signal(signal.SIGSTOP)
        broker = host.broker_pid()
        lost = [site.work_log(RUN).count(LOST) for site in others]
        before = [rate(host, ids) for _ in range(3)]
        # When
        with stubborn(host, outcast) as connection, ThreadPoolExecutor() as aside:
            ended = aside.submit(when_down, connection)
            began = time.time()
            host.tacit("members", "revoke", outcast.name, "--federation", host.place)
            out = ended.result(PATIENCE)
            wait_for(lambda: LOST in outcast.work_log(RUN))
            # Then
            sent = len(host.accepted(RUN))
            after = [rate(host, ids) for _ in range(3)]
            late = host.accepted(RUN)[sent:]
            assert late
            assert {edge for edge, _ in late} <= ids
            assert not connection.up
            assert connection.connects == 1
        assert host.broker_pid() == broker
        assert [site.work_log(RUN).count(LOST) for site in others] == lost
        (heard,) = (
            member["revoked"] for member in listed(host) if member["id"] == outcast.identity
        )
        print(  # noqa: T201
            f"the connection ended {out - heard:.2f} s after the host was told, {out - began:.2f} s "
            "after the command was given; updates of the others a second, in windows: "
            f"{', '.join(f'{each:.2f}' for each in before)} before, "
            f"{', '.join(f'{each:.2f}' for each in after)} after; "
            f"after/before: {sum(after) / sum(before):.2f}"
        )
        outcast.joined.send_signal(signal.SIGCONT)
        host.wait(lambda: outcast.joined is not None and outcast.joined.poll() is not None)
        assert "was revoked" in outcast.text("join.log")


@pytest.mark.exhaustive
def test_what_others_send_passes_as_quickly_while_members_are_revoked(tmp_path: Path) -> None:
    scene = Federation(tmp_path)
    names = [f"edge-{number}" for number in range(1, 1 + REVOKED)]
    topic = topics.up_numbered("r", "edge-0")
    try:
        for name in ("edge-0", *names):
            scene.rules.open("r", name)
        with (
            connected(scene, aggregator_name("r"), topics.up_all("r")) as (_, heard),
            connected(scene, "edge-0") as (witness, _),
            ExitStack() as held,
            ThreadPoolExecutor() as aside,
        ):
            edges = [held.enter_context(connected(scene, name))[0] for name in names]
            meet(witness, topic, heard)
            ratios: list[tuple[float, float]] = []
            for name, edge in zip(names, edges, strict=True):
                before = passing(witness, topic, heard)
                scene.authority.revoke(name)
                revoking = aside.submit(scene.rules.disconnect, name)
                during = passing(witness, topic, heard)
                revoking.result(PATIENCE)
                wait_for(lambda edge=edge: not edge.up)  # type: ignore[misc]
                after = passing(witness, topic, heard)
                ratios.append((during / before, after / before))
            assert witness.connects == 1
    finally:
        scene.end()
    during, after = (statistics.median(column) for column in zip(*ratios, strict=True))
    print(  # noqa: T201
        f"{REVOKED} members revoked: messages of another a second, over those before: "
        f"{during:.2f} meanwhile, {after:.2f} after (medians)"
    )


def passing(sender: Connection, topic: str, heard: Heard) -> float:
    """Return how many messages a second pass, each sent when the one before has come."""
    began = time.monotonic()
    for _ in range(PASSING):
        sender.publish(topic, b"passing")
        heard.next()
    return PASSING / (time.monotonic() - began)
