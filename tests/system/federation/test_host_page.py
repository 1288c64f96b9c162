"""The host's page in a real browser: runs and members, for whoever has a token, and what they may do."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser
from tacit_services.versions import own_version

from tests.helpers.browser import EVIL, PHONE, Shown
from tests.helpers.federation import Host, federation, run_file, run_text, write_rows
from tests.helpers.federation_pages import invited, operator_token, page_of_host

pytestmark = pytest.mark.slow
WITHIN = 'accept = "within"\nlifetime_epsilon = 8.0'
DEEP = {"path": {"is": [{"deep": EVIL}]}}  # for a log whose lines somebody else has written


def submitted(tab: Shown, run: Path | dict[str, Any], *files: Path | dict[str, Any]) -> None:
    """Fill in the form that starts a run, and send it by the keyboard."""
    tab.page.locator("#run-file").set_input_files(run)  # type: ignore[arg-type]
    tab.page.locator("#files").set_input_files(list(files))  # type: ignore[arg-type]
    tab.page.locator("#send").focus()
    tab.page.keyboard.press("Enter")


def text_file(name: str, text: str) -> dict[str, Any]:
    """Return a file of a browser's."""
    return {"name": name, "mimeType": "text/plain", "buffer": text.encode()}


def state_of(tab: Shown, run: str, state: str) -> str:
    """Wait until a run stands so on the page; returns its row."""
    line = tab.page.locator(
        "#runs tbody tr", has=tab.page.get_by_role("link", name=run, exact=True)
    )
    line.locator(".pill", has_text=state).wait_for()
    return line.inner_text()


def test_a_run_is_started_begun_and_stopped_by_the_page_alone(
    tmp_path: Path, browser: Browser
) -> None:
    with federation(tmp_path, members=2) as (host, sites):
        sites[1].name = EVIL
        for site, policy in zip(sites, (WITHIN, f"{WITHIN}\nmax_epsilon = 1.0"), strict=True):
            site.join(host, policy)
        # A researcher starts a run, with a public test set, and is told for whom it waits.
        run = run_file(tmp_path, count=2, updates=100_000, epsilon=6.0)
        run.write_text(run.read_text().replace("rows = 400", 'rows = 400\ntest = "public.csv"'))
        ada = page_of_host(browser, host).unlock(invited(host, "ada", "researcher")).looked()
        ada.page.locator("#run-name").fill("retina")
        submitted(ada, run, write_rows(tmp_path / "public.csv", seed=9))
        ada.page.locator("#sent", has_text="retina is offered").wait_for()
        assert (host.place / "runs" / "retina" / "files" / "public.csv").is_file()
        state_of(ada, "retina", "waiting")
        ada.page.locator("#runs td", has_text=f"{EVIL} (policy)").wait_for()
        ada.page.get_by_role("button", name="Begin the run retina now").click()
        assert "training" in state_of(ada, "retina", "training")
        host.wait_run("retina", lambda stands: stands["applied"] > 3)
        assert ada.page.locator("#done").is_hidden()

        # The screen of the owner says who has signed.
        screen = sites[0].tacit("offers", "show", "retina", "--state", sites[0].state)
        assert "signed by" in screen

        # A reader sees all, and can do nothing.
        reader = page_of_host(browser, host).unlock("nobodys-token-at-all")
        reader.page.locator("#locked-said", has_text="not a token").wait_for()
        assert reader.rows("runs") == []
        reader.unlock(invited(host, "eve", "reader")).looked()
        ((name, _, updates, members, refused, by),) = reader.rows("runs")
        assert (name, members, refused, by) == ("retina", "Site 0", f"{EVIL} (policy)", "ada")
        assert updates.endswith("of 100000")
        assert reader.text("me") == "as eve, reader"
        assert reader.page.locator("main button:visible").count() == 0
        listed = {row[0]: row for row in reader.rows("members")}
        assert set(listed) == {"Site 0", EVIL}
        assert listed[EVIL][4] == own_version()
        assert listed[EVIL][5] != ""

        # The run's own page is behind its name, through the host.
        reader.page.locator("#runs a").click()
        reader.unlock(invited(host, "bob", "researcher").partition(".")[0])
        reader.page.locator("#lost", has_text="there is none of this name").wait_for()
        of_run = page_of_host(browser, host, "/runs/retina/").unlock(operator_token(host))
        assert of_run.at_version(1).text("run") == "retina"
        assert "over all runs of the data" in of_run.text("epsilon-more")
        assert "limit of this one 6" in of_run.page.locator("#edges tbody").inner_text()

        # The operator stops it, and sees what everybody did.
        operator = page_of_host(browser, host).unlock(operator_token(host)).looked()
        operator.page.on("dialog", lambda dialog: dialog.accept(EVIL))
        operator.page.get_by_role("button", name="Stop the run retina").click()
        assert EVIL in state_of(operator, "retina", "stopped")
        audit = operator.page.locator("#audit")
        audit.locator("li", has_text=f"operator stopped, run retina, reason {EVIL}").wait_for()
        assert f"{EVIL} (" in audit.inner_text()
        assert "ada submitted, run retina" in audit.inner_text()
        assert "signed_by host" in audit.inner_text()
        for tab in (ada, reader, of_run, operator):
            assert tab.page.evaluate("window.hacked") is None
            assert tab.complaints == []


