"""Pictures of the pages of a federation's host and of a member's owner, for docs/.

They are made by `TACIT_PICTURES=docs/pictures`.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from playwright.sync_api import Browser

from tests.helpers.browser import SERIOUS
from tests.helpers.federation import federation, run_file
from tests.helpers.federation_pages import (
    joined_with_page,
    operator_token,
    page_of_host,
    page_of_owner,
)

RENAME = """folder => {
    const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
    while (texts.nextNode()) {
        const text = texts.currentNode;
        text.nodeValue = text.nodeValue.replaceAll(folder, "/srv/clinic");
    }
}"""
pytestmark = [pytest.mark.slow, pytest.mark.exhaustive]


def test_pictures_of_both_pages(browser: Browser, tmp_path: Path) -> None:
    with federation(tmp_path, members=2) as (host, (mary, north)):
        mary.name, north.name = "St. Mary's", "Clinic North"
        url = joined_with_page(host, mary, lifetime=8.0)
        north.join(host, 'accept = "within"\nlifetime_epsilon = 8.0\nmax_epsilon = 3.0')
        for name, epsilon in (("lungs", 2.0), ("retina", 2.0), ("skin", 6.0)):
            run = run_file(tmp_path, count=2, updates=400, epsilon=epsilon)
            host.tacit("submit", run, "--name", name, "--federation", host.place)
        for name in ("lungs", "retina"):
            host.wait_run(name, lambda stands: stands["members"])
        host.wait_run("skin", lambda stands: stands["refused"])
        mary.tacit("offers", "accept", "retina", "--state", mary.state)
        host.wait_run("retina", lambda stands: stands["applied"] > 40)
        host.tacit("stop", "lungs", "--reason", "another is better", "--federation", host.place)
        of_host = page_of_host(browser, host).unlock(operator_token(host)).looked()
        of_host.page.locator("#audit li", has_text="another is better").wait_for()
        of_owner = page_of_owner(browser, mary, url)
        of_owner.page.locator("#left li").first.wait_for()
        of_owner.page.evaluate(RENAME, str(mary.folder))
        for tab, name in ((of_owner, "owner"), (of_host, "host")):
            tab.picture(tmp_path, name)
            assert tab.barriers(*SERIOUS) == []
            assert tab.complaints == []
