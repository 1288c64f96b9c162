"""Somebody is away for a minute: what the others do meanwhile. `python -m
tacit_lab.studies.absence` writes out/absence.json.

(a) `vertical`: one of four VAFL parties is stopped (SIGSTOP) for --seconds. The figure is the steps
of the other three per second during that time, over those in as long a time before and after it. A
second figure is the training loss at both its ends. It comes from the run's journal folded again,
because no evaluation is answered meanwhile. Expected: at least 0.9, and the loss still falls.

(b) `gossip`: of four peers without gradients and noise, with different models, one is cut off the
broker for --seconds. The figures are the same ratio, whether the peer averages again afterwards,
and how far the sum of all models has moved (expected: 1e-6).

(c) `accuracy`: eight peers run as processes over MQTT, A(DP)²SGD and SYNC at the same noise. The
figures are test accuracy and ε of each, and the mean of the seeds' differences with its 95 %
interval.

Every party and peer takes --slowdown times as long as it computes, so that no processor is the
limit. On a machine where the processors are the limit, an absence leaves the others more of them,
and the ratio means nothing. It takes about ten minutes at the defaults, on an otherwise idle
machine.
"""

from __future__ import annotations

import argparse
import json
import signal
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from threading import Event
from typing import Any

import numpy as np
import torch
from tacit_client import ApiError, Client, Unreachable
from tacit_services.aggregator import entries
from tacit_services.children.processes import free_port
from tacit_services.journal import journal_file

from tacit import datasets
from tacit.algorithms import registry
from tacit.algorithms.vafl import vafl_algorithm
from tacit.algorithms.vafl.label_server import LabelServer
from tacit.privacy.noise.labels import corrected_loss
from tacit_lab.checkout import EXPERIMENTS
from tacit_lab.papers.figures.testbed_figures import train
from tacit_lab.papers.figures.verdicts import half_width
from tests.helpers import gossip as gossip_run
from tests.helpers.network import network
from tests.helpers.processes import Service, deployment
from tests.helpers.servers import mosquitto, wait_for

PATIENCE = 240.0
PARTIES = 4
SALT = "tacit"
VERTICAL = """
[run]
updates = 100000000
snapshot_every = 500
[data]
dataset = "digits"
[model]
name = "logistic"
[algorithm]
name = "vafl"
learning_rate = 0.02 # so slowly that the loss is still falling minutes later
[privacy]
mechanism = "none"
batch = 32
[edges]
count = {parties}
slowdown = {slowdown}
[evaluation]
every = 100000000
"""


def ratio(
    steps: Callable[[], int], seconds: float, leave: Callable[[], None], back: Callable[[], None]
) -> dict[str, Any]:
    """Return steps a second before `leave()`, between it and `back()`, and after that.

    Each lasts `seconds`. ratio: the second over the mean of the two others, which takes out a
    steady load of the machine.
    """

    def rate() -> float:
        first = steps()
        began = time.monotonic()
        Event().wait(seconds)
        return (steps() - first) / (time.monotonic() - began)

    before = rate()
    leave()
    during = rate()
    back()
    after = rate()
    rates = {
        "before_per_s": round(before, 2),
        "during_per_s": round(during, 2),
        "after_per_s": round(after, 2),
    }
    return rates | {"ratio": round(2 * during / (before + after), 3)}


# -- (a) -------------------------------------------------------------------------------------------


