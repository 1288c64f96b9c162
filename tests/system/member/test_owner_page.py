"""The owner's page in a real browser: an owner accepts, declines and withdraws by it alone."""

from __future__ import annotations

import json
import re
from pathlib import Path

import httpx
import pytest
from playwright.sync_api import Browser, Dialog

from tacit import rounding
from tests.helpers.browser import EVIL, PHONE, Shown
from tests.helpers.federation import Host, Member, endless_run, federation, run_file
from tests.helpers.federation_pages import joined_with_page, owner_token, page_of_owner, read_offer

pytestmark = pytest.mark.slow
TOUCH = 44  # pixels that a finger hits


def stands(tab: Shown, run: str, state: str) -> None:
    """Wait until a run stands so on the page."""
    row = tab.page.locator("#offers > li").filter(has_text=run)
    row.locator(".pill", has_text=state).wait_for()


def asked(tab: Shown) -> list[str]:
    """Say yes to every question of the page; returns them as they come."""
    questions: list[str] = []

    def answer(dialog: Dialog) -> None:
        questions.append(dialog.message)
        dialog.accept()

    tab.page.on("dialog", answer)
    return questions


def submit(host: Host, folder: Path, *names: str, epsilon: float = 6.0) -> None:
    for name in names:
        run = run_file(folder, count=1, updates=400, epsilon=epsilon)
        host.tacit("submit", run, "--name", name, "--federation", host.place)


def focused(tab: Shown, place: str) -> None:
    """Wait until this element has the focus."""
    tab.page.wait_for_function("place => document.activeElement.id === place", arg=place)


def test_an_owner_decides_by_the_page_alone(tmp_path: Path, browser: Browser) -> None:
    with federation(tmp_path, members=1) as (host, (member,)):
        member.name = EVIL
        url = joined_with_page(host, member)
        for name in ("retina", "lungs"):
            run = endless_run(tmp_path, count=1)
            host.tacit("submit", run, "--name", name, "--federation", host.place)
        tab = page_of_owner(browser, member, url)
        questions = asked(tab)
        assert tab.text("name") == EVIL
        for name in ("retina", "lungs"):
            stands(tab, name, "waits for you")
        tab.page.locator("#summary", has_text="2 offers wait for you").wait_for()
        focused(tab, "summary")

        # One is read, whole, and accepted: it trains, and what it costs is shown.
        text = read_offer(tab, "retina")
        for words in ("Who asks", "What leaves", "What it may cost", "What you cannot know"):
            assert words in text
        assert text.index("What it may cost") < text.index("The model")
        assert not member.text("worker.log")
        tab.page.get_by_role("button", name="Accept: retina").click()
        stands(tab, "retina", "accepted")
        assert re.search(r"at most [\d,.]+ times as likely; a guess that was 50:50", questions[0])
        focused(tab, "said")
        host.wait_run("retina", lambda run: run["applied"] >= 3)
        tab.page.locator("#ledger tbody tr", has_text="retina").wait_for()
        tab.page.locator("#left li", has_text="retina: messages").first.wait_for()
        assert re.search(r"ε [\d.]+ of 6", tab.page.locator("#offers").inner_text())

        # The other is declined.
        read_offer(tab, "lungs")
        tab.page.get_by_role("button", name="Decline: lungs").click()
        stands(tab, "lungs", "declined")
        focused(tab, "said")
        assert len(questions) == 1  # a decline can be taken back

        # The first is taken back: nothing leaves from then on.
        tab.page.get_by_role("button", name="Withdraw from retina").click()
        stands(tab, "retina", "withdrawn")
        tab.page.locator("#said", has_text="What has left stays with the host").wait_for()
        focused(tab, "said")

        # ε is rounded up, as at the terminal.
        owner = {"Authorization": f"Bearer {owner_token(member)}"}
        with httpx.Client(base_url=url, headers=owner) as client:
            spent = client.get("/v1/ledger").json()["life"]["epsilon"]
        tab.page.locator("#life", has_text=f"ε {rounding.epsilon(spent)} at δ").wait_for()
        (cost,) = re.findall(r"ε ([\d.]+ of 6)", tab.page.locator("#offers").inner_text())
        assert cost in tab.page.locator("#ledger tbody").inner_text()
        assert tab.page.evaluate("window.hacked") is None
        assert tab.complaints == []

        # The one that was declined may still be accepted. No command is on the page.
        assert "You declined it on" in read_offer(tab, "lungs")
        tab.page.get_by_role("button", name="Accept: lungs").click()
        stands(tab, "lungs", "accepted")
        for name in ("lungs", "retina"):
            read_offer(tab, name)
            words = tab.page.locator("body").inner_text()
            assert not re.search(r"`|\btacit (offers|join|show)|\d[eE]-\d", words)


