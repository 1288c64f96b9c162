"""The same roles, driven in process and over MQTT in the same arrival order, end in the same
bits.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from tacit_services.journal.store.append_rules import JournalLimits
from tacit_services.journal.store.memory import MemoryStore

from tacit.config import RunFile
from tests.golden.harness import MqttRun, accepted, in_process, sha256
from tests.helpers.run_files import Layer, run_file
from tests.helpers.servers import PATIENCE, mosquitto

RUN: Layer = {"privacy": {"batch": 32, "noise_multiplier": 1.0, "clip": 1.0}}


OWN = {
    "fedasync": "steps_min = 2\nsteps_max = 4\nproximal = 0.01\nconcurrency = 2",
    "fedbuff": "steps_min = 2\nbuffer = 3",
    "fedavg": "steps_min = 2\nclients = 2",
    "dp-pasgd": "tau = 3",
    "vafl": 'learning_rate = 0.5\nwidth = 4\ncombine = "concat"\nmode = "trained"\nt = '
    "2\nmax_delay = 8",
}
SMOOTH = "smoothness = 1.0\ndeviation = 1.0"


def parsed(algorithm: str, mechanism: str, edges: int, updates: int) -> RunFile:
    parameters = OWN.get(algorithm, SMOOTH)
    return run_file(
        RUN,
        {"algorithm": parameters},
        run={"updates": updates},
        algorithm={"name": algorithm},
        privacy={"mechanism": mechanism},
        edges={"count": edges},
    )


@pytest.mark.parametrize(
    ("algorithm", "mechanism", "edges"),
    [
        ("mapa", "gaussian", 3),
        ("mapa", "discrete_gaussian", 3),
        ("audp", "gaussian", 2),
        ("asgd", "none", 3),
        ("csgd", "none", 1),
        ("mapa", "paper", 2),
        ("fedasync", "gaussian", 3),
        ("fedbuff", "gaussian", 3),
        ("fedavg", "gaussian", 3),
        ("dp-pasgd", "discrete_gaussian", 3),
        ("vafl", "gaussian", 3),
        ("vafl", "none", 3),
    ],
)
def test_mqtt_and_in_process_agree_to_the_last_bit(
    tmp_path: Path, algorithm: str, mechanism: str, edges: int
) -> None:
    run = parsed(algorithm, mechanism, edges, updates=60 if algorithm not in OWN else 12)
    store = MemoryStore("golden", JournalLimits(10**6, 1 << 40))
    with mosquitto(tmp_path) as broker:
        keep_journal(store)
        mqtt = MqttRun(
            run, f"{broker.host}:{broker.port}", store, tmp_path, f"golden-{algorithm}-{mechanism}"
        )
        threads = mqtt.edge_threads(seed=11)
        role = mqtt.serve()
        for thread in threads:
            thread.join(PATIENCE)
        order = accepted(store)
    assert not mqtt.failures
    assert role.version == run.run.updates
    assert role.halt_reason == "all updates applied"
    if edges > 1:
        assert (
            len({edge for edge, _ in order}) == edges
        )  # more than one edge took part, or the order proves nothing
    assert sha256(in_process(run, order, seed=11)) == sha256(role)


def keep_journal(store: MemoryStore) -> None:
    """Let no snapshot trim the journal, so that the whole accept order can be read back."""
    store.save = lambda snapshot: None  # type: ignore[method-assign]


def test_another_arrival_order_gives_other_bits() -> None:
    run = parsed("mapa", "gaussian", edges=2, updates=10)
    hellos, a, b = (
        [("edge-0", "hello"), ("edge-1", "hello")],
        ("edge-0", "update"),
        ("edge-1", "update"),
    )
    first = in_process(run, [*hellos, a, b, a], seed=3)
    second = in_process(run, [*hellos, a, a, b], seed=3)
    assert sha256(first) != sha256(second)
