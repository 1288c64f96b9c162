"""The host's page in a real browser: runs and their states, for whoever has a token."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser

from tests.helpers.browser import PHONE, Shown, chromium
from tests.helpers.federation import Host, endless_run, federation, run_file
from tests.helpers.nightly import nightly

pytestmark = pytest.mark.slow
EVIL = "<img src=x onerror=window.hacked=1>"
WITHIN = 'accept = "within"\nlifetime_epsilon = 8.0'


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as chrome:
        yield chrome


def token(host: Host, role: str) -> str:
    """Return a new person's token, as it is given away."""
    return host.tacit("members", "invite", role, "--role", role, "--federation", host.place).strip()


def opened(browser: Browser, host: Host, path: str, secret: str) -> Shown:
    """Open a page of the host, and type a token."""
    tab = Shown(browser, f"https://127.0.0.1:{host.port}{path}", ignore_https_errors=True)
    tab.page.locator("#read-token").fill(secret)
    tab.page.locator("#locked button").click()
    return tab


def rows(tab: Shown) -> list[list[str]]:
    """Return the table of runs."""
    locators = tab.page.locator("#runs tbody tr").all()
    return [[cell.inner_text().strip() for cell in row.locator("th, td").all()] for row in locators]


def test_the_page_shows_runs_and_leads_to_each(tmp_path: Path, browser: Browser) -> None:
    with federation(tmp_path, members=2) as (host, sites):
        sites[1].name = EVIL
        for site, policy in zip(sites, (WITHIN, f"{WITHIN}\nmax_epsilon = 1.0"), strict=True):
            site.join(host, policy)
        run = endless_run(tmp_path, count=1)
        host.tacit("submit", run, "--name", "retina", "--federation", host.place)
        host.wait_run("retina", lambda stands: stands["refused"] and stands["applied"])

        # A wrong token shows nothing; a reader's shows all, and whose it is.
        tab = opened(browser, host, "/", "nobodys-token-at-all")
        tab.page.wait_for_function(
            "document.getElementById('locked-said').textContent.includes('not a token')"
        )
        assert rows(tab) == []
        tab.page.locator("#read-token").fill(token(host, "reader"))
        tab.page.locator("#locked button").click()
        tab.page.wait_for_selector("#runs tbody tr")
        ((name, state, updates, members, refused, by),) = rows(tab)
        assert (name, state, members) == ("retina", "training", "Site 0")
        assert updates.endswith("of 100000")
        assert (refused, by) == (f"{EVIL} (policy)", "operator")
        assert tab.text("me") == "as reader, reader"
        assert tab.page.evaluate("window.hacked") is None

        # The run's own page is behind its name, through the host.
        tab.page.locator("#runs a").click()
        tab.page.locator("#read-token").fill(token(host, "researcher").partition(".")[0])
        tab.page.locator("#locked button").click()
        tab.page.wait_for_function("document.getElementById('lost').textContent.length > 0")
        assert "there is none of this name" in tab.text("lost")  # it is no run of theirs
        secret = (host.place / "people" / "operator").read_text().strip()
        of_run = opened(browser, host, "/runs/retina/", secret).at_version(1)
        assert of_run.text("run") == "retina"
        assert "over all runs of the data" in of_run.text("epsilon-more")
        assert "limit of this one 6" in of_run.page.locator("#edges tbody").inner_text()
        assert [*tab.complaints, *of_run.complaints] == []

        # Stopped, it says why.
        listed = opened(browser, host, "/", secret)
        host.tacit("stop", "retina", "--reason", "enough", "--federation", host.place)
        listed.page.wait_for_selector("#runs .pill.stopped")
        assert "enough" in rows(listed)[0][1]


@pytest.mark.parametrize("scheme", ["light", *nightly("dark")])
def test_everybody_can_read_the_page(tmp_path: Path, browser: Browser, scheme: str) -> None:
    with federation(tmp_path, members=0) as (host, _):
        run = run_file(tmp_path)
        host.tacit("submit", run, "--name", "retina", "--federation", host.place)
        secret = (host.place / "people" / "operator").read_text().strip()
        for viewport in (None, PHONE):
            more = {} if viewport is None else {"viewport": viewport}
            tab = Shown(
                browser, f"https://127.0.0.1:{host.port}/", color_scheme=scheme,
                ignore_https_errors=True, bypass_csp=True, **more,
            )  # fmt: skip
            assert Axe().run(tab.page).response["violations"] == []
            tab.page.locator("#read-token").fill(secret)
            tab.page.keyboard.press("Enter")
            tab.page.wait_for_selector("#runs tbody tr")
            assert Axe().run(tab.page).response["violations"] == []
            assert tab.page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
