"""What the REST interface says of a run, on a real driver and store.

Its health and metrics, its documents, and its model.
"""

from __future__ import annotations

import hashlib
import json
from importlib import metadata
from pathlib import Path
from typing import Any

import httpx
import pytest
import safetensors.torch
from prometheus_client.parser import text_string_to_metric_families
from tacit_client import Client
from tacit_services.aggregator.api import view
from tacit_services.aggregator.api.view import View
from tacit_services.aggregator.reading import RunReading
from tacit_services.aggregator.reporting.accounts import ahead
from tacit_services.journal.weights import Weights
from torch import Tensor

from tacit.models import Model
from tacit.privacy import accounting
from tacit.privacy.accounting import Spend
from tacit.protocol._pb import wire_pb2 as pb
from tests.helpers.rest import Rig, problem


class TestHealth:
    def test_alive_from_the_start_ready_once_connected(self, rig: Rig, web: httpx.Client) -> None:
        assert web.get("/healthz").status_code == 200
        assert "broker" in problem(web.get("/readyz"), 503)
        assert web.get("/readyz").json()["parts"] == {"store": "up", "broker": "down"}
        rig.link.up = True
        assert web.get("/readyz").status_code == 200
        assert web.get("/readyz").json() == {
            "status": "ready",
            "parts": {"store": "up", "broker": "up"},
        }
        rig.link.refused = frozenset(["tacit/v1/run/up/+/+/+"])
        assert "refuses a subscription" in problem(web.get("/readyz"), 503)
        assert web.get("/readyz").json()["parts"] == {"store": "up", "broker": "refuses"}
        rig.link.refused = frozenset()
        rig.live.store_up = False
        assert "store (lost" in problem(web.get("/readyz"), 503)
        assert web.get("/readyz").json()["parts"] == {"store": "lost", "broker": "up"}

    def test_not_ready_names_the_store_before_recovery(self, rig: Rig, web: httpx.Client) -> None:
        rig.live.epoch = 0
        assert "store" in problem(web.get("/readyz"), 503)
        assert web.get("/readyz").json()["parts"]["store"] == "recovering"
        assert "recovered" in problem(web.get("/v1/status"), 503)
        assert web.get("/healthz").status_code == 200

    def test_metrics_parse_and_name_no_edge(self, rig: Rig, web: httpx.Client) -> None:
        rig.hello("edge-0")
        rig.update("edge-0")
        rig.update("edge-0", base=7)  # a version that does not exist
        rig.send(
            "edge-0", pb.Meta(retired=pb.Retired(reason="spent")), seq=1
        )  # a number already used
        text = web.get("/metrics").text
        samples = {
            s.name: s for family in text_string_to_metric_families(text) for s in family.samples
        }
        values = {name: sample.value for name, sample in samples.items()}
        assert values["tacit_messages_accepted_total"] == 2
        assert values["tacit_messages_duplicate_total"] == 1
        assert (values["tacit_model_version"], values["tacit_edges_online"]) == (1, 1)
        assert samples["tacit_messages_rejected_total"].labels == {"reason": "version"}
        assert values["tacit_update_staleness_versions_count"] == 1
        assert "edge-0" not in text

    def test_metrics_have_epsilon_and_the_build(self, rig: Rig, web: httpx.Client) -> None:
        rig.hello("edge-0")
        rig.update("edge-0", pushes=3)
        families = {
            family.name: family
            for family in text_string_to_metric_families(web.get("/metrics").text)
        }
        values = {
            name: family.samples[0].value for name, family in families.items() if family.samples
        }
        privacy = web.get("/v1/privacy").json()
        spent = privacy["edges"]["edge-0"]
        assert values["tacit_epsilon"] == privacy["epsilon"] > 0
        assert values["tacit_delta"] == privacy["delta"]
        assert values["tacit_epsilon_budget_ratio"] == spent["epsilon_pld"] / spent["budget"]
        assert families["tacit_build_info"].samples[0].labels == {
            "version": metadata.version("tacit")
        }

    def test_metrics_tell_trouble(self, rig: Rig, web: httpx.Client) -> None:
        def now() -> dict[str, float]:
            families = text_string_to_metric_families(web.get("/metrics").text)
            return {s.name: s.value for family in families for s in family.samples}

        before = now()
        names = (
            "updates_late_total",
            "messages_throttled_total",
            "broker_reconnects_total",
            "journal_entries_replayed_total",
            "anchors_refused_total",
            "snapshots_total",
            "messages_busy_total",
            "updates_stale_total",
            "journal_bytes",
            "journal_entries",
            "edges_quarantined",
            "apply_latency_seconds_count",
            "models_refused",
            "broker_up",
            "ready",
        )
        assert {name: before[f"tacit_{name}"] for name in names} == dict.fromkeys(names, 0.0)
        assert (before["tacit_store_up"], before["tacit_snapshot_age_seconds"] >= 0) == (1, True)
        rig.hello("edge-0")
        rig.update("edge-0", charged=2)
        rig.update("edge-0", charged=1)  # a ledger that fell back
        rig.link.reconnects = 3
        metrics = now()
        assert (
            metrics["tacit_anchors_refused_total"],
            metrics["tacit_broker_reconnects_total"],
        ) == (1, 3)
        assert metrics["tacit_journal_entries"] == metrics["tacit_apply_latency_seconds_count"] == 2
        assert (
            metrics["tacit_journal_bytes"] == rig.live.journal.store.depth()[1] > 2600
        )  # 650 floats and a Hello
        assert 0 < metrics["tacit_apply_latency_seconds_sum"] < 10
        rig.driver.save()
        metrics = now()
        assert (
            metrics["tacit_journal_bytes"],
            metrics["tacit_journal_entries"],
            metrics["tacit_snapshots_total"],
        ) == (0, 0, 1)
        rig.driver.halt("enough")
        rig.update("edge-0", charged=3)
        assert now()["tacit_updates_late_total"] == 1
        rig.live.epoch = 0
        assert now()["tacit_store_up"] == 0