@pytest.mark.exhaustive
def test_an_owner_consents_to_what_offers_cost_together(tmp_path: Path, browser: Browser) -> None:
    with federation(tmp_path, members=1) as (host, (member,)):
        url = joined_with_page(host, member, lifetime=8.0)
        submit(host, tmp_path, "big-a", "big-b")
        tab = page_of_owner(browser, member, url)
        asked(tab)
        # Given: both are read, and one of them is accepted
        other = page_of_owner(browser, member, url)
        asked(other)
        assert "0 % is promised" in read_offer(tab, "big-b")
        read_offer(other, "big-a")
        other.page.get_by_role("button", name="Accept: big-a").click()
        stands(tab, "big-a", "accepted")
        # When
        tab.page.get_by_role("button", name="Accept: big-b").click()
        # Then: nothing is accepted, and the figures that hold now are shown
        tab.page.locator("#changed", has_text="has changed since you were shown it").wait_for()
        focused(tab, "changed")
        stands(tab, "big-b", "waits for you")
        text = tab.page.locator("#sections").inner_text()
        assert "to big-a, which is accepted" in text
        assert "your bound stops it there" in text
        assert "Known: you have confirmed this key" in text
        assert re.search(r"promised 6\d %", tab.page.locator("#bound").inner_text())
        tab.page.get_by_role("button", name="Accept: big-b").click()
        stands(tab, "big-b", "accepted")
        tab.page.locator("#bound", has_text="More is promised than there is").wait_for()
        tab.page.locator("#bound", has_text="left 0 %").wait_for()


def test_the_page_is_its_owners_alone(tmp_path: Path) -> None:
    with federation(tmp_path, members=1) as (host, (member,)):
        url = joined_with_page(host, member)
        host.tacit("submit", run_file(tmp_path, count=1), "--federation", host.place)
        member.wait_for_text("join.log", "run waits for its owner")
        assert (member.state / "page-token").stat().st_mode & 0o077 == 0
        assert f"(its token is in {member.state.resolve() / 'page-token'})" in member.text(
            "join.log"
        )
        with httpx.Client(base_url=url) as stranger:
            paths = (
                "me",
                "offers",
                "offers/run",
                "ledger",
                "departures",
                "departures/run?before=1",
            )
            assert {stranger.get(f"/v1/{path}").status_code for path in paths} == {401}
            assert str(member.state) not in stranger.get("/").text
            answer = stranger.post("/v1/offers/run/accept", json={"fingerprint": "0" * 64})
            assert answer.status_code == 401
            assert stranger.get("/v1/me", headers={"Host": "evil.example"}).status_code == 421
        owner = {"Authorization": f"Bearer {owner_token(member)}"}
        with httpx.Client(base_url=url, headers=owner) as client:
            assert client.get("/v1/me").json()["name"] == member.name
            for path in ("offers/none", "offers/..%2F..", "offers/a%2Fb"):
                assert client.get(f"/v1/{path}").status_code in (404, 405, 422)
            # What is accepted is what was shown.
            offered = client.get("/v1/offers/run").json()
            answer_to = {part: offered[part] for part in ("fingerprint", "costs")}
            for changed in ({"fingerprint": "0" * 64}, {"costs": "0" * 64}, {"costs": None}):
                stale = client.post("/v1/offers/run/accept", json=answer_to | changed)
                assert stale.status_code == 409
            assert client.post("/v1/offers/run/accept", json=answer_to).status_code == 200
        host.wait_run("run", lambda run: run["members"])
        other = Member(tmp_path / "other", 9, "Other")
        refused = other.tried(
            *host.join_words(), "--data", other.rows, "--state", other.state,
            "--page", "0.0.0.0:8100",
        )  # fmt: skip
        assert refused.returncode == 2
        assert "for this machine alone" in refused.stderr


