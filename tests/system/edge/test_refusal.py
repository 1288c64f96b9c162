"""An edge refuses what its policy does not allow.

It says so everywhere, pays nothing, and waits.
"""

from __future__ import annotations

import json
import logging
import math
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tacit_client import Client, Status
from tacit_services.aggregator.api import prometheus_metrics
from tacit_services.aggregator.api.operator import Operator
from tacit_services.aggregator.api.routes import create_app
from tacit_services.aggregator.reporting.run_status import RunStatus
from tacit_services.cli.main import main
from tacit_services.display import text_tables

from tacit.algorithms.base.edge import EdgeRole
from tacit.privacy.policy import Terms
from tacit.protocol import topics
from tacit.protocol._pb import wire_pb2 as pb
from tacit.protocol.messages import GlobalModel, Halt, Outgoing, ServerOutput
from tests.golden.harness import make_edge
from tests.helpers.processes import Service
from tests.helpers.rest import serving
from tests.helpers.rig import STATUS, Hostile, Rig, run_file
from tests.helpers.run_files import Layer, toml
from tests.helpers.servers import Mosquitto, mosquitto, wait_for


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mosquitto]:
    with mosquitto(tmp_path_factory.mktemp("broker")) as running:
        yield running


def observed(rig: Rig, folder: Path) -> RunStatus:
    run_status = RunStatus(rig.run.define(), rig.live, folder / "metrics.jsonl")
    run_status.resumed()
    return run_status


def hello(rig: Rig, edge: str) -> Any:
    return rig.live.role.edges[edge].hello


GOOD = run_file().define().terms
BAD: dict[str, dict[str, Any]] = {
    "clip too small": {"clip": 0.01},
    "clip too large": {"clip": 1e6},
    "clip nan": {"clip": math.nan},
    "clip infinite": {"clip": math.inf},
    "clip zero": {"clip": 0.0},
    "no noise": {"terms": Terms(GOOD.mechanism, GOOD.sampling_rate, 0.0)},
    "less noise": {"terms": Terms(GOOD.mechanism, GOOD.sampling_rate, 0.999)},
    "noise nan": {"terms": Terms(GOOD.mechanism, GOOD.sampling_rate, math.nan)},
    "another rate": {"terms": Terms(GOOD.mechanism, 1.0, 1.0)},
    "no mechanism": {"terms": Terms("none", GOOD.sampling_rate, None)},
    "noise at the server": {"terms": Terms("gaussian@server", 1.0, 1.0)},
}


@pytest.mark.parametrize("case", BAD)
def test_an_edge_refuses_says_so_and_works_again_when_it_may(
    broker: Mosquitto, tmp_path: Path, caplog: pytest.LogCaptureFixture, case: str
) -> None:
    # Given a server that asks for what the edge's plan does not allow,
    caplog.set_level(logging.INFO)
    rig = Rig(
        run_file(updates=10), f"{broker.host}:{broker.port}", "refuse-" + case.replace(" ", "-")
    )
    good = {name: getattr(rig.live.role, name) for name in BAD[case]}
    for name, value in BAD[case].items():
        setattr(rig.live.role, name, value)
    rig.serve()
    rig.edge(0, tmp_path, patience=0.2)
    # when it has been asked several times,
    wait_for(lambda: "edge-0" in rig.live.role.edges and hello(rig, "edge-0").refusals >= 3)
    # then nothing has been released or charged, and it is known why: in the Hello, in presence, in
    # one line of log.
    record = rig.live.role.edges["edge-0"]
    assert (rig.live.role.version, record.updates, record.spent, record.charged.count) == (
        0,
        0,
        (),
        0,
    )
    assert "this edge" in record.hello.refusal or "allows" in record.hello.refusal
    wait_for(lambda: rig.live.presence.get("edge-0") == "refusing")
    assert sum("refuses a model" in line.message for line in caplog.records) == 1
    # And as soon as the server asks for what is allowed, it works, and says that too.
    with rig.live.lock:
        for name, value in good.items():
            setattr(rig.live.role, name, value)
    assert rig.finished().version == 10
    assert rig.live.presence["edge-0"] == "online"


