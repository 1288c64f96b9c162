"""Swagger UI at `/docs` in a real browser: all of REST, tried out, and nothing from elsewhere."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from playwright.sync_api import Browser

from tests.helpers.browser import Shown
from tests.helpers.rest import Rig, served


@pytest.fixture
def url(tmp_path: Path) -> Iterator[str]:
    rig = Rig(tmp_path)
    rig.hello("edge-0")
    with served(rig) as base_url:
        yield base_url


def test_its_files_are_the_aggregators_own_with_their_licence(url: str) -> None:
    first = httpx.get(f"{url}/docs")
    assert first.headers["content-type"].startswith("text/html")
    policy = first.headers["content-security-policy"]
    assert policy.startswith("default-src 'none'; script-src 'self'; style-src 'self';")
    assert "unsafe" not in policy
    assert "http" not in first.text
    assert "Apache License" in httpx.get(f"{url}/docs/swagger-ui.LICENSE").text
    script = httpx.get(f"{url}/docs/swagger-ui-bundle.js")
    headers = {"If-None-Match": script.headers["etag"]}
    assert httpx.get(f"{url}/docs/swagger-ui-bundle.js", headers=headers).status_code == 304
    assert httpx.get(f"{url}/docs/..%2Fstatic_files.py").status_code == 404


@pytest.mark.slow
def test_every_operation_is_shown_and_one_is_tried_out(browser: Browser, url: str) -> None:
    tab = Shown(browser, f"{url}/docs")
    tab.page.wait_for_selector(".opblock")
    paths = httpx.get(f"{url}/openapi.json").json()["paths"]
    operations = sum(len(methods) for methods in paths.values())
    assert tab.page.locator(".opblock").count() == operations >= 15

    status = tab.page.locator(".opblock", has_text="/v1/status").first
    status.locator(".opblock-summary-control").click()
    status.locator(".try-out__btn").click()
    status.locator(".execute").click()
    body = status.locator(".live-responses-table .microlight").first
    body.wait_for()
    assert '"edges_online": 1' in body.inner_text()

    hosts = tab.page.evaluate(
        "performance.getEntriesByType('resource').map(one => new URL(one.name).host)"
    )
    assert set(hosts) <= {url.removeprefix("http://"), ""}  # "": pictures of the style sheet
    assert tab.complaints == []
