"""Peers over MQTT, and the same peers in process with messages in the same order: the same bits,
message by message.

Recorded is what each peer was told to do and in which order; what messages held is not: it has to
come out again.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from tacit_services.journal.store.append_rules import JournalLimits
from tacit_services.journal.store.memory import MemoryStore
from torch import Tensor

from tacit.algorithms.gossip.adp2sgd import Peer
from tacit.algorithms.gossip.worker import GossipWorker
from tacit.config import RunFile
from tacit.protocol import wire, wire_gossip
from tacit.protocol.messages import Outgoing, PeerMessage
from tests.golden.harness import MqttRun, make_edge
from tests.golden.test_same_bits import keep_journal
from tests.helpers.run_files import Layer, run_file
from tests.helpers.servers import PATIENCE, mosquitto

SEED = 11
RUN: Layer = {
    "run": {"updates": 60},
    "algorithm": {"learning_rate": 0.5, "report_every": 5},
    "privacy": {
        "mechanism": "gaussian",
        "noise_multiplier": 2.0,
        "epsilon": 1000.0,
        "batch": 32,
        "clip": 0.2,
    },
    "edges": {"count": 4},
}
Event = tuple[str, str, frozenset[str], Any]  # peer, what it did, who was there, with what
DOES = ("begin", "finish", "abandon", "hear", "hear_steps", "propose", "repeat")


def digest(message: PeerMessage) -> str:
    """Return the digest of a message as it was received."""
    parts = [type(message).__name__]
    for name in message.__slots__:
        value = getattr(message, name)
        parts.append(value.numpy().tobytes().hex() if isinstance(value, Tensor) else repr(value))
    return hashlib.sha256("/".join(parts).encode()).hexdigest()


class Watched(MqttRun):
    """A record of what every peer does, each under the lock that its driver uses it under.

    Cause comes before effect.
    """

    def __init__(self, run: RunFile, broker: str, folder: Path) -> None:
        store = MemoryStore("peers", JournalLimits(10**6, 1 << 40))
        keep_journal(store)
        super().__init__(run, broker, store, folder, "peers")
        self.log: list[Event] = []
        self.roles: dict[str, GossipWorker] = {}

    def began(self, role: GossipWorker) -> None:
        self.roles[role.edge] = role
        inside = [False]  # what a role makes itself do is not noted: it will again
        for name in DOES:
            setattr(role, name, self._noted(role, name, getattr(role, name), inside))

    def _noted(
        self, role: GossipWorker, name: str, work: Callable[..., Any], inside: list[bool]
    ) -> Callable[..., Any]:
        def noted(*arguments: Any) -> Any:
            if inside[0]:
                return work(*arguments)
            match name:
                case "hear":
                    what: Any = digest(arguments[0])
                case "repeat":
                    what = list(arguments[0])
                case "hear_steps":
                    what = list(arguments)
                case _:
                    what = None
            self.log.append((role.edge, name, frozenset(role.here), what))
            inside[0] = True
            try:
                return work(*arguments)
            finally:
                inside[0] = False

        return noted


def in_process(
    run: RunFile, log: list[Event], watched: dict[str, GossipWorker]
) -> dict[str, GossipWorker]:
    """Run the same peers, which do the same in the same order.

    Every message that a peer hears must have been sent here, too.
    """
    model = run.build_model()
    schema = model.schema_hash()
    roles: dict[str, GossipWorker] = {}
    for number in range(run.edges.count):
        role = make_edge(run, model, number, SEED)
        assert isinstance(role, GossipWorker)
        if isinstance(role, Peer) and isinstance(other := watched[role.edge], Peer):
            role.life = other.life  # a time of day
        role.count_first_hand()
        roles[role.edge] = role
    messages: dict[tuple[str, str], PeerMessage] = {}
    read: dict[str, Tensor] = {}
    for name, does, here, what in log:
        role = roles[name]
        role.here = set(here)
        if does == "begin":
            params, outgoing = role.begin()
            if params is not None:
                read[name] = params
        elif does == "finish":
            outgoing = role.finish(role.gradient(read[name]))
        elif does == "hear":
            outgoing = role.hear(messages[name, what])
        elif does == "hear_steps":
            role.hear_steps(*what)
            outgoing = []
        else:
            outgoing = role.repeat(what) if does == "repeat" else getattr(role, does)()
        for out in outgoing:
            message = over_the_wire(out, schema, model.size)
            messages[out.to, digest(message)] = message
    return roles


def over_the_wire(out: Outgoing, schema: bytes, size: int) -> PeerMessage:
    assert isinstance(out.message, PeerMessage)
    envelope = bytearray(wire_gossip.encode_peer_message("peers", out.message, schema))
    return wire_gossip.read_peer_message(wire.decode(envelope), schema, size)


@pytest.mark.parametrize("name", ["adp2sgd", "sync"])
def test_peers_over_mqtt_and_in_process_agree_to_the_last_bit(tmp_path: Path, name: str) -> None:
    run = run_file(RUN, algorithm={"name": name})
    with mosquitto(tmp_path) as broker:
        watched_run = Watched(run, f"{broker.host}:{broker.port}", tmp_path)
        threads = watched_run.edge_threads(seed=SEED)
        watched_run.serve()
        for thread in threads:
            thread.join(PATIENCE)
    assert not watched_run.failures
    heard = [what for _, does, _, what in watched_run.log if does == "hear"]
    assert len(heard) > 30
    again = in_process(run, watched_run.log, watched_run.roles)
    for edge, role in watched_run.roles.items():
        assert role.steps > 0
        assert torch.equal(again[edge].trained.params, role.trained.params)
        assert again[edge].counts == role.counts
