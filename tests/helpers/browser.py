"""A real Chromium (Debian's), driven by Playwright, and what a page did in it that it should not."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from axe_playwright_python.sync_playwright import Axe
from PIL import Image
from playwright.sync_api import Browser, Page, sync_playwright

from tests.helpers.servers import PATIENCE, need

EVIL = "<img src=x onerror=window.hacked=1>"  # a name that somebody has chosen who means harm
SERIOUS = ("serious", "critical")
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
    """A page of an aggregator, a host or a member, as it stands in a browser."""

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

    def rows(self, table: str) -> list[list[str]]:
        """Return the cells of a table's rows that are seen."""
        lines = self.page.locator(f"#{table} tbody tr:visible").all()
        return [
            [cell.inner_text().strip() for cell in line.locator("th, td").all()] for line in lines
        ]

    def unlock(self, token: str) -> Shown:
        """Type a token, and return this page, which may show more now."""
        self.page.locator("#read-token").fill(token)
        self.page.keyboard.press("Enter")
        return self

    def looked(self) -> Shown:
        """Return this page, once it has shown a first look at a host or a member."""
        self.page.wait_for_selector("html[data-shown=yes]")
        return self

    def barriers(self, *impacts: str) -> list[str]:
        """Return what axe-core reports that keeps somebody out, and whether the page is too wide.

        impacts: of what is reported; none: all.
        """
        violations = Axe().run(self.page).response["violations"]
        wide = self.page.evaluate("document.scrollingElement.scrollWidth > window.innerWidth")
        reported = [each["id"] for each in violations if not impacts or each["impact"] in impacts]
        return reported + ["wider than the window"] * wide

    def picture(self, folder: Path, name: str, *, full_page: bool = True) -> None:
        """Take a picture of the whole page, or of its first view.

        It goes to docs/ where TACIT_PICTURES names that folder.
        """
        path = Path(os.environ.get("TACIT_PICTURES", folder)) / f"{name}.png"
        self.page.screenshot(path=path, full_page=full_page)
        with Image.open(path) as screenshot:
            # a quarter of the bytes, the same to the eye
            screenshot.quantize(256).save(path, optimize=True)
        assert path.stat().st_size > 5_000

    def at_version(self, version: int) -> Shown:
        """Return this page, once it has shown all of this version."""
        self.page.wait_for_function(
            "version => Number(document.documentElement.dataset.version) >= version", arg=version
        )
        return self
