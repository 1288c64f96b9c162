"""A vertical run as real processes.

Trained over MQTT, killed and resumed, folded again from its journal.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from tacit_services.aggregator import entries
from tacit_services.aggregator.vertical import record_labels
from torch import Tensor

from tacit.errors import PrivacyError
from tacit.privacy.accounting import Spend, gdp
from tacit.protocol.messages import Update
from tests.helpers.processes import Deployment, deployment
from tests.helpers.run_files import toml
from tests.helpers.servers import mosquitto, redis_server, wait_for
from tests.helpers.vertical import PARTIES, RUN, journalled, steps

LONG = 300.0  # seconds that starting, and starting again, may take on a busy machine
PRIVATE = toml(
    RUN,
    run={"updates": 120},
    algorithm={"mode": "fresh", "width": 4, "combine": "concat", "label_epsilon": 2.0},
    privacy={"mechanism": "gaussian", "epsilon": 50.0, "pushes": 40},
)


@pytest.fixture
def started(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Deployment]:
    """Yield a deployment of the given run file; nothing is started yet."""
    with (
        mosquitto(tmp_path) as broker,
        redis_server(tmp_path, "--auto-aof-rewrite-min-size", "1gb") as redis,
    ):
        address = f"{broker.host}:{broker.port}"
        with deployment(tmp_path, request.param, address, redis.url, "vertical") as run:
            yield run


def everybody(run: Deployment) -> dict[str, Any]:
    """Start an aggregator and the parties, and kill each once, at different places."""
    aggregator = run.aggregator()
    parties = [run.edge(number, "party") for number in range(PARTIES)]
    for at, victim in ((25, parties[0]), (60, aggregator), (90, parties[1]), (110, parties[0])):
        wait_for(lambda at=at: run.accepted() >= at, LONG)  # type: ignore[misc]
        victim.kill()
        victim.start()
    return run.ended()


@pytest.mark.exhaustive
@pytest.mark.parametrize("started", [PRIVATE], indirect=True)
def test_a_crash_refunds_nothing_and_the_runs_mu_is_that_of_its_journal(
    started: Deployment,
) -> None:
    summary = everybody(started)
    file, journal = journalled(started)
    assert all(numbers == list(range(len(numbers))) for numbers in steps(file, journal).values())
    model, counts = (
        file.build_model(),
        {f"edge-{number}": Counter[int]() for number in range(PARTIES)},
    )
    for entry in journal:
        message = entries.read(entry.payload, model.schema_hash(), model.size)
        if isinstance(message, Update) and message.part is not None:
            counts[message.edge].update(message.part.rows.tolist())
    mus = []
    for number in range(PARTIES):
        account = summary["privacy"]["edges"][f"edge-{number}"]
        most = max(counts[f"edge-{number}"].values())
        assert most <= account["pushes"] <= started.pushes(number)  # R of the most released record
        mus.append(gdp.mu(Spend(q, z, n) for q, z, n in account["history"]))
        assert account["mu"] == pytest.approx(mus[-1])
    assert summary["privacy"]["mu"] == pytest.approx(gdp.compose(mus))
    assert summary["privacy"]["epsilon"] == pytest.approx(gdp.epsilon(gdp.compose(mus), 1e-5))
    assert summary["privacy"]["labels_epsilon"] == 2.0


# -- labels are drawn once -------------------------------------------------------------------------


def noisy(path: Path, labels: Tensor, epsilon: float = 1.0) -> Tensor:
    import numpy as np

    return record_labels.answers(path, labels, 10, epsilon, np.arange(len(labels), dtype=np.uint64))


def test_noisy_labels_are_drawn_once(tmp_path: Path) -> None:
    labels, path = torch.arange(200) % 10, tmp_path / "state" / "labels.safetensors"
    drawn = noisy(path, labels)
    assert 0 < int((drawn != labels).sum()) < 200
    assert torch.equal(noisy(path, labels), drawn)
    assert not torch.equal(noisy(tmp_path / "others", labels), drawn)


def test_noisy_labels_are_not_drawn_again_for_another_epsilon_or_other_records(
    tmp_path: Path,
) -> None:
    path = tmp_path / "labels"
    noisy(path, torch.arange(20) % 10)
    with pytest.raises(PrivacyError, match="drawn for epsilon=1 or other records"):
        noisy(path, torch.arange(20) % 10, 2.0)
    with pytest.raises(PrivacyError, match="or other records"):
        noisy(path, torch.arange(21) % 10)
    path.write_bytes(path.read_bytes()[:50])
    with pytest.raises(PrivacyError, match="damaged"):
        noisy(path, torch.arange(20) % 10)


@pytest.mark.parametrize("started", [PRIVATE], indirect=True)
def test_a_party_whose_records_have_other_names_says_so_in_one_line(started: Deployment) -> None:
    started.aggregator()
    party = started.edge(0, "party", TACIT_SALT="another")
    assert party.wait() == 3
    last = party.log.strip().splitlines()[-1]
    assert "edge-0: 1797 of the run's 1797 records are not among its 1797" in last
    assert json.dumps(last).count("\\n") == 0
