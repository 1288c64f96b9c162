"""A federation's broker as its host has it, and clients of it."""

from __future__ import annotations

import itertools
import os
import queue
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tacit_services.children.processes import Child, restart_if_dead
from tacit_services.enrollment.authority import CertificateAuthority
from tacit_services.federation.broker import FederationBroker
from tacit_services.federation.broker_rules import BrokerRules
from tacit_services.federation.file_rules import FileRules
from tacit_services.transport.mqtt import Connection, Inbound
from tacit_services.transport.tls import Tls

from tacit.protocol import topics
from tests.helpers.servers import HOST, PATIENCE, wait_for

_CLIENTS = itertools.count()
UP = [topics.up_all("r"), topics.presence_all("r")]


class Federation:
    """A broker as a host has it, and whoever connects to it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        if (folder / "ca" / "ca.crt").exists():
            self.authority = CertificateAuthority(folder / "ca")
        else:
            self.authority = CertificateAuthority.create(folder / "ca")
        self.children: list[Child] = []
        self.broker = FederationBroker(folder / "broker", self.authority, [HOST])
        self.address = self.broker.start(self.children).address
        self.rules: BrokerRules | FileRules = self.broker.rules()

    def tls(self, name: str) -> Tls:
        folder = self.authority.folder / name
        if not folder.exists():
            self.authority.issue(name)
        return Tls(folder / "ca.crt", folder / "tls.crt", folder / "tls.key")

    def kill(self) -> None:
        """Kill the broker, and start it again as the host's supervisor does."""
        (child,) = self.children
        assert child.process is not None
        os.kill(child.process.pid, signal.SIGKILL)
        wait_for(lambda: child.code() is not None)
        restart_if_dead(child)

    def end(self) -> None:
        self.rules.stop()
        for child in self.children:
            child.stop()


class Heard:
    """What a client hears."""

    def __init__(self) -> None:
        self.messages: queue.SimpleQueue[bytes] = queue.SimpleQueue()
        self.seen: list[bytes] = []

    def __call__(self, inbound: Inbound) -> None:
        self.seen.append(inbound.payload)
        self.messages.put(inbound.payload)
        inbound.done()

    def next(self) -> bytes:
        """Return the payload that comes next."""
        return self.messages.get(timeout=PATIENCE)


@contextmanager
def connected(
    federation: Federation, name: str, *subscriptions: str
) -> Iterator[tuple[Connection, Heard]]:
    heard = Heard()
    own = f"{name}-{next(_CLIENTS)}"  # two of one name are two clients
    connection = Connection(federation.address, own, subscriptions, heard, tls=federation.tls(name))
    connection.start(PATIENCE)
    try:
        yield connection, heard
    finally:
        connection.stop()


def meet(sender: Connection, topic: str, heard: Heard) -> None:
    """Return when what the sender says is heard again, and nothing of before is under way."""
    while True:
        sender.publish(topic, b"are you there")
        try:
            heard.messages.get(timeout=0.3)
            break
        except queue.Empty:
            pass
    sender.publish(topic, b"met")
    while heard.next() != b"met":
        pass


def arrives(sender: Connection, topic: str, heard: Heard, allowed: str) -> bool:
    """Return whether a message passes: it is sent before one that may, on the same connection."""
    sender.publish(topic, b"tried")
    sender.publish(allowed, b"allowed")
    first = heard.next()
    if first == b"tried":
        assert heard.next() == b"allowed"
    return first == b"tried"