def wrong(tab: Shown, run: dict[str, Any], *files: dict[str, Any]) -> list[str]:
    """Submit what is refused; returns all that is said to be wrong."""
    submitted(tab, run, *files)
    tab.page.locator("#faults:visible").wait_for()
    return tab.page.locator("#faults-list li").all_inner_texts()


@pytest.mark.exhaustive
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_everybody_can_use_the_page(tmp_path: Path, browser: Browser, scheme: str) -> None:
    good = run_text(updates=5, epsilon=2.0, count=1)
    bad = good.replace("epsilon = 2.0", f"epsilon = '{EVIL}'").replace("count =", "cuont =")
    coded = good.replace('name = "mapa"', 'name = "mapa"\n[evaluation]\nmetrics = ["os:system"]')
    with federation(tmp_path, members=0) as (host, _):
        hostile_log(host)
        for name, viewport in (("wide", None), ("narrow", PHONE)):
            more: dict[str, Any] = {} if viewport is None else {"viewport": viewport}
            tab = page_of_host(browser, host, color_scheme=scheme, bypass_csp=True, **more)
            tab.page.locator("#locked:visible").wait_for()
            assert tab.barriers() == []
            tab.unlock(operator_token(host)).looked()
            tab.page.locator("#audit li", has_text=EVIL).first.wait_for()

            # All that is wrong stands beside the form, and nothing of it is markup.
            faults = wrong(tab, text_file("run.toml", bad))
            assert len(faults) == 2
            assert any(EVIL in fault for fault in faults)
            assert tab.barriers() == []
            (fault,) = wrong(tab, text_file("run.toml", good), text_file(f"{EVIL}.csv", "a,b\n"))
            assert EVIL in fault
            (fault,) = wrong(tab, text_file("run.toml", coded))
            assert "os:system: is code" in fault
            (fault,) = wrong(tab, text_file("run.toml", "\0"))
            assert "not TOML" in fault

            # Mended, it is offered; whoever uses the keyboard keeps their place when it changes.
            tab.page.locator("#run-name").fill(name)
            submitted(tab, text_file("run.toml", good))
            tab.page.locator("#sent", has_text=f"{name} is offered").wait_for()
            assert tab.page.locator("#faults").is_hidden()
            stops = tab.page.get_by_role("button", name=f"Stop the run {name}")
            stops.focus()
            host.tacit(
                "submit", run_file(tmp_path), "--name", f"{name}-2", "--federation", host.place
            )
            state_of(tab, f"{name}-2", "offered")
            assert tab.page.evaluate("document.activeElement.getAttribute('aria-label')") == (
                f"Stop the run {name}"
            )
            assert tab.barriers() == []
            tab.page.on("dialog", lambda dialog: dialog.accept("enough"))
            tab.page.keyboard.press("Enter")
            state_of(tab, name, "stopped")
            assert tab.page.evaluate("window.hacked") is None


def hostile_log(host: Host) -> None:
    """Write lines into the audit log that no host writes."""
    with (host.place / "audit.jsonl").open("a") as file:
        lines: list[Any] = [{"at": 1.0, "who": EVIL, "did": EVIL, **DEEP}, {"at": EVIL}, [], {}]
        file.write("".join(f"{json.dumps(line)}\n" for line in lines))
