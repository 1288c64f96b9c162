"""A run over a real broker, and what it received, driven again in the order in which it came.

The noise is seeded through the test harness. Which edge comes first is the machine's to say: so the
one tree's run is written down, and the other tree must make the same of it.
"""

from __future__ import annotations

import hashlib
import json
import tempfile
from pathlib import Path
from typing import Any

from golden.inside.bits import SEED, sha256
from golden.layout import (
    GossipSection,
    Header,
    Limits,
    MemoryStore,
    MqttRun,
    Peer,
    RunFile,
    Snapshot,
    Watched,
    Worker,
    Writer,
    accepted,
    fold_journal,
    in_arrival_order,
    keep_journal,
    make_edge,
    mosquitto,
    peers_in_order,
    weights,
)

SECONDS = 30.0  # that an edge has to end after the server
Facts = dict[str, Any]


def over_mqtt(table: Facts, journal: str, diary: str) -> Facts:
    """Return the model that a run over MQTT ends with.

    `journal` and `diary` are the files that `again` needs.
    """
    run = RunFile.model_validate(table)
    with tempfile.TemporaryDirectory() as folder, mosquitto(Path(folder)) as broker:
        made = _made(run, f"{broker.host}:{broker.port}", Path(folder))
        threads = made.edge_threads(seed=SEED)
        role = made.serve()
        for thread in threads:
            thread.join(SECONDS)
    if made.failures:
        raise made.failures[0]
    _write(made, Path(journal))
    order = accepted(made.store)
    peers = made.roles if isinstance(made, Watched) else {}
    lives = {name: peer.life for name, peer in peers.items() if isinstance(peer, Peer)}
    log = (
        [[*event[:2], sorted(event[2]), event[3]] for event in made.log]
        if isinstance(made, Watched)
        else []
    )
    Path(diary).write_text(
        json.dumps({"order": order, "log": log, "lives": lives}), encoding="utf-8"
    )
    return _facts(hashlib.sha256(weights(made.model, role.params)).hexdigest(), peers)


def again(table: Facts, journal: str, diary: str) -> Facts:
    """The same from the journal alone, after a check that roles driven in its order end in the
    same model, too.
    """
    run = RunFile.model_validate(table)
    wrote = json.loads(Path(diary).read_text(encoding="utf-8"))
    folded = fold_journal(Path(journal)).model_sha256
    if isinstance(run.algorithm, GossipSection):
        return _facts(folded, _peers(run, wrote))
    role = in_arrival_order(run, [(edge, kind) for edge, kind in wrote["order"]], SEED)
    driven = hashlib.sha256(weights(run.build_model(), role.params)).hexdigest()
    return _facts(folded if folded == driven else f"folded {folded}, driven {driven}", {})


def _made(run: RunFile, broker: str, folder: Path) -> MqttRun:
    if isinstance(run.algorithm, GossipSection):
        return Watched(run, broker, folder)
    store = MemoryStore("golden", Limits(10**6, 1 << 40))
    keep_journal(store)
    return MqttRun(run, broker, store, folder, "golden")


def _write(made: MqttRun, path: Path) -> None:
    writer = Writer(path)
    writer.open(Header(made.run_id, made.run, Snapshot(0, b"")))
    writer.append((record.position, record.payload) for record in made.store.read(0, 10**6))
    writer.close()


def _peers(run: RunFile, wrote: Facts) -> dict[str, Worker]:
    """The peers, doing again what they did, each in the life that it had: a time of day."""
    model, before = run.build_model(), dict[str, Worker]()
    for number in range(run.edges.count):
        role = make_edge(run, model, number, SEED)
        assert isinstance(role, Worker)
        if isinstance(role, Peer):
            role.life = wrote["lives"][role.edge]
        before[role.edge] = role
    return peers_in_order(
        run, [(*event[:2], frozenset(event[2]), event[3]) for event in wrote["log"]], before
    )


def _facts(model: str, peers: dict[str, Worker]) -> Facts:
    return {
        "model": model,
        "peers": {name: sha256(peers[name].trained.params) for name in sorted(peers)},
        "steps": {name: peers[name].counts for name in sorted(peers)},
    }
