"""A run that shows no gain any more ends by one halt in its journal, whoever is killed meanwhile."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from tacit_services.aggregator import entries
from tacit_services.aggregator.reporting.best_model import BestModel, is_better
from tacit_services.journal.weights import weights

from tacit import config, datasets
from tacit.models.stopping import Evaluated
from tacit.protocol.messages import Halt
from tests.helpers.processes import PATIENCE, Deployment, appended, deployment, refold
from tests.helpers.run_files import toml
from tests.helpers.servers import RedisServer, mosquitto, redis_server, wait_for

EDGES = 2
# Many enough for a busy machine, which evaluates fewer of them.
UPDATES = 480
RUN_FILE = toml(
    run={"updates": UPDATES, "stop": "no better", "average": 0.5, "snapshot_every": 50},
    algorithm={"name": "fedasync", "learning_rate": 1e-6, "steps_min": 1},
    privacy={"batch": 32, "clip": 1.0, "epsilon": 4.0, "pushes": UPDATES},
    edges={"count": EDGES},
    evaluation={"every": 2},
)
# It begins far above a constant and hardly moves, so its curve is flat in every order of messages.
# From zero, as `logistic` begins, the smallest steps decide what is guessed, and the curve rises.
FLAT = {"name": "python", "entry": "nets:Net", "weights": "start.safetensors"}
NETS = """
from torch import nn


class Net(nn.Linear):
    def __init__(self):
        super().__init__(64, 10)

    def forward(self, x):
        return super().forward(x.flatten(1))
"""


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Deployment]:
    (tmp_path / "nets.py").write_text(NETS)
    save_file(means_of_digits(), tmp_path / "start.safetensors")
    text = toml(RUN_FILE, model=FLAT)
    with (
        mosquitto(tmp_path) as broker,
        redis_server(tmp_path) as redis,
        deployment(
            tmp_path, text, f"{broker.host}:{broker.port}", url_of(redis), "stopped"
        ) as deployed,
    ):
        yield deployed


def means_of_digits() -> dict[str, torch.Tensor]:
    """Return weights by which the nearest mean of a class is guessed."""
    digits = datasets.load("digits", "test", None)
    means = torch.stack([digits.x[digits.y == each].mean(0).flatten() for each in range(10)])
    return {"weight": means, "bias": -(means**2).sum(1) / 2}


def url_of(redis: RedisServer) -> str:
    return redis.url


def evaluations(run: Deployment) -> int:
    path = run.out / "metrics.jsonl"
    if not path.exists():
        return 0
    return len(path.read_text().splitlines())


def halts(run: Deployment) -> list[Halt]:
    """Return the halts in the journal."""
    model = config.load(run.file).build_model()
    messages = (
        entries.read(entry.payload, model.schema_hash(), model.size)
        for entry in appended(run.folder)
    )
    return [message for message in messages if isinstance(message, Halt)]


def test_a_flat_run_ends_once_though_the_aggregator_is_killed(run: Deployment) -> None:
    aggregator = run.aggregator()
    edges = [run.edge(number) for number in range(EDGES)]
    for count in (5, 15):  # fewer than the rule needs, however seldom a busy machine evaluates
        wait_for(lambda least=count: evaluations(run) >= least, PATIENCE)  # type: ignore[misc]
        aggregator.kill()
        aggregator.start()
    summary = run.ended()
    assert summary["reason"].startswith("no better"), (summary["reason"], evaluations(run))
    # One halt, which an operator's would be like; edges have left with what they had not spent.
    [halt] = halts(run)
    assert halt.reason == summary["reason"]
    assert halt.reason.startswith("no better")
    assert summary["state"] == "halted"
    assert halt.version == summary["applied"] < UPDATES
    assert [edge.wait() for edge in edges] == [0] * EDGES
    for name, unspent in summary["unspent"].items():
        edge = summary["privacy"]["edges"][name]
        assert unspent == pytest.approx(edge["budget"] - edge["epsilon_pld"])
        assert unspent > 0.5
    # The journal says the same of the average as the process that was killed twice.
    file = config.load(run.file)
    role, _ = refold(file, [entry.payload for entry in appended(run.folder)])
    assert role.model_average is not None
    mean = role.model_average.mean()
    assert mean is not None
    content = (run.out / "averaged.safetensors").read_bytes()
    assert content == weights(file.build_model(), mean)
    for entry in summary["models"].values():
        digest = hashlib.sha256((run.out / entry["file"]).read_bytes()).hexdigest()
        assert digest == entry["model_sha256"]
    # A later start finds the run over, halts nothing, and says the same.
    aggregator.start()
    assert aggregator.wait() == 0
    again = run.summary()
    assert (again["reason"], again["models"]) == (summary["reason"], summary["models"])
    assert again["unspent"] == summary["unspent"]
    assert len(halts(run)) == 1


def test_the_best_model_survives_a_kill_and_no_other_run_takes_it(tmp_path: Path) -> None:
    model = config.parse(RUN_FILE, "test").build_model()
    best = BestModel(tmp_path, model, "one")
    best.resume(0)
    assert best.read() is None
    params = torch.arange(model.size, dtype=torch.float32)
    best.offer(Evaluated(10, 0.8, 0.5, 100), params)
    best.offer(Evaluated(20, 0.7, 0.4, 100), params + 1)  # not the best
    successor = BestModel(tmp_path, model, "one")
    successor.resume(30)
    stored = successor.read()
    assert stored is not None
    assert stored[0] == Evaluated(10, 0.8, 0.5, 100)
    assert torch.equal(stored[1], params)
    successor.offer(Evaluated(40, 0.8, 0.5, 100), params + 2)  # no better than before the kill
    assert torch.equal(successor.read()[1], params)  # type: ignore[index]
    BestModel(tmp_path, model, "another").resume(30)
    assert not best.path.exists()


@pytest.mark.parametrize("damage", [b"", b"\x08\0\0\0\0\0\0\0{}      ", b"no such file" * 9])
def test_a_damaged_file_is_none(tmp_path: Path, damage: bytes) -> None:
    model = config.parse(RUN_FILE, "test").build_model()
    best = BestModel(tmp_path, model, "one")
    best.path.write_bytes(damage)
    assert best.read() is None
    best.resume(30)
    assert not best.path.exists()


def test_the_best_has_the_highest_accuracy_and_of_these_the_lowest_loss() -> None:
    of = Evaluated(1, 0.8, 0.5, 100)
    assert is_better(Evaluated(2, 0.81, 0.9, 100), of)
    assert is_better(Evaluated(2, 0.8, 0.4, 100), of)
    assert not is_better(Evaluated(2, 0.79, 0.1, 100), of)
    assert is_better(Evaluated(2, None, 0.1, 100), Evaluated(1, None, 0.2, 100))


def test_a_run_that_never_stops_early_writes_neither(tmp_path: Path) -> None:
    """The papers' files have neither key."""
    from tacit_services.testbed.simulated_run import simulate

    text = toml(
        run={"updates": 4},
        algorithm={"name": "asgd", "smoothness": 1.0, "deviation": 1.0},
        privacy={"mechanism": "none", "clip": 1.0, "batch": 32},
        edges={"count": 2},
    )
    simulate(config.parse(text, "test").define(), None, tmp_path, lambda status: None)
    assert not list(tmp_path.glob("best*"))
    assert not list(tmp_path.glob("averaged*"))
    summary = json.loads((tmp_path / "summary.json").read_text())
    assert "models" not in summary
    assert "unspent" not in summary
