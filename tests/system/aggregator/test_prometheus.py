"""Debian's Prometheus reads an aggregator's metrics, takes the rules, and answers the dashboard."""

from __future__ import annotations

import json
import subprocess
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import start_http_server
from tacit_services.aggregator.api import prometheus_metrics

from tests.helpers.servers import HOST, Server, free_port, need, wait_for
from tests.snapshots.stored_keys import served_run
from tests.unit.aggregator.test_dashboard import RULES, TESTS, alerts, queries

pytestmark = pytest.mark.exhaustive
_SCRAPED = "count_over_time(tacit_ready[1h]) >= 5"
_CONFIG = """
global: { scrape_interval: 200ms, evaluation_interval: 200ms }
rule_files: ["%s"]
scrape_configs: [{ job_name: run, static_configs: [{ targets: ["%s"] }] }]
"""


class Prometheus:
    """A Prometheus that scrapes one address."""

    def __init__(self, folder: Path, target: str) -> None:
        config = folder / "prometheus.yml"
        config.write_text(_CONFIG % (RULES, target))
        port = free_port()
        self._url = f"http://{HOST}:{port}/api/v1/"
        options = ["--config.file", config, "--storage.tsdb.path", folder / "data"]
        listen = ["--web.listen-address", f"{HOST}:{port}"]
        command = [need("prometheus"), *map(str, options), *listen]
        self.server = Server(command, port, folder / "prometheus.log")

    def answer(self, path: str, **parameters: str) -> Any:
        query = urllib.parse.urlencode(parameters)
        with urllib.request.urlopen(f"{self._url}{path}?{query}", timeout=30) as response:
            return json.load(response)["data"]

    def is_ready(self) -> bool:
        """Return whether it answers: it opens its port before it can."""
        try:
            self.answer("rules")
        except urllib.error.HTTPError:
            return False
        return True

    def result(self, expression: str) -> list[dict[str, Any]]:
        """Return what an expression gives now."""
        rows: list[dict[str, Any]] = self.answer("query", query=expression)["result"]
        return rows


@pytest.fixture(scope="module")
def prometheus(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prometheus]:
    folder = tmp_path_factory.mktemp("prometheus")
    out = folder / "run"
    out.mkdir()
    registry = prometheus_metrics.registry(served_run(out).run_status)
    port = free_port()
    metrics, thread = start_http_server(port, HOST, registry)
    server = Prometheus(folder, f"{HOST}:{port}")
    server.server.start()
    try:
        # A rate needs two scrapes.
        wait_for(lambda: server.is_ready() and bool(server.result(_SCRAPED)))
        yield server
    finally:
        server.server.stop()
        metrics.shutdown()
        metrics.server_close()
        thread.join()


@pytest.mark.parametrize("name", queries())
def test_a_query_of_the_dashboard_has_an_answer(name: str, prometheus: Prometheus) -> None:
    expression = queries()[name].replace("$__rate_interval", "1m").replace("$job", ".*")

    assert prometheus.result(expression), expression


def test_the_rules_are_loaded_and_none_is_broken(prometheus: Prometheus) -> None:
    (group,) = prometheus.answer("rules")["groups"]
    assert {rule["name"] for rule in group["rules"]} == {*alerts(), "tacit:updates_per_second"}
    wait_for(
        lambda: all(
            rule["health"] == "ok" for rule in prometheus.answer("rules")["groups"][0]["rules"]
        )
    )
    assert prometheus.answer("query", query="tacit:updates_per_second")["result"]


def test_each_alert_comes_when_it_should_and_not_before() -> None:
    command = [need("promtool"), "test", "rules", TESTS.name]
    promtool = subprocess.run(
        command, cwd=TESTS.parent, capture_output=True, text=True, check=False, timeout=60
    )
    assert promtool.returncode == 0, promtool.stderr