class TestDocuments:
    def test_what_is_finished_names_the_last_model(
        self, rig: Rig, web: httpx.Client, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        # Given that the run's last update comes while a status is being made,
        rig.hello("edge-0")
        for _ in range(5):
            rig.update("edge-0", base=rig.role.version)

        def last_update(model: Model, params: Tensor) -> Weights:
            if rig.role.version == 5:
                rig.update("edge-0", base=5)
            return Weights(model, params)

        monkeypatch.setattr(view, "Weights", last_update)
        # then nobody is told "finished" beside the model before the last.
        statuses = [web.get("/v1/status").json() for _ in range(2)]
        states = [
            (status["state"], status["applied"], status["model_version"]) for status in statuses
        ]
        assert states == [("training", 5, 5), ("finished", 6, 6)]

    def test_status_is_a_summary_with_a_state(self, rig: Rig, web: httpx.Client) -> None:
        assert web.get("/v1/status").json()["state"] == "waiting"
        rig.hello("edge-0")
        rig.update("edge-0")
        status = web.get("/v1/status").json()
        assert (status["state"], status["applied"], status["target"]) == ("training", 1, 6)
        assert (status["slowest"], status["privacy"]["bound"]) == (
            {"id": "edge-0", "releases": 1},
            False,
        )
        assert (
            status["model_sha256"]
            == hashlib.sha256(web.get("/v1/model/weights").content).hexdigest()
        )

    def test_a_status_is_of_one_moment_whatever_comes_meanwhile(
        self, rig: Rig, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        # Given a status that is being made, when an update comes in the middle of it,
        rig.hello("edge-0")
        view, read_status = View(rig.run_status, rig.model), rig.run_status.status

        def late(reading: RunReading) -> dict[str, Any]:
            rig.update("edge-0")
            return read_status(reading)

        _, before = view.file()
        monkeypatch.setattr(rig.run_status, "status", late)
        status = view.status()
        # then all of it is of the moment before.
        assert rig.role.version == 1
        assert (status["applied"], status["model_version"], status["state"]) == (0, 0, "waiting")
        assert status["model_sha256"] == before != view.file()[1]

    def test_an_infinite_epsilon_is_null(self, rig: Rig, web: httpx.Client) -> None:
        rig.hello("edge-0", multiplier=0.0, pushes=3)
        body = web.get("/v1/privacy").content
        privacy = json.loads(body, parse_constant=lambda word: pytest.fail(f"{word} is not JSON"))
        assert privacy["epsilon"] is None
        assert privacy["edges"]["edge-0"]["epsilon_rdp"] is None

    def test_edges_one_by_one_and_together(self, rig: Rig, web: httpx.Client) -> None:
        rig.hello("edge-0")
        rig.hello("edge-1")
        rows = web.get("/v1/edges").json()
        assert [row["id"] for row in rows] == ["edge-0", "edge-1"]
        assert web.get("/v1/edges/edge-1").json() == rows[1]
        assert "'edge-9'" in problem(web.get("/v1/edges/edge-9"), 404)

    def test_edges_come_a_page_at_a_time_and_again_only_where_they_changed(
        self, rig: Rig, web: httpx.Client
    ) -> None:
        for number in range(5):
            rig.hello(f"edge-{number}")
        first = web.get("/v1/edges", params={"limit": 2})
        assert [row["id"] for row in first.json()] == ["edge-0", "edge-1"]
        second = web.get("/v1/edges", params={"limit": 9, "after": "edge-1"})
        assert [row["id"] for row in second.json()] == ["edge-2", "edge-3", "edge-4"]
        headers = {"If-None-Match": first.headers["ETag"]}
        again = web.get("/v1/edges", params={"limit": 2}, headers=headers)
        assert (again.status_code, again.content) == (304, b"")
        rig.update("edge-0")
        changed = web.get("/v1/edges", params={"limit": 2}, headers=headers)
        assert changed.status_code == 200
        assert "limit" in problem(web.get("/v1/edges", params={"limit": 1001}), 422)

    def test_a_status_has_one_size_whatever_the_number_of_edges(
        self, rig: Rig, web: httpx.Client
    ) -> None:
        rig.hello("edge-0")
        single = len(web.get("/v1/status").content)
        for number in range(1, 60):
            rig.hello(f"edge-{number}")
        many = len(web.get("/v1/status").content)
        assert many <= single + 8  # a digit more here and there
        assert many <= 2048

    def test_the_updates_of_a_row_are_those_that_its_epsilon_counts(self, rig: Rig) -> None:
        rig.hello("edge-0")
        rig.update("edge-0", pushes=1)
        (before,) = rig.run_status.edges()
        with rig.run_status._accounts.busy:  # another request is at it
            rig.update("edge-0", pushes=2)
            assert rig.run_status.edges() == [before]
        (after,) = rig.run_status.edges()
        assert [(row["updates"], row["pushes"]) for row in (before, after)] == [(1, 1), (2, 2)]

    def test_series_from_a_version_on(self, rig: Rig, web: httpx.Client) -> None:
        for version in (0, 1, 5, 9):  # 0: before the first update
            rig.run_status.point(version, 0.5, 1.0, 10)
        assert [point["version"] for point in web.get("/v1/series").json()] == [0, 1, 5, 9]
        since = web.get("/v1/series", params={"after": 0}).json()
        assert [point["version"] for point in since] == [1, 5, 9]
        assert [
            point["version"] for point in web.get("/v1/series", params={"after": 5}).json()
        ] == [9]
        assert "after" in problem(web.get("/v1/series", params={"after": "x"}), 422)


class TestWeights:
    def test_a_safetensors_file_of_the_model(self, rig: Rig, web: httpx.Client) -> None:
        rig.hello("edge-0")
        rig.update("edge-0")
        info, answer = web.get("/v1/model").json(), web.get("/v1/model/weights")
        layers = safetensors.torch.load(answer.content)
        assert {name: list(layer.shape) for name, layer in layers.items()} == {
            layer["name"]: layer["shape"] for layer in info["layers"]
        }
        assert all(
            layers[name].equal(part) for name, part in rig.model.unflatten(rig.role.params).items()
        )
        assert (info["version"], info["bytes"]) == (1, len(answer.content))
        assert answer.headers["etag"] == f'"{info["sha256"]}"'
        assert answer.headers["cache-control"] == "no-cache"

    def test_etag_saves_the_transfer_until_the_model_moves(
        self, rig: Rig, web: httpx.Client
    ) -> None:
        etag = web.get("/v1/model/weights").headers["etag"]
        for tag in (etag, f'"other", W/{etag}', "*"):
            same = web.get("/v1/model/weights", headers={"If-None-Match": tag})
            assert (same.status_code, same.content, same.headers["etag"]) == (304, b"", etag)
        rig.hello("edge-0")
        rig.update("edge-0")
        moved = web.get("/v1/model/weights", headers={"If-None-Match": etag})
        assert moved.status_code == 200
        assert moved.headers["etag"] != etag

    @pytest.mark.parametrize(
        ("requested", "part"),
        [
            ("bytes=0-9", slice(0, 10)),
            ("bytes=100-", slice(100, None)),
            ("bytes=-7", slice(-7, None)),
            ("bytes=5-999999999", slice(5, None)),
            ("bytes=-999999999", slice(0, None)),
        ],
    )
    def test_one_range(self, still: httpx.Client, requested: str, part: slice) -> None:
        weights = still.get("/v1/model/weights").content
        answer = still.get("/v1/model/weights", headers={"Range": requested})
        assert answer.status_code == 206
        assert answer.content == weights[part]
        first, last, _ = part.indices(len(weights))
        assert answer.headers["content-range"] == f"bytes {first}-{last - 1}/{len(weights)}"

    @pytest.mark.parametrize("requested", ["bytes=999999999-", "bytes=-0"])
    def test_a_range_outside_the_file(self, still: httpx.Client, requested: str) -> None:
        answer = still.get("/v1/model/weights", headers={"Range": requested})
        problem(answer, 416)
        assert answer.headers["content-range"].startswith("bytes */")

    @pytest.mark.parametrize(
        "requested", ["bytes=0-1,4-5", "bytes=9-3", "bytes=-", "bytes=", "lines=0-1", "junk"]
    )
    def test_other_ranges_are_ignored(self, still: httpx.Client, requested: str) -> None:
        assert still.get("/v1/model/weights", headers={"Range": requested}).status_code == 200

    def test_a_range_of_an_older_file_gets_the_whole_new_one(self, still: httpx.Client) -> None:
        headers = {"Range": "bytes=0-9", "If-Range": '"older"'}
        assert still.get("/v1/model/weights", headers=headers).status_code == 200


class TestEvents:
    def test_who_came_and_went_is_told_with_the_servers_time(
        self, rig: Rig, web: httpx.Client
    ) -> None:
        rig.hello("edge-0")
        rig.hello("edge-1")
        before = web.get("/v1/status").json()
        rig.live.presence["edge-1"] = "offline"
        rig.live.vetoes["edge-2"] = "max_delta"
        rig.live.presence["edge-2"] = "left"
        status = web.get("/v1/status").json()
        assert status["events"] > before["events"] > 0
        assert before["at"] <= status["at"]
        with Client(str(web.base_url)) as client:
            events = client.log()
            newest = client.log(after=before["events"])
        assert [event.number for event in events] == list(range(1, status["events"] + 1))
        assert [event.at for event in events] == sorted(event.at for event in events)
        assert [event.text for event in newest] == [
            "edge-1 is offline: its connection was lost without a goodbye",
            "edge-2 is refusing: its policy's max_delta does not allow this run",
        ]
        assert len(web.get("/v1/log", params={"limit": 1}).json()) == 1
        assert "greater than or equal" in problem(web.get("/v1/log", params={"after": -1}), 422)

    def test_evaluations_have_the_servers_time_too(self, rig: Rig, web: httpx.Client) -> None:
        rig.run_status.point(0, 0.5, 1.0, 10)
        [point] = web.get("/v1/series").json()
        assert point["at"] <= web.get("/v1/status").json()["at"]


@pytest.mark.parametrize("count", [*range(1, 70), 1000, 12_345])
def test_live_epsilon_is_that_of_at_most_an_eighth_more_pushes(count: int) -> None:
    (row,) = ahead((Spend(0.1, 1.0, count),))
    assert count <= row.count <= max(count + 0.0, count * 9 / 8)


def test_live_epsilon_is_above_the_budget_only_where_the_edge_has_spent_more(
    tmp_path: Path,
) -> None:
    rig = Rig(tmp_path, more="[run]\nupdates = 400\n[privacy]\nepsilon = 2.0\n")
    rig.hello("edge-0")
    epsilons: dict[int, float] = {}
    count = 0
    while len(epsilons) < 3 or max(epsilons.values()) <= 2.0:
        count += max(1, count // 16)
        rig.update("edge-0", pushes=count)
        (edge,) = rig.run_status.edges()
        exact = accounting.epsilon_pld(rig.role.edges["edge-0"].spent, edge["delta"])
        assert edge["epsilon_pld"] >= exact
        assert edge["epsilon_pld"] == exact or edge["epsilon_pld"] <= edge["budget"] == 2.0
        epsilons[count] = edge["epsilon_pld"]
