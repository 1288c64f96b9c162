"""The page at `/` in a real browser: it says what REST says, and does nothing that it should not."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest
from playwright.sync_api import Browser

from tacit import rounding
from tests.helpers.browser import EVIL, PHONE, SERIOUS, Shown
from tests.helpers.rest import TOKEN, Rig, served
from tests.helpers.servers import wait_for
from tests.system.aggregator.test_shares import shown as shown_run

pytestmark = pytest.mark.slow
SNAPSHOTS = Path(__file__).parent.parent.parent / "snapshots"


@pytest.fixture
def rig(tmp_path: Path) -> Rig:
    page_rig = Rig(tmp_path)
    for edge in ("edge-0", "edge-1", "edge-2"):
        page_rig.hello(edge)
    page_rig.update("edge-0")
    page_rig.update("edge-1", pushes=2)
    page_rig.run_status.point(0, 0.1, 2.3, 10, {"accuracy": 0.1})
    page_rig.run_status.point(2, 0.625, 1.25, 10, {"accuracy": 0.625})
    return page_rig


@pytest.fixture
def url(rig: Rig) -> Iterator[str]:
    with served(rig) as base_url:
        yield base_url


def said_of(edges: list[dict[str, Any]]) -> list[list[str]]:
    """Return the same rows, from what REST answers."""
    return [
        [
            edge["id"],
            edge["state"],
            f"{spent(edge['epsilon_pld'], bound=edge['bound'])} of {edge['budget']:g}",
            f"{edge['pushes']:,}",
            f"{edge['updates']:,}",
        ]
        for edge in edges
    ]


def spent(epsilon: float, *, bound: bool) -> str:
    """Return ε, as the page writes it."""
    return f"{'≤ ' if bound else ''}{rounding.epsilon(epsilon)}"


def test_the_page_writes_epsilon_as_python_does(browser: Browser, url: str) -> None:
    vectors = json.loads(SNAPSHOTS.joinpath("epsilon.json").read_text())
    write = """async values => {
        const { epsilon } = await import("/page/words.js");
        return values.map(value => epsilon(value, false));
    }"""
    page = Shown(browser, url).page
    assert page.evaluate(write, [value for value, _ in vectors]) == [text for _, text in vectors]
    odds = """async values => {
        const { times } = await import("/page/words.js");
        return values.map(value => times(Math.exp(value)));
    }"""
    values = [step / 8 for step in range(1, 150)]
    assert page.evaluate(odds, values) == [rounding.odds(value) for value in values]


def test_the_sheet_names_the_answers_that_a_run_was_begun_from(browser: Browser, url: str) -> None:
    tab = Shown(browser, url).at_version(2)
    assert "Learnt before" not in tab.text("released-words")
    shown = """async ([status, edges, learnt]) => {
        const { released } = await import("/page/words.js");
        const sheet = document.createElement("div");
        released(sheet, status, edges, learnt);
        return sheet.textContent;
    }"""
    status, edges = (httpx.get(f"{url}/v1/{name}").json() for name in ("status", "edges"))
    learnt = {"answers": "5e" * 32, "questions": 6, "edges": 1, "epsilon": 0.2, "delta": 1e-5}
    text = tab.page.evaluate(shown, [status, edges, learnt])
    assert "come of the answers of 1 edge to 6 questions, at ε 0.2 and δ = 10⁻⁵ together" in text
    status["privacy"]["counts"] = "all runs of the data"
    joint = tab.page.evaluate(shown, [status, edges, learnt])
    assert "ε above counts them, too, where the same ledger paid for both" in joint
    assert "counts them" not in text


def agrees(tab: Shown, url: str) -> None:
    """Check that every number of the page is that of REST at the same moment."""
    status = httpx.get(f"{url}/v1/status").json()
    tab.at_version(status["model_version"])
    assert tab.text("run") == status["run"]
    assert tab.text("state") == status["state"]
    assert tab.text("applied") == f"{status['applied']:,} of {status['target']:,}"
    assert tab.text("online") == f"{status['edges_online']} of {status['edges']}"
    privacy = status["privacy"]
    assert tab.text("epsilon") == f"ε {spent(privacy['epsilon'], bound=privacy['bound'])}"
    if status["test_accuracy"] is not None:
        assert tab.text("metric") == f"{100 * status['test_accuracy']:.2f} %"
        loss = float(format(status["test_loss"], ".4g"))
        assert f"loss {loss:g}" in tab.text("metric-more")
    edges = httpx.get(f"{url}/v1/edges").json()
    assert tab.rows("edges") == said_of(edges)
    released = sum(edge["pushes"] for edge in edges)
    assert f"{released:,}, by {len(edges)} edges" in tab.text("released-words")
    for fact in (
        status["model_sha256"][:16],
        f"{status['rejected']:,} rejected, {status['stale']:,} too old",
        f"{status['duplicates']:,}, each counted once",
    ):
        assert fact in tab.text("facts")


def soon(tab: Shown, url: str) -> None:
    """Wait until the page agrees with REST, which it does once it has heard of the last change."""

    def so() -> bool:
        try:
            agrees(tab, url)
        except AssertionError:
            return False
        return True

    wait_for(so)


def test_every_number_is_the_one_that_rest_says(browser: Browser, rig: Rig, url: str) -> None:
    tab = Shown(browser, url)
    agrees(tab, url)
    assert "10.00 % at 0 updates, 62.50 % at 2 updates" in tab.text("chart-words")
    assert tab.page.locator("#chart canvas").count() == 1
    tab.page.select_option("#against", "epsilon")  # what the accuracy has cost
    wait_for(lambda: "at ε " in tab.text("chart-words"))
    assert tab.text("chart-words").startswith("accuracy: 10.00 % at ε ")
    assert tab.page.locator("#chart canvas").count() == 1
    rig.update("edge-2")  # seen without asking again
    agrees(tab, url)
    assert tab.complaints == []


def test_events_stand_with_the_servers_time_and_the_latest_first(
    browser: Browser, rig: Rig, url: str
) -> None:
    rig.live.presence["edge-1"] = "left"
    tab = Shown(browser, url).at_version(2)
    wait_for(lambda: "edge-1 has left" in tab.text("events"))
    shown = tab.page.locator("#events li span").all_inner_texts()
    log = httpx.get(f"{url}/v1/log").json()
    points = httpx.get(f"{url}/v1/series").json()
    latest = sorted([*log, *points], key=lambda event: str(event["at"]))[::-1]
    texts = [event.get("text") for event in latest]
    assert [text for text in shown if not text.startswith("evaluated")] == list(filter(None, texts))
    assert shown[-1] == "the aggregator begins"
    assert "earlier" not in tab.text("events")


def test_a_run_that_waits_says_how_many_of_its_edges_are_there(
    browser: Browser, rig: Rig, url: str
) -> None:
    rig.needed = 5
    tab = Shown(browser, url)
    online = httpx.get(f"{url}/v1/status").json()["edges_online"]
    tab.page.wait_for_selector(f"#state:text-is('waiting for edges: {online} of 5')")


def test_what_an_attacker_named_stays_text(browser: Browser, rig: Rig, url: str) -> None:
    rig.live.presence["edge-1"] = "refusing"
    for name, record in list(rig.role.edges.items()):
        if name != "edge-0":
            retired = EVIL if name == "edge-2" else ""
            rig.role.edges[name] = replace(record, retired=retired)
            object.__setattr__(record.hello, "refusal", EVIL)
    rig.role.edges[EVIL] = rig.role.edges["edge-0"]
    rig.live.role.halt_reason = EVIL
    tab = Shown(browser, url).at_version(2)
    tab.page.wait_for_selector(f"#edges th:text-is('{EVIL}')")
    assert tab.page.locator("#edges .why", has_text=EVIL).count() >= 2
    assert EVIL in tab.text("facts")
    assert EVIL in tab.text("events")
    assert tab.page.evaluate("window.hacked") is None
    assert tab.page.locator("img[src=x]").count() == 0
    assert tab.complaints == []


def test_nothing_runs_that_the_policy_does_not_allow(browser: Browser, url: str) -> None:
    tab = Shown(browser, url).at_version(2)
    tab.page.evaluate(
        "() => { const s = document.createElement('script'); s.textContent = 'window.ran = 1';"
        " document.body.append(s); }"
    )
    assert tab.page.evaluate("window.ran") is None
    assert tab.complaints != []  # the control: a violation is heard
    policy = httpx.get(url).headers["content-security-policy"]
    assert policy.startswith("default-src 'none'; script-src 'self';")
    assert "unsafe" not in policy
    hosts = tab.page.evaluate(
        "performance.getEntriesByType('resource').map(one => new URL(one.name).host)"
    )
    assert set(hosts) == {url.removeprefix("http://")}


@pytest.mark.parametrize("more", [{}, {"color_scheme": "dark"}, {"viewport": PHONE}])
def test_nothing_stands_in_the_way_of_anybody(
    browser: Browser, url: str, more: dict[str, Any]
) -> None:
    tab = Shown(browser, url, **more).at_version(2)
    tab.page.locator("details").evaluate_all("all => all.forEach(one => one.open = true)")
    assert tab.barriers(*SERIOUS) == []


def test_it_is_used_by_the_keyboard_alone(browser: Browser, rig: Rig, url: str) -> None:
    tab = Shown(browser, url).at_version(2)
    reached: list[str] = []
    for _ in range(20):
        tab.page.keyboard.press("Tab")
        reached.append(
            tab.page.evaluate("document.activeElement.id || document.activeElement.tagName")
        )
        if reached[-1] == "SUMMARY":
            tab.page.keyboard.press("Enter")
    order = [name for name in reached if name in ("filter", "print", "token", "reason", "halt")]
    assert order[:5] == ["filter", "print", "token", "reason", "halt"]


def test_the_operator_ends_the_run_with_the_token_alone(
    browser: Browser, rig: Rig, url: str
) -> None:
    tab = Shown(browser, url).at_version(2)
    tab.page.get_by_text("For the operator").click()
    tab.page.fill("#token", "wrong")
    tab.page.click("#halt")
    tab.page.wait_for_selector("#said:has-text('Refused')")
    assert not rig.role.halted
    tab.page.fill("#token", TOKEN)
    tab.page.fill("#reason", "enough")
    tab.page.click("#halt")
    tab.page.wait_for_selector("#said:has-text('Done')")
    assert rig.role.halt_reason == "enough"
    stored = tab.page.evaluate("[localStorage.length, sessionStorage.length, document.cookie]")
    assert stored == [0, 0, ""]


def test_an_edge_in_quarantine_is_released_with_the_token(browser: Browser, tmp_path: Path) -> None:
    rig = Rig(tmp_path, more="[guard]\nquarantine_after = 1\n")
    for edge in ("edge-0", "edge-1"):
        rig.hello(edge)
    rig.update("edge-0")
    rig.live.guard.refused("edge-1", "norm")
    with served(rig) as url:
        tab = Shown(browser, url).at_version(1)
        first, second = (row[1].split() for row in tab.rows("edges"))
        assert first == ["online"]
        assert (second[0], second[-1]) == ("quarantined", "release")
        assert "(the last: norm)" in " ".join(second)
        tab.page.get_by_text("For the operator").click()
        tab.page.fill("#token", TOKEN)
        tab.page.get_by_role("button", name="release edge-1").click()
        wait_for(lambda: "edge-1" not in rig.reading().quarantined)


@pytest.mark.parametrize("ledgers", [0, 2])
def test_the_sheet_says_that_people_are_taken_for_others(
    browser: Browser, tmp_path: Path, ledgers: int
) -> None:
    rig = Rig(tmp_path)
    stated = rig.run_status.definition.promise
    rig.run_status.definition = replace(
        rig.run_status.definition, promise=replace(stated, apart=ledgers)
    )
    rig.hello("edge-0")
    rig.update("edge-0")
    with served(rig) as url:
        tab = Shown(browser, url).at_version(1)
        words = tab.text("released-words")
        assert ("those of 2 other ledgers, on the owner's word" in words) == bool(ledgers)
        assert "because an edge's owner says so (data.apart_from)" in words  # in any case


def thousand(folder: Path) -> Rig:
    """Return a rig of 1,000 edges, one of which has pushed."""
    rig = Rig(folder, more="[run]\nupdates = 100\n")
    rig.hello("edge-0")
    rig.update("edge-0")
    for number in range(1, 1000):
        rig.role.edges[f"edge-{number}"] = type(rig.role.edges["edge-0"])(
            rig.role.edges["edge-0"].hello
        )
        rig.live.presence[f"edge-{number}"] = "online"
    return rig


MEASURE = """() => {
  window.written = 0; window.long = [];
  new MutationObserver(all => { window.written += all.length; }).observe(
    document.querySelector('#edges tbody'),
    {subtree: true, childList: true, characterData: true, attributes: true});
  new PerformanceObserver(all => { for (const one of all.getEntries()) window.long.push(one.duration);
  }).observe({type: 'longtask', buffered: true});
}"""


def measured(browser: Browser, rig: Rig, url: str) -> tuple[float, float]:
    """Return the milliseconds to the first paint, and of the longest task while edges push."""
    tab = Shown(browser, url).at_version(rig.role.version)
    assert tab.page.locator("#edges tbody tr").count() == 1000
    assert tab.text("online") == "1,000 of 1,000"
    tab.page.evaluate(MEASURE)
    for edge in range(7, 14):  # an event is at least half a second apart from the one before
        rig.update(f"edge-{edge}", pushes=rig.role.version)
        tab.at_version(rig.role.version)
    assert 0 < tab.page.evaluate("window.written") < 7 * 40  # what moves is written alone
    painted = tab.page.evaluate(
        "performance.getEntriesByName('first-contentful-paint')[0].startTime"
    )
    return painted, tab.page.evaluate("Math.max(0, ...window.long)")


@pytest.mark.exhaustive
def test_a_thousand_edges_are_shown_at_once_and_no_event_holds_the_page_up(
    browser: Browser, tmp_path: Path
) -> None:
    rig = thousand(tmp_path)
    with served(rig) as url:
        tries = [measured(browser, rig, url) for _ in range(3)]
    painted, longest = (min(values) for values in zip(*tries, strict=True))  # the machine's own
    print(f"1,000 edges: first paint {painted:.0f} ms, longest task {longest:.0f} ms")  # noqa: T201
    assert painted < 1000
    assert longest < 200


def test_every_number_is_right_after_the_aggregator_was_killed_and_came_back(
    browser: Browser, tmp_path: Path
) -> None:
    with shown_run(tmp_path, 3000, "wait = 1.0") as (run, api):
        first = api.begin()
        edges = [run.edge(0), run.edge(1)]
        api.wait(lambda status: status.applied >= 50)
        url = f"http://{api.address}"
        tab = Shown(browser, url).at_version(50)
        first.kill()
        tab.page.wait_for_selector("#lost:visible")
        assert "goes on trying" in tab.text("lost")
        api.begin()
        before = api.wait(lambda status: status.applied >= 100).applied
        tab.page.wait_for_selector("#lost", state="hidden")
        tab.at_version(before)
        for edge in edges:  # nothing moves any more, so there is one moment to compare
            assert edge.process is not None
            edge.process.send_signal(signal.SIGSTOP)
        soon(tab, url)
        agrees(tab, url)
        assert int(tab.text("applied").split()[0].replace(",", "")) >= before
        assert tab.complaints == []
