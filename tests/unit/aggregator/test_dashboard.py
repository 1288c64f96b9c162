"""The rules for Prometheus and the dashboard of Grafana name metrics that there are."""

from __future__ import annotations

import json
import re

import yaml

from tests.conftest import ROOT

RULES = ROOT / "deploy" / "prometheus" / "rules.yml"
TESTS = ROOT / "deploy" / "prometheus" / "rules-test.yml"
DASHBOARD = ROOT / "deploy" / "grafana" / "tacit.json"
METRICS = ROOT / "tests" / "snapshots" / "metrics.json"
# Where the aggregator speaks TLS alone, which the run of the snapshot does not.
BESIDE = {"tacit_certificate_end_timestamp_seconds"}


def queries() -> dict[str, str]:
    """Return each query of the dashboard, by its panel and letter."""
    panels = json.loads(DASHBOARD.read_text(encoding="utf-8"))["panels"]
    return {
        f"{panel['title']} {target['refId']}": target["expr"]
        for panel in panels
        for target in panel["targets"]
    }


def alerts() -> dict[str, str]:
    """Return the expression of each alert by its name."""
    (group,) = yaml.safe_load(RULES.read_text(encoding="utf-8"))["groups"]
    return {rule["alert"]: rule["expr"] for rule in group["rules"] if "alert" in rule}


def test_every_metric_that_is_asked_for_exists() -> None:
    known = {*json.loads(METRICS.read_text(encoding="utf-8")), *BESIDE}
    for name, expression in (queries() | alerts()).items():
        used = set(re.findall(r"\btacit_\w+", expression))
        assert used, name
        assert used <= known, (name, used - known)


def test_every_alert_is_tried_by_promtool_and_says_what_to_do() -> None:
    (group,) = yaml.safe_load(RULES.read_text(encoding="utf-8"))["groups"]
    tried = TESTS.read_text(encoding="utf-8")
    for rule in group["rules"]:
        if "alert" in rule:
            assert {"summary", "do"} == set(rule["annotations"])
            assert tried.count(rule["alert"]) == 2, rule["alert"]


def test_no_panel_lies_on_another() -> None:
    panels = json.loads(DASHBOARD.read_text(encoding="utf-8"))["panels"]
    places = [
        (x, y)
        for at in (panel["gridPos"] for panel in panels)
        for x in range(at["x"], at["x"] + at["w"])
        for y in range(at["y"], at["y"] + at["h"])
    ]
    assert len(places) == len(set(places))
    assert max(x for x, _ in places) < 24