def test_refusals_do_not_become_a_storm(broker: Mosquitto, tmp_path: Path) -> None:
    # Given an edge with a patience of 0.4 s, whose every Hello is answered at once by a model that
    # it refuses,
    rig = Rig(run_file(updates=10), f"{broker.host}:{broker.port}", "storm")
    rig.live.role.terms = Terms("none", 1.0, 0.0)
    rig.serve()
    times: list[float] = []

    def noting() -> EdgeRole:
        role = make_edge(rig.run, rig.model, 0, 5)
        heard = role.on_message

        def on_message(message: ServerOutput) -> list[Outgoing]:
            before = role.refusals
            assert isinstance(message, GlobalModel | Halt)
            outgoing = heard(message)
            times.extend([time.monotonic()] * (role.refusals - before))
            return outgoing

        role.on_message = on_message  # type: ignore[method-assign]
        return role

    rig.edge(0, tmp_path, patience=0.4, make=noting)
    wait_for(lambda: bool(rig.failures) or len(times) >= 7)
    # then five more refusals take five times its patience, by its own clock.
    assert times[6] - times[1] > 4 * 0.4
    rig.close()
    assert not rig.failures


def test_refusals_are_shown_wherever_an_operator_looks(broker: Mosquitto, tmp_path: Path) -> None:
    rig = Rig(run_file(updates=10), f"{broker.host}:{broker.port}", "shown")
    rig.live.role.clip = 1e5
    rig.serve()
    rig.edge(1, tmp_path, patience=0.2)
    wait_for(
        lambda: rig.live.presence.get("edge-1") == "refusing" and hello(rig, "edge-1").refusals >= 2
    )
    run_status, operator = observed(rig, tmp_path), Operator(None)
    with (
        serving(create_app(run_status, operator, rig.model), operator) as url,
        Client(url) as client,
    ):
        edge, status = client.edge("edge-1"), client.status()
    assert (edge.state, edge.updates) == ("refusing", 0)
    assert edge.refusals >= 2
    assert edge.refusal == "clip=100000.0: this edge allows [0.1, 100.0] only"
    assert (status.edges_online, status.edges_refusing) == (1, 1)
    assert status.refusals >= 2
    text = printed(status)
    assert "1 online of 1, 1 refusing the model" in text
    assert "nobody but the edge itself" in text
    assert "1 refusing the model" in text_tables.line(status, as_json=False)
    metrics = {
        sample.name: sample.value
        for family in prometheus_metrics.registry(run_status).collect()
        for sample in family.samples
    }
    assert metrics["tacit_edges_refusing"] == 1
    assert metrics["tacit_models_refused"] >= 2
    # One that refuses does not keep a run alive whose other edges have spent their budgets.
    assert not run_status.reading().only_retired
    other = Hostile(rig, "edge-0")
    assert other.hello() == STATUS.ACCEPTED
    assert other.said(other.message(pb.Meta(retired=pb.Retired(reason="spent")))) == STATUS.ACCEPTED
    assert run_status.reading().only_retired
    # Nor does one that is not there, as far as the broker knows.
    ghost = Hostile(rig, "edge-2")
    assert ghost.hello() == STATUS.ACCEPTED
    assert run_status.reading().only_retired
    for caller in (other, ghost):
        caller.connection.stop()
    rig.close()


def printed(status: Status) -> str:
    console = text_tables.console()
    with console.capture() as capture:
        console.print(text_tables.status(console, status))
    return capture.get()


