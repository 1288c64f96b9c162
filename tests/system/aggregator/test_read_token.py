"""The token for reading: what it opens, what it does not, and who has one without knowing it."""

from __future__ import annotations

import json
import stat
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from playwright.sync_api import Browser
from tacit_client import ApiError, Client
from tacit_services.cli import main
from tacit_services.disk.secret_file import kept_secret

from tacit.errors import ConfigError
from tests.helpers.browser import PHONE, Shown
from tests.helpers.rest import READ_TOKEN, TOKEN, Rig, problem, served

CLOSED = ["/metrics", "/v1/events"] + [
    f"/v1/{path}"
    for path in ("status", "definition", "edges", "edges/edge-0", "series", "privacy", "model")
]
OPEN = ["/", "/page/page.js", "/docs", "/openapi.json", "/healthz"]


@pytest.fixture
def rig(tmp_path: Path) -> Rig:
    locked_rig = Rig(tmp_path, read_token=READ_TOKEN)
    locked_rig.hello("edge-0")
    locked_rig.update("edge-0")
    return locked_rig


@pytest.fixture
def url(rig: Rig) -> Iterator[str]:
    with served(rig) as base_url:
        yield base_url


def bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


@pytest.mark.parametrize(
    "path", [*CLOSED, *(f"/v1/model/{part}" for part in ("weights", "graph", "picture"))]
)
def test_nothing_of_the_run_is_read_without_it(url: str, path: str) -> None:
    for token in (None, b"wrong", READ_TOKEN.encode() + b"x", b"\xff\xe9"):
        headers = {} if token is None else {b"Authorization": b"Bearer " + token}
        answer = httpx.get(url + path, headers=headers)
        assert "token for reading" in problem(answer, 401)
        assert answer.headers["www-authenticate"] == "Bearer"


@pytest.mark.parametrize("token", [READ_TOKEN, TOKEN])
def test_it_and_the_operators_read_everything(url: str, token: str) -> None:
    for path in CLOSED:
        with httpx.stream("GET", url + path, headers=bearer(token)) as answer:
            assert answer.status_code == 200, path
    with Client(url, token) as client:
        assert client.status().applied == 1
        assert client.weights()
        assert next(client.events()).applied == 1


def test_probes_and_the_pages_files_are_open(url: str) -> None:
    for path in OPEN:
        assert httpx.get(url + path).status_code == 200, path
    assert (
        httpx.get(f"{url}/readyz").status_code == 503
    )  # the rig has no broker: an answer, not 401


def test_it_writes_nothing(rig: Rig, url: str) -> None:
    for path in ("halt", "predict", "edges/edge-0/release"):
        answer = httpx.post(f"{url}/v1/{path}", json={}, headers=bearer(READ_TOKEN))
        assert "operator" in problem(answer, 401)
    assert not rig.role.halted


def test_who_has_no_token_learns_nothing_of_what_is_asked_for(rig: Rig, url: str) -> None:
    rig.live.epoch = 0  # recovering
    for path in ("status", "edges?limit=0", "edges/nobody"):
        problem(httpx.get(f"{url}/v1/{path}"), 401)


def test_openapi_says_which_token_is_for_what(url: str, tmp_path: Path) -> None:
    schema = httpx.get(f"{url}/openapi.json").json()
    assert set(schema["components"]["securitySchemes"]) == {"Read", "HTTPBearer"}
    for path, methods in schema["paths"].items():
        for method, operation in methods.items():
            schemes = (
                []
                if path in ("/healthz", "/readyz")
                else ["Read" if method == "get" else "HTTPBearer"]
            )
            assert [
                name for requirement in operation.get("security", []) for name in requirement
            ] == schemes, path
            assert ("401" in operation["responses"]) == bool(schemes), path
    (tmp_path / "other").mkdir()
    with served(Rig(tmp_path / "other")) as other:  # where reads are open, none is said to need one
        schema = httpx.get(f"{other}/openapi.json").json()
        assert set(schema["components"]["securitySchemes"]) == {"HTTPBearer"}
        assert "security" not in schema["paths"]["/v1/status"]["get"]


@pytest.mark.parametrize("command", [["status"], ["watch", "--once"], ["ledger"], ["model"]])
def test_the_commands_show_it(
    url: str,
    tmp_path: Path,
    command: list[str],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def tacit(*more: str) -> int:
        with pytest.raises(SystemExit) as end:
            main.main([*command, "--url", url, "--json", *more])
        return int(end.value.code or 0)

    monkeypatch.delenv("TACIT_READ_TOKEN_FILE", raising=False)
    (tmp_path / "read").write_text(READ_TOKEN + "\n")
    assert tacit() == 1
    assert "token for reading is missing or wrong (tacit: --token-file)" in capsys.readouterr().err
    assert tacit("--token-file", str(tmp_path / "read")) == 0
    assert json.loads(capsys.readouterr().out)
    monkeypatch.setenv("TACIT_READ_TOKEN_FILE", str(tmp_path / "read"))
    assert tacit() == 0


def test_the_client_says_what_it_lacks(url: str) -> None:
    with Client(url) as client, pytest.raises(ApiError, match="token for reading") as refused:
        client.status()
    assert refused.value.status == 401


def test_its_file_is_made_for_its_owner_alone_and_kept(tmp_path: Path) -> None:
    path = tmp_path / "new" / "read"
    first = kept_secret(path, "TACIT_READ_TOKEN_FILE")
    assert len(first) > 30
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert kept_secret(path, "TACIT_READ_TOKEN_FILE") == first
    path.write_text("short\n")
    with pytest.raises(ConfigError, match=r"TACIT_READ_TOKEN_FILE=.*fewer than 16 characters"):
        kept_secret(path, "TACIT_READ_TOKEN_FILE")


@pytest.mark.slow
def test_the_page_asks_for_it_and_keeps_it_in_memory(browser: Browser, rig: Rig, url: str) -> None:
    tab = Shown(browser, url, viewport=PHONE)
    tab.page.wait_for_selector("#locked:visible")
    assert not tab.page.locator("#applied").is_visible()
    tab.page.fill("#read-token", "wrong")
    tab.page.keyboard.press("Enter")
    tab.page.wait_for_selector("#locked-said:has-text('not the token')")
    tab.page.fill("#read-token", READ_TOKEN)
    tab.page.keyboard.press("Enter")
    tab.at_version(1)
    assert not tab.page.locator("#locked").is_visible()
    rig.update("edge-0")  # its events are shown as well
    tab.at_version(2)
    assert tab.text("applied") == "2 of 6"
    stored = tab.page.evaluate("[localStorage.length, sessionStorage.length, document.cookie]")
    assert stored == [0, 0, ""]
    tab.page.reload()
    tab.page.wait_for_selector("#locked:visible")
    assert tab.complaints == []
