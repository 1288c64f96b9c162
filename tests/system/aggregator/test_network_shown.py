"""The aggregator shows a graph's layers, to programs and on its page, and runs none of its names."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from xml.etree import ElementTree

import httpx
import pytest
from axe_playwright_python.sync_playwright import Axe

from tacit import config
from tacit.graphs.graph_facts import document_of, facts_of
from tacit.graphs.graph_file import GraphFile
from tacit.graphs.graph_picture import picture
from tests.helpers.browser import EVIL as MARKUP
from tests.helpers.browser import Shown, chromium
from tests.helpers.graphs import frozen_case
from tests.helpers.rest import Rig, problem, served
from tests.helpers.run_files import toml

EVIL = f"{MARKUP}\u202e"
RUN = toml(
    run={"updates": 6},
    data={
        "kind": "arrays", "dataset": None, "train": "rows.npz", "shape": [5, 8], "low": 0.0,
        "high": 1.0, "classes": 3, "rows": 100, "rows_max": 100,
    },
    model={"name": "graph", "file": "net.graph.json", "trainable": ["2.*"]},
    algorithm={"name": "mapa", "learning_rate": 1.0, "max_staleness": 2},
    privacy={"noise_multiplier": 1.0, "clip": 1.0, "batch": 32},
    edges={"count": 3},
)  # fmt: skip


@pytest.fixture
def graph() -> GraphFile:
    """Return an encoder whose lines somebody has written who means harm."""
    encoder = frozen_case("encoder").graph
    nodes = tuple(node.model_copy(update={"line": EVIL}) for node in encoder.nodes)
    return encoder.model_copy(update={"nodes": nodes})


@pytest.fixture
def url(tmp_path: Path, graph: GraphFile) -> Iterator[str]:
    (tmp_path / "net.graph.json").write_text(graph.text())
    (tmp_path / "net.safetensors").write_bytes(frozen_case("encoder").file)
    (tmp_path / "run.toml").write_text(RUN)
    with served(Rig(tmp_path, run=config.load(tmp_path / "run.toml"))) as base_url:
        yield base_url


def test_programs_read_what_tacit_show_prints(url: str, graph: GraphFile) -> None:
    assert httpx.get(f"{url}/v1/model").json()["graph"] is True
    layers = httpx.get(f"{url}/v1/model/graph").json()
    own = json.loads(json.dumps(document_of(facts_of(graph))))
    # The run trains the last layer alone, and its definition has the SHA-256 of the file.
    assert (layers["trained"], layers["fixed"]) == (123, 1200)
    assert layers["sha256"] == graph.digest()
    for key in ("example", "output", "multiply_adds", "operations", "repeats"):
        assert layers[key] == own[key]
    assert [row["reads"] for row in layers["layers"]] == [row["reads"] for row in own["layers"]]


def test_its_picture_is_an_image_that_can_do_nothing(url: str) -> None:
    answer = httpx.get(f"{url}/v1/model/picture")
    assert answer.headers["content-type"].startswith("image/svg+xml")
    assert answer.headers["content-security-policy"].startswith("default-src 'none'")
    assert answer.headers["x-content-type-options"] == "nosniff"
    names = {each.tag.rpartition("}")[2] for each in ElementTree.fromstring(answer.text).iter()}
    assert names == {"svg", "title", "style", "rect", "path", "text"}
    tag = answer.headers["etag"]
    again = httpx.get(f"{url}/v1/model/picture", headers={"If-None-Match": tag})
    assert again.status_code == 304


def test_a_run_of_another_model_has_no_layers(tmp_path: Path) -> None:
    with served(Rig(tmp_path)) as base_url:
        assert httpx.get(f"{base_url}/v1/model").json()["graph"] is False
        for part in ("graph", "picture"):
            assert "no graph" in problem(httpx.get(f"{base_url}/v1/model/{part}"), 404)


@pytest.mark.slow
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_page_shows_its_layers_and_its_picture(url: str, scheme: str) -> None:
    with chromium() as browser:
        tab = Shown(browser, url, color_scheme=scheme).at_version(0)
        assert "123 numbers are trained, 1,200 fixed" in tab.text("network-words")
        for summary in tab.page.locator("#network summary").all():
            summary.click()
        rows = tab.page.locator("#layers tbody tr").all()
        cells = [[cell.inner_text() for cell in row.locator("td").all()] for row in rows]
        assert cells[0] == [
            "1", "0.layers.0.self_attn (1 to 8: 2 times)", "linear, scaled_dot_product_attention",
            "0", "5×8", "", "216", "1,360",
        ]  # fmt: skip
        assert cells[2][1] == EVIL.replace("\u202e", "?")
        assert cells[-1] == ["9", "2", "linear", "8", "3", "123", "", "120"]
        texts = tab.page.locator("#drawing text").all_text_contents()
        assert {"the example", "2×", "216 fixed", "123 trained", "the output"} <= set(texts)
        assert tab.page.locator("#drawing svg").bounding_box() is not None
        # No colour is the browser's own: the page's style sheet is what the picture has.
        assert (
            tab.page.locator("#drawing .path").first.evaluate("e => getComputedStyle(e).fill")
            == "none"
        )
        assert tab.page.evaluate("window.hacked") is None
        assert tab.page.locator("#network img, #network script, #network style").count() == 0
        assert tab.complaints == []
        seen = Axe().run(tab.page, context="#network")
        assert seen.violations_count == 0, seen.generate_report()


def test_a_picture_of_the_page_is_the_one_that_is_written(url: str, graph: GraphFile) -> None:
    drawn = httpx.get(f"{url}/v1/model/picture").text
    assert drawn.count("<rect") == picture(facts_of(graph)).count("<rect")