def vertical(seconds: float, slowdown: float) -> dict[str, Any]:
    """Stop one of four parties, and compare the steps of the others."""
    text = VERTICAL.format(parties=PARTIES, slowdown=[slowdown] * PARTIES)
    with tempfile.TemporaryDirectory() as name, mosquitto(Path(name)) as broker:
        folder = Path(name)
        http = f"127.0.0.1:{free_port()}"
        address = f"{broker.host}:{broker.port}"
        store = f"sqlite:///{folder / 'store.db'}"
        with (
            deployment(folder, text, address, store, "absence") as deployed,
            Client(f"http://{http}") as client,
        ):
            journal = folder / "run.journal"
            deployed.aggregator(TACIT_HTTP=http, TACIT_JOURNAL_FILE=str(journal))
            parties = [deployed.edge(number, "party") for number in range(PARTIES)]
            wait_for(lambda: _applied(client) > 50, PATIENCE)
            versions: list[int] = []

            def leave() -> None:
                _signal(parties[0], signal.SIGSTOP)
                versions.append(client.status().applied)

            def back() -> None:
                versions.append(client.status().applied)
                _signal(parties[0], signal.SIGCONT)

            others = [f"edge-{number}" for number in range(1, PARTIES)]
            result = ratio(lambda: _updates(client, others), seconds, leave, back)
            met = _updates(client, ["edge-0"])
            wait_for(lambda: _updates(client, ["edge-0"]) > met + 5, PATIENCE)
            losses = folded(journal, versions)
    return result | {
        "versions": versions,
        "train_loss": losses,
        "loss_falls": losses[1] < losses[0],
    }


def _applied(client: Client) -> int:
    try:
        return client.status().applied
    except (Unreachable, ApiError):
        return 0


def _updates(client: Client, names: list[str]) -> int:
    return sum(
        edge.to_json()["updates"] for edge in client.edges() if edge.to_json()["id"] in names
    )


def _signal(service: Service, number: int) -> None:
    assert service.process is not None
    service.process.send_signal(number)


def folded(path: Path, versions: list[int]) -> list[float]:
    """Return the mean loss of all training records at each of `versions`.

    It is computed from the embeddings that the server has.
    """
    losses: list[float] = []
    with journal_file.open_journal(path) as file:
        reader = journal_file.JournalReader(file, str(path))
        run = reader.header.parameters
        model = run.build_model()
        splits = datasets.splits(run.source.name, None)
        labelled = vafl_algorithm.labelled_records(splits, SALT.encode())
        server = registry.server(run.define(), model, labelled)
        schema = model.schema_hash()
        assert isinstance(server, LabelServer)
        rows = torch.arange(labelled.records)
        for entry in reader:
            server.on_message(entries.read(entry.payload, schema, model.size))
            if len(losses) < len(versions) and server.version >= versions[len(losses)]:
                scores = server.scores(rows)
                losses.append(
                    round(
                        float(
                            corrected_loss(
                                scores, labelled.labels[rows], labelled.label_epsilon
                            ).mean()
                        ),
                        5,
                    )
                )
    return losses


# -- (b) -------------------------------------------------------------------------------------------


def gossip(seconds: float, slowdown: float) -> dict[str, Any]:
    """Cut one of four peers off the broker, and compare the steps of the others."""
    count = gossip_run.COUNT
    settings = gossip_run.STILL | {"count": f"{count}\nslowdown = {[slowdown] * count}"}
    others = [number for number in range(count) if number != 2]
    with (
        tempfile.TemporaryDirectory() as name,
        gossip_run.run(Path(name), **settings) as (deployed, _),
        network(deployed.broker) as cable,
    ):
        disks = gossip_run.Disks(deployed)
        disks.prepare()
        first = disks.total()
        spread = disks.spread()
        away = {"TACIT_BROKER": cable.address}
        peers = [gossip_run.peer(deployed, n, **(away if n == 2 else {})) for n in range(count)]
        wait_for(lambda: min(disks.answered(n) for n in range(count)) > 5, PATIENCE)
        steps = lambda: sum(disks.steps(n) for n in others)  # noqa: E731
        exchanges: list[int] = []
        dark = lambda: cable.blackout(seconds, cut=True)  # noqa: E731
        back = lambda: exchanges.append(disks.answered(2))  # noqa: E731
        result = ratio(steps, seconds, dark, back)
        wait_for(lambda: disks.answered(2) > exchanges[0] + 10, PATIENCE)
        result["exchanges_afterwards"] = disks.answered(2) - exchanges[0]
        for service in peers:
            _signal(service, signal.SIGTERM)
        codes = [service.wait() for service in peers]
        moved = float((disks.total() - first).abs().max())
        apart = disks.spread() / spread
    return result | {
        "exit_codes": codes,
        "sum_moved": moved,
        "spread_left": apart,
        "conserved": moved < 1e-6,
    }


