"""The report on the owner's page: a process makes it, of rows that the run has held out."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from playwright.sync_api import Browser
from tacit_services.identity.ledger_loan import UNBOUND
from tacit_services.member.own_report import own_report
from tacit_services.member.owner_page import owner_page
from tacit_services.member.owner_rest import TOKEN
from tacit_services.transport.proxy import DIRECT

from tests.helpers.browser import PHONE, SERIOUS, Shown
from tests.helpers.past_run import LOOKS, RUN, PastRun, past_run
from tests.helpers.servers import free_port, wait_for

pytestmark = pytest.mark.slow
FIGURES = ("federation", "alone", "constant")
MAKING = 600.0  # seconds, on a machine that has much to do


@pytest.fixture
def past(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> PastRun:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "home"))
    return past_run(tmp_path / "member", tmp_path / "home" / "tacit", **LOOKS)


@pytest.fixture
def url(past: PastRun) -> Iterator[str]:
    address = f"127.0.0.1:{free_port()}"
    with owner_page(address, past.state, past.home, UNBOUND):
        yield f"http://{address}/"


def opened(browser: Browser, url: str, past: PastRun, **more: object) -> Shown:
    token = (past.state.folder / TOKEN).read_text().strip()
    return Shown(browser, url, **more).unlock(token).looked()


def asked(tab: Shown) -> None:
    """Ask for the report on the page."""
    tab.page.get_by_role("button", name=f"What was {RUN} worth to you?").click()
    tab.page.locator("#report-title", has_text=f"What {RUN} was worth to you").wait_for()


def made(tab: Shown) -> None:
    """Wait until the report is there, or why there is none."""
    wait_for(lambda: tab.page.locator("#report-said.busy").count() == 0, MAKING)


def test_an_owner_reads_on_the_page_what_a_run_was_worth(
    browser: Browser, url: str, past: PastRun
) -> None:
    before = sorted(path for path in past.state.folder.rglob("*") if path.is_file())
    tab = opened(browser, url, past)
    asked(tab)
    tab.page.locator("#report-said", has_text="is being trained, on this machine").wait_for()
    made(tab)
    assert tab.text("report-said") == ""
    report = own_report(past.state, RUN, DIRECT, past.home)
    lines = {line[0]: line[1:] for line in tab.rows("report-table")}
    assert lines.keys() == report.metrics.keys()
    for name, judged in report.metrics.items():
        figures = [getattr(judged, which) for which in FIGURES]
        assert [None if cell == "none" else float(cell) for cell in lines[name]] == [
            None if figure is None else float(f"{figure:.4g}") for figure in figures
        ]
    assert tab.page.locator("#report-words p").all_inner_texts() == report.words()
    assert "which the run has held out: neither model has learnt from them" in report.words()[0]
    assert tab.barriers(*SERIOUS) == []
    # A second look needs no second process, and nothing of it lies on the disk.
    tab.page.get_by_role("button", name="Close the report").click()
    assert tab.page.locator("#report:visible").count() == 0
    asked(tab)
    tab.page.locator("#report-table tbody tr").first.wait_for()
    after = sorted(path for path in past.state.folder.rglob("*") if path.is_file())
    assert after == before
    assert tab.complaints == []
    narrow = opened(browser, url, past, viewport=PHONE)
    asked(narrow)
    narrow.page.locator("#report-table tbody tr").first.wait_for()
    assert narrow.barriers(*SERIOUS) == []


def test_a_report_that_cannot_be_made_says_why(browser: Browser, url: str, past: PastRun) -> None:
    (past.state.run(RUN) / "model.safetensors").unlink()  # and its host does not answer
    tab = opened(browser, url, past)
    asked(tab)
    made(tab)
    assert tab.text("report-said").startswith("There is no report: https://127.0.0.1:1")
    assert tab.page.locator("#report-figures:visible").count() == 0
    assert tab.page.get_by_role("button", name="Make it anew").is_enabled()


def test_a_report_is_for_who_has_the_token(url: str) -> None:
    for ask in (httpx.get, httpx.post):
        assert ask(f"{url}v1/reports/{RUN}").status_code == 401
