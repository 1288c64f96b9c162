"""The guard's sums over a real broker: an edge that they accuse, until an operator releases it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from tacit_services.aggregator.api.operator import Operator
from tacit_services.aggregator.api.routes import create_app
from tacit_services.aggregator.reporting.run_status import RunStatus

from tacit.config import parse
from tests.helpers.rest import TOKEN, serving
from tests.helpers.rig import STATUS, Hostile, Rig, run_text
from tests.helpers.servers import PATIENCE, Mosquitto, mosquitto, wait_for


@pytest.fixture
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mosquitto]:
    with mosquitto(tmp_path_factory.mktemp("broker")) as running:
        yield running


@pytest.fixture
def rig(broker: Mosquitto) -> Iterator[Rig]:
    run = parse(run_text(more="[guard]\nsums = true\n"), "test")
    guarded_rig = Rig(run, f"{broker.host}:{broker.port}", "sums")
    guarded_rig.serve()
    yield guarded_rig
    guarded_rig.close()
    assert not guarded_rig.failures


def test_who_sends_no_noise_is_out_through_a_restart_until_it_is_released(
    rig: Rig, tmp_path: Path
) -> None:
    # Given three edges, of which one sends a direction as long as honest noise, again and again,
    edge, *others = (Hostile(rig, f"edge-{number}") for number in range(3))
    assert [member.hello() for member in (edge, *others)] == [STATUS.ACCEPTED] * 3
    statuses = [edge.said(edge.update(1 / 32))]
    while statuses[-1] == STATUS.ACCEPTED and len(statuses) < 20:
        statuses.append(edge.said(edge.update(1 / 32)))
    # then what does not count is answered as what is stale is, and nothing more is taken,
    assert statuses[-1] == STATUS.STALE
    assert len(statuses) < 10
    assert edge.said(edge.update(1 / 32)) == STATUS.REJECTED
    # also by the next aggregator, which folds the journal to the same bits.
    before = rig.fold()
    rig.restart()
    assert rig.fold() == before
    assert edge.said(edge.update(1 / 32)) == STATUS.REJECTED
    rig.live.presence["edge-0"] = "online"
    operator = Operator(TOKEN)
    run_status = RunStatus(rig.run.define(), rig.live, tmp_path / "metrics.jsonl")
    rig.idle = lambda: operator.enter(rig.driver)
    with (
        serving(create_app(run_status, operator, rig.model), operator) as url,
        httpx.Client(base_url=url, trust_env=False, timeout=PATIENCE) as web,
    ):
        row = web.get("/v1/edges/edge-0").json()
        assert row["state"] == "quarantined"
        assert "of the noise that they owe" in row["quarantine"]
        # When the operator releases it, that is an entry of the journal, and it begins anew.
        bearer = {"Authorization": f"Bearer {TOKEN}"}
        assert web.post("/v1/edges/edge-0/release", headers=bearer).status_code == 200
        wait_for(lambda: web.get("/v1/edges/edge-0").json()["quarantine"] == "")
    assert edge.said(edge.update(1 / 32)) == STATUS.ACCEPTED
    before = rig.fold()
    rig.restart()
    assert rig.fold() == before
    for caller in (edge, *others):
        caller.connection.stop()