def test_a_spent_edge_retires_is_shown_and_the_run_goes_on_without_it(
    broker: Mosquitto, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    # Given a run of 60 updates, and an edge whose budget is less than that,
    caplog.set_level(logging.INFO)
    rig = Rig(run_file(updates=60), f"{broker.host}:{broker.port}", "spent")
    rig.epsilon = {0: 1.0}
    rig.serve()
    rig.edge(0, tmp_path, patience=0.5, seed=None)
    # when it is spent,
    wait_for(
        lambda: bool(rig.live.role.edges.get("edge-0") and rig.live.role.edges["edge-0"].retired)
    )
    pushed = rig.live.role.version
    assert 0 < pushed < 60
    wait_for(lambda: rig.live.presence.get("edge-0") == "retired")
    (row,) = observed(rig, tmp_path).edges()
    assert (row["state"], row["updates"], row["pushes"]) == ("retired", pushed, pushed)
    assert row["retired"].startswith("epsilon=1.0: the next push would pass")
    assert 0.9 < row["epsilon_pld"] <= 1.0
    assert any("edge-0 retires: its budget is spent" in line.message for line in caplog.records)
    # then another takes the run to its end.
    rig.edge(1, tmp_path)
    role = rig.finished()
    assert role.version == 60
    assert role.edges["edge-0"].updates == pushed
    assert role.edges["edge-1"].updates == 60 - pushed


POLICY_RUN: Layer = {
    "run": {"updates": 5},
    "algorithm": {"name": "mapa"},
    "privacy": {"batch": 32, "noise_multiplier": 1.0},
}


@pytest.mark.parametrize(
    ("policy", "code", "line"),
    [
        ("max_epsilon = 1.0", 5, "policy max_epsilon=1.0: the run file says privacy.epsilon=2.0"),
        (
            'algorithms = ["audp"]',
            5,
            "policy algorithms=['audp']: the run file says algorithm.name=mapa",
        ),
        ("max_epsilom = 1.0", 2, "max_epsilom=1.0: unknown key"),
    ],
)
def test_an_edge_process_leaves_with_one_line_and_the_exit_code(
    tmp_path: Path, policy: str, code: int, line: str
) -> None:
    (tmp_path / "run.toml").write_text(toml(POLICY_RUN))
    (tmp_path / "policy.toml").write_text(policy)
    settings = {
        "TACIT_RUN_FILE": str(tmp_path / "run.toml"),
        "TACIT_POLICY": str(tmp_path / "policy.toml"),
        "TACIT_IDENTITIES": str(tmp_path / "identities"),
        "TACIT_BROKER": "127.0.0.1:1",
        "TACIT_CONNECT_TIMEOUT": "0.5",  # nobody can be told
    }
    edge = Service("edge", settings, tmp_path / "log")
    edge.start()
    assert edge.wait() == code
    (log_line,) = [text for text in edge.log.splitlines() if text.startswith("tacit: ")]
    assert line in log_line


def test_a_policy_that_forbids_the_run_is_seen_at_the_server(
    broker: Mosquitto, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    # Given a run that waits, and an edge whose owner allows less,
    caplog.set_level(logging.INFO)
    rig = Rig(run_file(updates=10), f"{broker.host}:{broker.port}", "veto")
    rig.serve()
    (tmp_path / "run.toml").write_text(toml(POLICY_RUN))
    (tmp_path / "policy.toml").write_text("max_epsilon = 1.0")
    settings = {
        "TACIT_RUN_FILE": str(tmp_path / "run.toml"),
        "TACIT_RUN_ID": "veto",
        "TACIT_POLICY": str(tmp_path / "policy.toml"),
        "TACIT_IDENTITIES": str(tmp_path / "identities"),
        "TACIT_BROKER": f"{broker.host}:{broker.port}",
    }
    # when it leaves,
    edge = Service("edge", settings, tmp_path / "log")
    edge.start()
    assert edge.wait() == 5
    # then the server shows which edge it is, and the policy's key, and nothing more of it.
    wait_for(lambda: rig.live.vetoes == {"edge-0": "max_epsilon"})
    why = "its policy's max_epsilon does not allow this run"
    run_status, operator = observed(rig, tmp_path), Operator(None)
    with (
        serving(create_app(run_status, operator, rig.model), operator) as url,
        Client(url) as client,
    ):
        (row,), status = client.edges(), client.status()
        assert client.edge("edge-0").refusal == why
    assert (row.id, row.state, row.refusal, row.pushes) == ("edge-0", "refusing", why, 0)
    assert (status.edges, status.edges_online, status.edges_refusing) == (0, 0, 1)
    assert [(veto.id, veto.policy) for veto in status.vetoes] == [("edge-0", "max_epsilon")]
    assert "1 refusing (edge-0: its policy's max_epsilon does not allow" in printed(status)
    assert f"edge-0 takes no part: {why}" in caplog.text
    assert "ledger" not in edge.log
    # And under another policy it is there again.
    other = Hostile(rig, "edge-0")
    other.connection.publish(topics.presence("veto", "edge-0"), b"online", retain=True)
    wait_for(lambda: not rig.live.vetoes)
    assert rig.live.presence["edge-0"] == "online"
    other.connection.stop()
    rig.close()


@pytest.mark.parametrize("policy", ["clip_max = 50.0", "clip_max = 100.0"])
def test_tacit_run_asks_the_policy_before_it_starts_and_hands_it_to_every_edge(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], policy: str
) -> None:
    (tmp_path / "run.toml").write_text(toml(POLICY_RUN))
    (tmp_path / "policy.toml").write_text(policy)
    arguments = [
        "run",
        tmp_path / "run.toml",
        "--out",
        tmp_path / "out",
        "--policy",
        tmp_path / "policy.toml",
    ]
    with pytest.raises(SystemExit) as exited:
        main([*map(str, arguments), "--edges", "1"])
    errors = capsys.readouterr().err
    if policy == "clip_max = 50.0":
        assert exited.value.code == 5, errors
        assert "policy clip_max=50.0: the run file says privacy.clip_max=100.0" in errors
        assert not (tmp_path / "out").exists()
    else:
        assert exited.value.code == 0, errors
        variables = json.loads((tmp_path / "out" / "state" / ".tacit-run").read_text())
        assert variables["TACIT_POLICY"] == str(tmp_path / "policy.toml")
