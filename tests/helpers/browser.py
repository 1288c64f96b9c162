"""A real Chromium (Debian's), driven by Playwright, and what a page did in it that it should not."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from playwright.sync_api import Browser, Page, sync_playwright

from tests.helpers.servers import PATIENCE, need

WIDE, PHONE = {"width": 1200, "height": 900}, {"width": 360, "height": 740}


@contextmanager
def chromium() -> Iterator[Browser]:
    """Yield a browser. Without one, skip the test, or fail it under CI."""
    path = need("chromium")
    with sync_playwright() as driver:
        # Root, as in a container, has no sandbox to give away.
        browser = driver.chromium.launch(executable_path=path, args=["--no-sandbox"])
        try:
            yield browser
        finally:
            browser.close()


class Shown:
    """The page of an aggregator, as it stands in a browser."""

    def __init__(self, browser: Browser, url: str, **more: Any) -> None:
        self.page: Page = browser.new_page(**{"viewport": WIDE, **more})
        self.page.set_default_timeout(1000 * PATIENCE)
        self.complaints: list[str] = []  # violations of the policy, and errors of the page's code
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on("console", self._heard)
        self.page.goto(url)

    def _heard(self, message: Any) -> None:
        if "Content Security Policy" in message.text:
            self.complaints.append(message.text)

    def text(self, id_: str) -> str:
        """Return the text of an element."""
        return self.page.locator(f"#{id_}").inner_text()

    def at_version(self, version: int) -> Shown:
        """Return this page, once it has shown all of this version."""
        self.page.wait_for_function(
            "version => Number(document.documentElement.dataset.version) >= version", arg=version
        )
        return self
