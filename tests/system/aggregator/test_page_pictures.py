"""Pictures of the page: at the start of a run, in its middle and at its end, with 200 edges, on a
phone, dark, and printed. Those of docs/ are made by `TACIT_PICTURES=docs/pictures`.
"""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser

from tests.helpers.browser import PHONE, SERIOUS, Shown
from tests.helpers.rest import Rig, served

pytestmark = pytest.mark.slow
DARK: dict[str, Any] = {"color_scheme": "dark"}
SPENT = 276  # releases of a rig's edge that ε = 8 pays for
PAPER: dict[str, Any] = {"viewport": {"width": 794, "height": 1123}}  # A4 at 96 dots an inch


def begun(folder: Path, edges: int = 5, updates: int = 400) -> Rig:
    """Return a run of MAPA with all its edges, and nothing else."""
    more = f"[run]\nupdates = {updates}\n[privacy]\nepsilon = 8.0\n"
    rig = Rig(folder, more=more)
    for number in range(edges):
        rig.hello(f"edge-{number}")
    return rig


def trained(rig: Rig, updates: int, every: int = 15) -> Rig:
    """Return the run after so many updates, evaluated every `every` of them."""
    edges = len(rig.role.edges)
    for version in range(updates + 1):
        if version % every == 0 or version == updates:
            right = 0.91 - 0.8 * 0.97**version + 0.01 * (version % 4)
            rig.run_status.point(version, right, 2.3 - 2 * right, 1000, {"accuracy": right})
        if version < updates:
            base = version - version % 3  # as other edges pushed meanwhile
            rig.update(f"edge-{version % edges}", pushes=1 + version // edges, base=base)
            rig.run_status.tick(rig.role.version)
    rig.run_status._started -= updates / 5  # seconds that a run takes, and a rig does not
    return rig


def start(folder: Path) -> Rig:
    """Return a run that waits, as three of five edges are here."""
    rig = trained(begun(folder), 0)
    for edge in ("edge-3", "edge-4"):
        del rig.role.edges[edge], rig.live.presence[edge]
    rig.needed = 5
    return rig


def middle(folder: Path) -> Rig:
    """Return a run in its middle, one of whose edges is away."""
    rig = trained(begun(folder), 210)
    rig.live.presence["edge-3"] = "offline"
    return rig


def end(folder: Path) -> Rig:
    """Return a run that has reached its end, and whose edges have left."""
    rig = trained(begun(folder), 400)
    rig.run_status.end()
    for edge in rig.live.presence:
        rig.live.presence[edge] = "left"
    return rig


def many(folder: Path) -> Rig:
    """Return a run of 200 edges, a few of which do not take part just now."""
    rig = trained(begun(folder, edges=200, updates=2000), 896, every=64)
    for number in range(3, 200, 20):
        rig.live.presence[f"edge-{number}"] = "offline"
    record = rig.role.edges["edge-1"]
    object.__setattr__(record.hello, "refusal", "clip 4 is above the policy's 2")
    rig.live.presence["edge-1"] = "refusing"
    rig.update("edge-2", pushes=SPENT)
    rig.role.edges["edge-2"] = replace(rig.role.edges["edge-2"], retired="its budget is spent")
    return rig


@pytest.mark.parametrize(
    ("name", "run", "more"),
    [
        ("page-start", start, {}),
        ("page", middle, {}),
        ("page-dark", middle, DARK),
        ("page-phone", middle, {"viewport": PHONE}),
        ("page-end", end, {}),
        ("page-200", many, {}),
        ("page-200-dark", many, DARK),
    ],
)
def test_a_picture_of_the_whole_page(
    browser: Browser, tmp_path: Path, name: str, run: Any, more: dict[str, Any]
) -> None:
    rig = run(tmp_path)
    with served(rig) as url:
        tab = Shown(browser, url, **more).at_version(rig.role.version)
        assert tab.page.locator("#chart canvas").count() == 1
        tab.picture(tmp_path, name)
        if name == "page":
            tab.picture(tmp_path, "first", full_page=False)
        assert tab.barriers(*SERIOUS) == []
        assert tab.complaints == []


def test_the_sheet_for_a_privacy_officer_fits_on_one_page(browser: Browser, tmp_path: Path) -> None:
    rig = middle(tmp_path)
    with served(rig) as url:
        tab = Shown(browser, url, **PAPER).at_version(rig.role.version)
        for paper in ("A4", "Letter"):
            printed = tab.page.pdf(format=paper)
            assert len(re.findall(rb"/Type\s*/Page\b", printed)) == 1
        tab.page.emulate_media(media="print")
        assert tab.page.locator(".card:visible").count() == 1  # the sheet alone
        tab.picture(tmp_path, "sheet")