# -- (c) -------------------------------------------------------------------------------------------


def accuracy(updates: int | None, seeds: int, slowdown: float) -> dict[str, Any]:
    """Compare A(DP)²SGD with SYNC, eight peers each, seed by seed.

    With the noise of experiments/adp2sgd-digits.toml.
    """
    text = (EXPERIMENTS / "adp2sgd-digits.toml").read_text(encoding="utf-8")
    text = text.replace("count = 8", f"count = 8\nslowdown = {[slowdown] * 8}")
    if updates is not None:
        text = text.replace("updates = 2400", f"updates = {updates}")
    results: dict[str, Any] = {"adp2sgd": [], "sync": []}
    with tempfile.TemporaryDirectory() as folder:
        for seed in range(1, seeds + 1):
            for name, rows in results.items():
                rows.append(
                    _trained(
                        text.replace('name = "adp2sgd"\n', f'name = "{name}"\n'),
                        Path(folder),
                        name,
                        seed,
                    )
                )
                print(f"    seed {seed}, {name}: {rows[-1]['test_accuracy']:.4f}", flush=True)
    pairs = zip(results["adp2sgd"], results["sync"], strict=True)
    apart = np.array([ours["test_accuracy"] - other["test_accuracy"] for ours, other in pairs])
    return results | {
        "difference": round(float(apart.mean()), 4),
        "half_width": round(float(half_width(apart)), 4),
    }


def _trained(text: str, folder: Path, name: str, seed: int) -> dict[str, Any]:
    file = folder / f"{name}.toml"
    out = folder / f"{name}-{seed}"
    file.write_text(text, encoding="utf-8")
    summary = train(file, out, "--seed", str(seed))
    metrics = {key: summary[key] for key in ("test_accuracy", "test_loss", "applied", "duration_s")}
    return metrics | {"epsilon": summary["privacy"]["epsilon"], "noise_multiplier": _noise(summary)}


def _noise(summary: dict[str, Any]) -> float:
    (noise,) = {edge["noise_multiplier"] for edge in summary["privacy"]["edges"].values()}
    return float(noise)


def main() -> None:
    """Measure, print and write."""
    parser = argparse.ArgumentParser(prog="python -m tacit_lab.studies.absence")
    parser.add_argument("what", nargs="*", choices=("vertical", "gossip", "accuracy"), default=[])
    parser.add_argument("--seconds", type=float, default=60.0, help="how long somebody is away")
    parser.add_argument(
        "--slowdown",
        type=float,
        default=20.0,
        help="a step takes so many times as long as computing",
    )
    parser.add_argument(
        "--updates", type=int, default=None, help="of (c) [default: the experiment's]"
    )
    parser.add_argument("--seeds", type=int, default=5, help="of (c)")
    parser.add_argument("--out", type=Path, default=Path("out/absence.json"))
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    measures: dict[str, Callable[[], dict[str, Any]]] = {
        "vertical": lambda: vertical(arguments.seconds, arguments.slowdown),
        "gossip": lambda: gossip(arguments.seconds, arguments.slowdown),
        "accuracy": lambda: accuracy(arguments.updates, arguments.seeds, arguments.slowdown),
    }
    results: dict[str, Any] = {"seconds": arguments.seconds, "slowdown": arguments.slowdown}
    for what in arguments.what or measures:
        results[what] = measures[what]()
        print(what, json.dumps(results[what]), flush=True)
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    arguments.out.write_text(json.dumps(results, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
