"""Looks at held-out rows on the page: intervals as REST has them, and what is hidden is no zero."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
import torch
from playwright.sync_api import Browser

from tacit.algorithms.base.looks import Look
from tests.helpers.browser import PHONE, SERIOUS, Shown
from tests.helpers.rest import RUN_FILE, Rig, served
from tests.helpers.run_files import run_file
from tests.helpers.servers import wait_for

pytestmark = pytest.mark.slow
EVALUATION = {"at": "edges", "looks": 3, "epsilon": 20.0}
ROWS = 4000


@pytest.fixture
def rig(tmp_path: Path) -> Rig:
    page_rig = Rig(tmp_path, run=run_file(RUN_FILE, {"evaluation": EVALUATION}))
    for edge in ("edge-0", "edge-1", "edge-2"):
        page_rig.hello(edge)
    return page_rig


@pytest.fixture
def url(rig: Rig) -> Iterator[str]:
    with served(rig) as base_url:
        yield base_url


def answer(rig: Rig, skill: float, rows: int = ROWS) -> torch.Tensor:
    """Return the sums of rows that an edge holds out, judged by a model of some skill."""
    judging = rig.role.looks
    assert judging is not None
    sheet = rig.run.define().judging
    assert sheet is not None
    classes = len(sheet.sheet.target.names)
    generator = torch.Generator().manual_seed(rows)
    y = torch.randint(classes, (rows,), generator=generator)
    scores = torch.randn(rows, classes, generator=generator)
    scores[torch.arange(rows), y] += skill
    vectors = sheet.sheet.vectors(scores.softmax(1), y).astype(np.float64)
    return torch.from_numpy(vectors.sum(0)).float()


def looked(rig: Rig, *looks: dict[str, torch.Tensor]) -> None:
    """Let there be looks, at versions 2, 4 and 6, which these edges have answered."""
    assert rig.role.looks is not None
    begun = [Look(number, 2 * number, sums) for number, sums in enumerate(looks, 1)]
    rig.role.looks.begun = tuple(begun)


def shown(browser: Browser, url: str, **more: Any) -> Shown:
    tab = Shown(browser, url, **more)
    tab.page.wait_for_selector("#judged:visible")
    return tab


def percent(value: float) -> str:
    return f"{100 * value:.2f} %"


def test_each_look_stands_with_its_interval_as_rest_has_it(
    browser: Browser, rig: Rig, url: str
) -> None:
    edges = ("edge-0", "edge-1", "edge-2")
    looked(rig, {edge: answer(rig, 1.0) for edge in edges}, {"edge-0": answer(rig, 2.5)})
    tab = shown(browser, url)
    first, second = httpx.get(f"{url}/v1/looks").json()
    lines = tab.rows("looks")
    for line, look in zip(lines, (first, second), strict=False):
        figure = look["metrics"]["accuracy"]
        assert line[1] == f"{look['version']} updates"
        assert line[2] == percent(figure["value"])
        assert line[3] == f"{percent(figure['low'])} to {percent(figure['high'])}"
        assert line[6] == f"{look['edges']} of 3"
    assert [line[0] for line in lines] == ["1", "2, best", "3"]
    assert (first["best"], second["best"]) == (False, True)
    assert "that of look 2" in tab.text("judged-best")
    spread = first["spread"]
    assert lines[0][5].startswith(f"{percent(spread['least'])} to {percent(spread['most'])}")
    assert lines[1][5] == ""  # one edge has no spread
    assert "about 20 % of each edge's units are held out" in tab.text("judged-words")
    assert "ε 20 at most" in tab.text("judged-words")
    assert tab.page.locator("#looks rect").count() == 2
    assert tab.page.locator("#evaluations:visible").count() == 0
    assert tab.text("metric-name") == "accuracy, judged at the edges"
    assert tab.text("metric") == percent(second["metrics"]["accuracy"]["value"])
    assert "look 2 of 3, 1 of 3 edges" in tab.text("metric-more")
    assert tab.complaints == []


def test_all_figures_of_the_latest_look_are_those_of_rest(
    browser: Browser, rig: Rig, url: str
) -> None:
    looked(rig, {"edge-0": answer(rig, 2.0), "edge-1": answer(rig, 2.0, 3000)})
    tab = shown(browser, url)
    tab.page.get_by_text("Look 1, all figures").click()
    (look,) = httpx.get(f"{url}/v1/looks").json()
    lines = {line[0]: line[1:3] for line in tab.rows("latest")}
    for name, figure in look["metrics"].items():
        assert lines[name][0] == percent(figure["value"])
    beyond = look["beyond_constant"]
    assert lines["better than always the same answer by"][0] == percent(beyond["value"])
    assert len(look["reliability"]) > 1
    for cell in look["reliability"]:
        assert lines[f"came true, where the model says {cell['from']:g} to {cell['to']:g}"] == [
            percent(cell["value"]),
            f"{percent(cell['low'])} to {percent(cell['high'])}",
        ]


def test_what_is_hidden_or_missing_never_looks_like_zero(
    browser: Browser, rig: Rig, url: str
) -> None:
    # Given: the noise hides the first look, nobody has answered the second, and the third is open
    looked(rig, {"edge-0": answer(rig, 2.0, rows=3)}, {}, {"edge-1": answer(rig, 2.0)})
    tab = shown(browser, url)
    hidden, missing, seen = tab.rows("looks")
    assert hidden[:4] == ["1", "2 updates", "suppressed", ""]
    assert missing[:4] == ["2", "", "no answer", ""]
    assert seen[2].endswith("%")
    bars = tab.page.locator("#looks tbody tr")
    assert [bars.nth(place).locator("rect, path").count() for place in range(3)] == [0, 0, 2]
    assert not any(cell.startswith("0") for line in (hidden, missing) for cell in line[2:5])


def test_a_look_that_noise_hides_wholly_is_said_to_be_hidden(
    browser: Browser, rig: Rig, url: str
) -> None:
    looked(rig, {"edge-0": answer(rig, 2.0, rows=3)})
    tab = shown(browser, url)
    assert tab.text("metric") == "suppressed"
    assert "the noise hides all figures" in tab.text("metric-more")
    assert [line[2] for line in tab.rows("looks")] == ["suppressed", "to come", "to come"]
    assert "is not told by looks" in tab.text("judged-best")


def test_before_any_answer_the_page_waits_for_one_and_shows_it_when_it_comes(
    browser: Browser, rig: Rig, url: str
) -> None:
    tab = shown(browser, url)
    assert tab.text("judged-empty") == "No edge has answered a look yet."
    assert tab.page.locator("#looks:visible").count() == 0
    assert tab.text("metric") == "–"
    looked(rig, {"edge-0": answer(rig, 2.0)})
    wait_for(lambda: tab.page.locator("#looks:visible").count() == 1)


def test_a_run_that_judges_nowhere_shows_no_looks(browser: Browser, tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    rig.hello("edge-0")
    rig.update("edge-0")
    with served(rig) as url:
        tab = Shown(browser, url).at_version(1)
        assert tab.page.locator("#judged:visible").count() == 0
        assert tab.page.locator("#evaluations:visible").count() == 1


@pytest.mark.parametrize("more", [{}, {"color_scheme": "dark"}, {"viewport": PHONE}])
def test_looks_stand_in_the_way_of_nobody(
    browser: Browser, rig: Rig, url: str, more: dict[str, Any]
) -> None:
    looked(rig, {"edge-0": answer(rig, 2.0), "edge-1": answer(rig, 1.0)}, {})
    tab = shown(browser, url, **more)
    tab.page.locator("details").evaluate_all("all => all.forEach(one => one.open = true)")
    assert tab.barriers(*SERIOUS) == []
