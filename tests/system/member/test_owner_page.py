"""The owner's page in a real browser: an owner accepts, declines and withdraws by it alone."""

from __future__ import annotations

import re
from pathlib import Path

import httpx
import pytest
from playwright.sync_api import Browser

from tacit import rounding
from tests.helpers.browser import EVIL, PHONE, Shown
from tests.helpers.federation import Member, endless_run, federation, run_file
from tests.helpers.federation_pages import joined_with_page, owner_token, page_of_owner
from tests.helpers.nightly import nightly

pytestmark = pytest.mark.slow


def stands(tab: Shown, run: str, state: str) -> None:
    """Wait until a run stands so on the page."""
    row = tab.page.locator("#offers tbody tr").filter(has_text=run)
    row.locator(".pill", has_text=state).wait_for()


def test_an_owner_decides_by_the_page_alone(tmp_path: Path, browser: Browser) -> None:
    with federation(tmp_path, members=1) as (host, (member,)):
        member.name = EVIL
        url = joined_with_page(host, member)
        for name in ("retina", "lungs"):
            run = endless_run(tmp_path, count=1)
            host.tacit("submit", run, "--name", name, "--federation", host.place)
        tab = page_of_owner(browser, member, url)
        assert tab.text("name") == EVIL
        for name in ("retina", "lungs"):
            stands(tab, name, "waits for you")

        # One is read, whole, and accepted: it trains, and what it costs is shown.
        tab.page.get_by_role("button", name="Read the offer retina").click()
        tab.page.wait_for_selector("#offer:not([hidden])")
        text = tab.page.locator("#sections").inner_text()
        for words in ("Who asks", "What leaves", "What it may cost", "What you cannot know"):
            assert words in text
        assert not member.text("worker.log")
        tab.page.locator("#accept").click()
        stands(tab, "retina", "accepted")
        host.wait_run("retina", lambda run: run["applied"] >= 3)
        tab.page.locator("#ledger tbody tr", has_text="retina").wait_for()
        tab.page.locator("#left li", has_text="retina: messages").first.wait_for()
        assert re.search(r"ε [\d.]+ of 6", tab.page.locator("#offers").inner_text())

        # The other is declined.
        tab.page.get_by_role("button", name="Read the offer lungs").click()
        tab.page.locator("#decline").click()
        stands(tab, "lungs", "declined")

        # The first is taken back: nothing leaves from then on.
        tab.page.on("dialog", lambda dialog: dialog.accept())
        tab.page.get_by_role("button", name="Withdraw from retina").click()
        stands(tab, "retina", "withdrawn")
        assert "What was released stays released" in tab.text("said")

        # ε is rounded up, as at the terminal.
        owner = {"Authorization": f"Bearer {owner_token(member)}"}
        with httpx.Client(base_url=url, headers=owner) as client:
            spent = client.get("/v1/ledger").json()["life"]["epsilon"]
        tab.page.locator("#life", has_text=f"ε {rounding.epsilon(spent)} at δ").wait_for()
        assert tab.page.evaluate("window.hacked") is None
        assert tab.complaints == []


def test_the_page_is_its_owners_alone(tmp_path: Path) -> None:
    with federation(tmp_path, members=1) as (host, (member,)):
        url = joined_with_page(host, member)
        host.tacit("submit", run_file(tmp_path, count=1), "--federation", host.place)
        member.wait_for_text("join.log", "run waits for its owner")
        assert (member.state / "page-token").stat().st_mode & 0o077 == 0
        with httpx.Client(base_url=url) as stranger:
            paths = ("me", "offers", "offers/run", "ledger", "departures")
            assert {stranger.get(f"/v1/{path}").status_code for path in paths} == {401}
            answer = stranger.post("/v1/offers/run/accept", json={"fingerprint": "0" * 64})
            assert answer.status_code == 401
            assert stranger.get("/v1/me", headers={"Host": "evil.example"}).status_code == 421
        owner = {"Authorization": f"Bearer {owner_token(member)}"}
        with httpx.Client(base_url=url, headers=owner) as client:
            assert client.get("/v1/me").json()["name"] == member.name
            for path in ("offers/none", "offers/..%2F..", "offers/a%2Fb"):
                assert client.get(f"/v1/{path}").status_code in (404, 405, 422)
            # What is accepted is what was shown.
            stale = client.post("/v1/offers/run/accept", json={"fingerprint": "0" * 64})
            assert stale.status_code == 409
            offered = client.get("/v1/offers/run").json()
            answer = client.post(
                "/v1/offers/run/accept", json={"fingerprint": offered["fingerprint"]}
            )
            assert answer.status_code == 200
        host.wait_run("run", lambda run: run["members"])
        other = Member(tmp_path / "other", 9, "Other")
        refused = other.tried(
            *host.join_words(), "--data", other.rows, "--state", other.state,
            "--page", "0.0.0.0:8100",
        )  # fmt: skip
        assert refused.returncode == 2
        assert "for this machine alone" in refused.stderr


@pytest.mark.parametrize("scheme", ["light", *nightly("dark")])
def test_everybody_can_read_it(tmp_path: Path, browser: Browser, scheme: str) -> None:
    with federation(tmp_path, members=1) as (host, (member,)):
        url = joined_with_page(host, member)
        host.tacit("submit", run_file(tmp_path, count=1), "--federation", host.place)
        member.wait_for_text("join.log", "run waits for its owner")
        for viewport in (None, PHONE):
            more = {} if viewport is None else {"viewport": viewport}
            tab = Shown(browser, url, color_scheme=scheme, bypass_csp=True, **more)
            assert tab.barriers() == []
            tab.unlock(owner_token(member)).page.wait_for_selector("#offers tbody tr")
            # By keyboard alone: read it, and close it again.
            read = tab.page.get_by_role("button", name="Read the offer run")
            read.focus()
            tab.page.keyboard.press("Enter")
            tab.page.wait_for_selector("#offer:not([hidden])")
            assert tab.page.evaluate("document.activeElement.id") == "offer-title"
            assert tab.barriers() == []
            tab.page.locator("#close").focus()
            tab.page.keyboard.press("Enter")
            assert tab.page.locator("#offer").is_hidden()