def test_an_open_page_says_that_its_member_was_started_again(
    tmp_path: Path, browser: Browser
) -> None:
    with federation(tmp_path, members=1) as (host, (member,)):
        url = joined_with_page(host, member)
        tab = page_of_owner(browser, member, url)
        before = owner_token(member)
        assert member.joined is not None
        member.kill()
        tab.page.locator("#lost", has_text="does not answer").wait_for()
        member.start_again()
        tab.page.locator("#locked-said", has_text="was started again").wait_for()
        assert "full path when it" in tab.page.locator("#locked").inner_text()
        focused(tab, "read-token")
        assert owner_token(member) != before
        tab.unlock(owner_token(member)).page.locator("#summary:visible").wait_for()


def test_older_messages_are_shown_when_they_are_asked_for(tmp_path: Path, browser: Browser) -> None:
    with federation(tmp_path, members=1) as (host, (member,)):
        url = joined_with_page(host, member)
        folder = member.state / "runs" / "retina"
        folder.mkdir(parents=True)
        lines = [
            json.dumps({"at": 1_800_000_000 + n, "what": "messages", "bytes": n})
            for n in range(250)
        ]
        (folder / "left.jsonl").write_text("\n".join(lines) + "\n")
        tab = page_of_owner(browser, member, url)
        for count in (100, 200):
            tab.page.locator("#left-shown", has_text=f"The latest {count} of 250").wait_for()
            assert tab.page.locator("#left li").count() == count
            tab.page.locator("#older").click()
        tab.page.locator("#left-shown", has_text="All 250 messages").wait_for()
        texts = tab.page.locator("#left li span").all_inner_texts()
        assert texts == [f"retina: messages, {n} bytes" for n in reversed(range(250))]
        assert tab.page.locator("#older").is_hidden()


@pytest.mark.exhaustive
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_everybody_can_read_it(tmp_path: Path, browser: Browser, scheme: str) -> None:
    with federation(tmp_path, members=1) as (host, (member,)):
        url = joined_with_page(host, member)
        submit(host, tmp_path, "run", "accepted")
        for name in ("run", "accepted"):
            member.wait_for_text("join.log", f"run {name} waits for its owner")
        member.tacit("offers", "accept", "accepted", "--state", member.state)
        for viewport in (None, PHONE):
            more = {} if viewport is None else {"viewport": viewport, "has_touch": True}
            tab = Shown(browser, url, color_scheme=scheme, bypass_csp=True, **more)
            assert tab.barriers() == []
            tab.unlock(owner_token(member)).page.wait_for_selector("#offers > li")
            # By keyboard alone: read it, and close it again.
            read = tab.page.get_by_role("button", name="Read the offer run")
            read.focus()
            tab.page.keyboard.press("Enter")
            tab.page.wait_for_selector("#offer:not([hidden])")
            focused(tab, "offer-title")
            assert tab.barriers() == []
            if viewport is not None:
                buttons = tab.page.locator("button:visible").all()
                assert {"Withdraw", "Accept"} <= {button.inner_text() for button in buttons}
                for button in buttons:
                    box = button.bounding_box()
                    assert box is not None
                    assert box["height"] >= TOUCH
                    assert box["x"] >= 0
                    assert box["x"] + box["width"] <= viewport["width"]
            tab.page.locator("#close").focus()
            tab.page.keyboard.press("Enter")
            assert tab.page.locator("#offer").is_hidden()
