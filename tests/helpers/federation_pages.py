"""The pages of a federation's host and of a member's owner, in a browser."""

from __future__ import annotations

from typing import Any

from playwright.sync_api import Browser

from tests.helpers.browser import Shown
from tests.helpers.federation import Host, Member
from tests.helpers.servers import free_port


def invited(host: Host, name: str, role: str) -> str:
    """Return a new person's token, as it is given away."""
    return host.tacit("members", "invite", name, "--role", role, "--federation", host.place).strip()


def operator_token(host: Host) -> str:
    """Return the token of the host's own operator."""
    return (host.place / "people" / "operator").read_text().strip()


def page_of_host(browser: Browser, host: Host, path: str = "/", **more: Any) -> Shown:
    """Open a page of the host, which asks for a token."""
    url = f"https://127.0.0.1:{host.port}{path}"
    return Shown(browser, url, ignore_https_errors=True, **more)


def joined_with_page(host: Host, member: Member, lifetime: float | None = None) -> str:
    """Let a member join with a page for its owner; returns its address.

    lifetime: the ε that its policy allows all runs together, or None.
    """
    address = f"127.0.0.1:{free_port()}"
    more: list[str] = []
    if lifetime is not None:
        policy = member.folder / "lifetime.toml"
        policy.write_text(f"lifetime_epsilon = {lifetime}\n")
        more = ["--policy", str(policy)]
    member.join(host, None, "--page", address, *more)
    member.wait_for_text("join.log", "page: http://")
    return f"http://{address}/"


def owner_token(member: Member) -> str:
    """Return the token of a member's page."""
    return (member.state / "page-token").read_text().strip()


def page_of_owner(browser: Browser, member: Member, url: str, **more: Any) -> Shown:
    """Open the page of a member's owner, by its token."""
    return Shown(browser, url, **more).unlock(owner_token(member)).looked()


def read_offer(tab: Shown, run: str) -> str:
    """Open an offer on its owner's page; returns what it says."""
    tab.page.get_by_role("button", name=f"Read the offer {run}").click()
    tab.page.locator("#offer-title", has_text=f"Offer {run}").wait_for()
    return tab.page.locator("#sections").inner_text()
