"""The aggregator shows an additive model's functions, to programs and on its page."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from xml.etree import ElementTree

import httpx
import pytest
from axe_playwright_python.sync_playwright import Axe
from tacit_client.models import ModelFunctions
from tacit_services.aggregator.api.operator import Operator
from tacit_services.aggregator.api.routes import create_app
from tacit_services.aggregator.reading import Health, RunReading, read
from tacit_services.aggregator.reporting.run_status import RunStatus

from tests.helpers.browser import Shown, chromium
from tests.helpers.processes import PATIENCE
from tests.helpers.rest import Rig, problem, served, serving
from tests.unit.algorithms.test_noise_of_runs import trained


class Ended:
    """A run of an additive model that has ended."""

    def __init__(self) -> None:
        self.role = trained(2, 0)

    def reading(self) -> RunReading:
        return read(
            self.role, Counter(), {}, run_id="run", fingerprint="0" * 64, quarantined={}, vetoes={}
        )

    def health(self) -> Health:
        return Health(over=True)


@pytest.fixture
def url(tmp_path: Path) -> Iterator[str]:
    run = Ended()
    status = RunStatus(run.role._definition, run, tmp_path / "metrics.jsonl")
    operator = Operator(None)
    with serving(create_app(status, operator, run.role._model, read_token=None), operator) as base:
        yield base


def test_programs_and_pictures_have_the_functions_and_their_band(url: str) -> None:
    assert httpx.get(f"{url}/v1/model").json()["additive"] is True
    functions = ModelFunctions.model_validate(
        httpx.get(f"{url}/v1/model/functions", timeout=PATIENCE).json()
    )
    age, job = functions.terms
    assert (age.columns, job.columns) == (["age"], ["job"])
    assert age.importance is not None
    assert job.importance is not None
    assert age.importance > 5 * job.importance
    assert all((each.deviation or 0) > 0 for each in age.bins)
    assert functions.outputs == ["log odds of ward"]
    answer = httpx.get(f"{url}/v1/model/functions/picture", timeout=PATIENCE)
    assert answer.headers["content-security-policy"].startswith("default-src 'none'")
    drawn = list(ElementTree.fromstring(answer.text).iter())
    assert {each.tag.rpartition("}")[2] for each in drawn} == {
        "svg",
        "title",
        "style",
        "path",
        "text",
    }
    assert {"band f0", "curve c0", "whisker c0"} <= {each.get("class") for each in drawn}


def test_a_run_of_another_model_has_no_functions(tmp_path: Path) -> None:
    with served(Rig(tmp_path)) as base_url:
        assert httpx.get(f"{base_url}/v1/model").json()["additive"] is False
        for part in ("functions", "functions/picture"):
            assert "not additive" in problem(httpx.get(f"{base_url}/v1/model/{part}"), 404)


@pytest.mark.slow
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_page_shows_them_with_a_table_beside(url: str, scheme: str) -> None:
    with chromium() as browser:
        tab = Shown(browser, url, color_scheme=scheme)
        tab.page.locator("#functions-drawing svg").wait_for()
        assert "two standard deviations" in tab.text("functions-words")
        assert [row[0] for row in tab.rows("importance")] == ["age", "job"]
        tab.page.locator("#functions summary").last.click()
        assert len(tab.rows("bins")) == 36
        band = tab.page.locator("#functions-drawing .band").first
        assert band.evaluate("e => getComputedStyle(e).fill") != "rgb(0, 0, 0)"
        assert tab.complaints == []
        seen = Axe().run(tab.page, context="#functions")
        assert seen.violations_count == 0, seen.generate_report()
