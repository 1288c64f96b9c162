"""The REST interface over a real socket, on a real driver and store.

Who may ask, how, and what is refused; halts, events, and the OpenAPI document.
"""

from __future__ import annotations

import http.client
import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import ExitStack, closing
from itertools import islice
from pathlib import Path
from typing import Any

import httpx
import hypothesis
import pytest
import schemathesis
from schemathesis.core.result import Ok
from tacit_services.aggregator.api.operator import WAITING, Operator
from tacit_services.aggregator.api.routes import create_app
from tacit_services.aggregator.api.run_routes import STREAMS_EACH
from tacit_services.settings import AggregatorSettings
from tacit_services.transport import http_pace

from tests.helpers.rest import TOKEN, Rig, problem, served, serving
from tests.helpers.servers import PATIENCE, wait_for
from tests.helpers.web import dial

BEARER = {"Authorization": f"Bearer {TOKEN}"}


class TestErrors:
    def test_unknown_path_and_method_are_problems(self, still: httpx.Client) -> None:
        problem(still.get("/nothing"), 404)
        refused = still.post("/v1/status")
        problem(refused, 405)
        assert refused.headers["allow"] == "GET"

    def test_large_and_unmeasured_bodies_are_refused(self, still: httpx.Client) -> None:
        problem(still.post("/v1/halt", content=b"x" * 70_000, headers=BEARER), 413)
        problem(still.post("/v1/halt", content=iter([b"{}"]), headers=BEARER), 411)

    def test_a_bug_is_a_problem_too_without_its_traceback(
        self, rig: Rig, web: httpx.Client
    ) -> None:
        del rig.role.clip
        assert problem(web.get("/v1/status"), 500) == "a bug in tacit: AttributeError"


class TestHosts:
    @pytest.mark.parametrize(
        "host", ["evil.example", "evil.example:8000", "127.0.0.1.evil.example", ""]
    )
    def test_another_name_is_refused(self, still: httpx.Client, host: str) -> None:
        assert "TACIT_HTTP_HOSTS" in problem(still.get("/v1/status", headers={"Host": host}), 421)

    @pytest.mark.parametrize(
        "host",
        ["localhost:8000", "LOCALHOST.", "a.localhost", "10.1.2.3:80", "[::1]:8000", "[::1]"],
    )
    def test_loopback_names_and_addresses_are_known(self, still: httpx.Client, host: str) -> None:
        assert still.get("/healthz", headers={"Host": host}).status_code == 200

    def test_further_names_are_a_setting(self, rig: Rig) -> None:
        settings = AggregatorSettings(run_file="x", http="tacit.lab:0", http_hosts="a.net, b.net")
        for names, host in ((settings.known_hosts(), "b.net"), (["*"], "evil.example")):
            app = create_app(rig.run_status, rig.operator, rig.model, hosts=names)
            with serving(app, rig.operator) as url:
                answer = httpx.get(f"{url}/healthz", headers={"Host": host}, trust_env=False)
                assert answer.status_code == 200

    def test_a_body_that_is_no_text_is_a_documented_400(self, still: httpx.Client) -> None:
        header = {"Content-Type": "application/json"} | BEARER
        refused = still.post("/v1/halt", content=b"\xff\xfe{}", headers=header)
        assert problem(refused, refused.status_code)
        described = still.get("/openapi.json").json()["paths"]["/v1/halt"]["post"]["responses"]
        assert str(refused.status_code) in described
        assert {"400", "421"} <= described.keys()


class TestStrangers:
    def test_streams_have_places_and_an_address_a_part_of_them(
        self, rig: Rig, web: httpx.Client
    ) -> None:
        ask = b"GET /v1/events HTTP/1.1\r\nHost: localhost\r\n\r\n"
        with ExitStack() as stack:
            for _ in range(STREAMS_EACH):
                stream = stack.enter_context(closing(dial(str(web.base_url))))
                stream.sendall(ask)
                assert stream.recv(12) == b"HTTP/1.1 200"
            refused = web.get("/v1/events")
            assert f"{STREAMS_EACH} for one address" in problem(refused, 503)
            assert web.get("/healthz").status_code == 200
        wait_for(lambda: self._streams(web))

    def test_who_asks_too_often_waits_and_the_operator_and_health_checks_do_not(
        self, rig: Rig, web: httpx.Client, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(http_pace, "BURST", 9.0)
        monkeypatch.setattr(http_pace, "RATE", 0.01)
        answers = [web.get("/openapi.json") for _ in range(10)]
        assert "of one address" in problem(answers.pop(), 429)
        described = answers.pop().json()["paths"].values()
        assert all(
            "429" in operation["responses"] for path in described for operation in path.values()
        )
        assert problem(web.get("/v1/status", headers={"Authorization": f"Bearer {TOKEN}x"}), 429)
        for path, headers in (("/healthz", {}), ("/v1/status", BEARER)):
            assert {web.get(path, headers=headers).status_code for _ in range(20)} == {200}

    def _streams(self, web: httpx.Client) -> bool:
        with web.stream("GET", "/v1/events") as answer:
            return answer.status_code == 200

    @pytest.mark.parametrize(
        "path", ["/v1/begin", "/v1/halt", "/v1/predict", "/v1/edges/edge-0/release"]
    )
    def test_without_a_token_no_body_is_waited_for(self, still: httpx.Client, path: str) -> None:
        with closing(dial(str(still.base_url))) as connection:
            head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\n"
            connection.sendall(head.encode())
            assert connection.recv(12) == b"HTTP/1.1 401"


class TestBegin:
    def test_a_run_begins_with_the_edges_that_are_there(self, rig: Rig, web: httpx.Client) -> None:
        assert "no edge" in problem(web.post("/v1/begin", headers=BEARER), 409)
        assert rig.live.scheduler.needed == 3
        rig.hello("edge-0")
        rig.hello("edge-1")
        assert rig.live.scheduler.needed == 3
        problem(web.post("/v1/begin"), 401)
        for _ in range(2):
            assert web.post("/v1/begin", headers=BEARER).json() == {"edges": 2}
        assert rig.live.scheduler.needed == 0
        web.post("/v1/halt", headers=BEARER)
        assert "over" in problem(web.post("/v1/begin", headers=BEARER), 404)


class TestHalt:
    def test_taken_once_and_again(self, rig: Rig, web: httpx.Client) -> None:
        first = web.post("/v1/halt", headers=BEARER, json={"reason": "enough"})
        again = web.post("/v1/halt", headers=BEARER)
        assert (first.status_code, again.status_code) == (202, 202)
        assert first.json() == {"state": "waiting", "reason": "enough"}
        assert again.json() == {"state": "halted", "reason": "enough"}
        assert rig.role.halt_reason == "enough"

    def test_few_wait_for_the_store_and_reads_do_not_wait_behind_them(self, rig: Rig) -> None:
        # Given a driver that enters nothing, and more writes than the server has threads,
        stuck = Operator(TOKEN, 3600.0)
        app = create_app(rig.run_status, stuck, rig.model)
        with serving(app, stuck) as url, ThreadPoolExecutor(60) as pool:

            def halt() -> httpx.Response:
                return httpx.post(f"{url}/v1/halt", headers=BEARER, trust_env=False, timeout=3600)

            try:
                futures = [pool.submit(halt) for _ in range(60)]
                # then all but a few are refused, at once: while those wait,
                refused = [
                    future.result() for future in islice(as_completed(futures), 60 - WAITING)
                ]
                assert all("wait already" in problem(answer, 503) for answer in refused)
                assert {answer.headers["retry-after"] for answer in refused} == {"1"}
                # and reads are answered.
                assert httpx.get(f"{url}/v1/status", trust_env=False).status_code == 200
                assert sum(not future.done() for future in futures) == WAITING
            finally:
                stuck.close()
            assert {future.result().status_code for future in futures} == {503}

    def test_needs_no_body(self, rig: Rig, web: httpx.Client) -> None:
        assert web.post("/v1/halt", headers=BEARER).json()["reason"] == "operator"

    @pytest.mark.parametrize(
        "header", [{}, {"Authorization": "Bearer wrong"}, {"Authorization": f"Basic {TOKEN}"}]
    )
    def test_needs_the_token(self, rig: Rig, web: httpx.Client, header: dict[str, str]) -> None:
        refused = web.post("/v1/halt", headers=header)
        problem(refused, 401)
        assert refused.headers["www-authenticate"] == "Bearer"
        assert not rig.role.halted

    @pytest.mark.parametrize(
        "path", ["/v1/begin", "/v1/halt", "/v1/predict", "/v1/edges/edge-0/release"]
    )
    @pytest.mark.parametrize("body", [b"{not json", b'{"unknown": 1}', b"[]"])
    def test_the_token_is_asked_for_before_the_body_is_read(
        self, still: httpx.Client, path: str, body: bytes
    ) -> None:
        header = {"Content-Type": "application/json"}
        problem(still.post(path, content=body, headers=header), 401)
        if "release" not in path and "begin" not in path:
            problem(still.post(path, content=body, headers=header | BEARER), 422)

    def test_without_a_configured_token_nobody_may(self, tmp_path: Path) -> None:
        rig = Rig(tmp_path, token=None)
        with served(rig) as url:
            assert "TACIT_TOKEN_FILE" in problem(
                httpx.post(f"{url}/v1/halt", headers=BEARER, trust_env=False), 403
            )
        assert not rig.role.halted

    @pytest.mark.parametrize("reason", ["", "x" * 201, "two\nlines", 7, None])
    def test_a_reason_is_one_short_line(self, rig: Rig, web: httpx.Client, reason: object) -> None:
        problem(web.post("/v1/halt", headers=BEARER, json={"reason": reason}), 422)
        problem(web.post("/v1/halt", headers=BEARER, json={"unknown": 1}), 422)
        assert not rig.role.halted


class TestEvents:
    def test_the_state_at_once_then_every_change_then_the_end(
        self, rig: Rig, web: httpx.Client
    ) -> None:
        rig.hello("edge-0")
        with web.stream("GET", "/v1/events") as stream:
            assert stream.headers["content-type"].startswith("text/event-stream")
            lines = stream.iter_lines()
            assert _next_event(lines)["applied"] == 0
            rig.update("edge-0")
            assert _next_event(lines)["applied"] == 1
            rig.operator.close()
            assert [
                line for line in lines if line.startswith("data:")
            ] == []  # it ended; nothing had changed

    def test_an_open_stream_does_not_delay_the_shutdown(self, rig: Rig) -> None:
        with served(rig) as url:
            connection = http.client.HTTPConnection(url.removeprefix("http://"), timeout=PATIENCE)
            connection.request("GET", "/v1/events")
            answer = connection.getresponse()
            assert answer.readline() == b"event: status\n"
        # `served` has checked that the server's thread is gone, with 30 s of grace unused.
        assert answer.read().endswith(b"\n\n")
        connection.close()

    def test_the_last_change_is_told_at_the_end(self, rig: Rig, web: httpx.Client) -> None:
        rig.hello("edge-0")
        with web.stream("GET", "/v1/events") as stream:
            lines = stream.iter_lines()
            _next_event(lines)
            for _ in range(6):
                rig.update("edge-0")
            rig.operator.close()
            assert _next_event(lines)["state"] == "finished"


def _next_event(lines: Iterator[str]) -> dict[str, Any]:
    data = next(line for line in lines if line.startswith("data: "))
    document: dict[str, Any] = json.loads(data.removeprefix("data: "))
    return document


def test_answers_are_as_openapi_says(rig: Rig, web: httpx.Client) -> None:
    rig.hello("edge-0")
    rig.update("edge-0")
    rig.run_status.point(1, 0.5, 1.0, 10)
    rig.link.up = True
    contract = schemathesis.openapi.from_url(f"{web.base_url}/openapi.json")
    parsed = contract.exclude(path="/v1/events").get_all_operations()
    operations = [result.ok() for result in parsed if isinstance(result, Ok)]
    assert len(operations) == 22
    for operation in operations:

        @hypothesis.given(case=operation.as_strategy())
        @hypothesis.settings(max_examples=5, deadline=None, derandomize=True, database=None)
        def holds(case: schemathesis.Case[Any]) -> None:
            case.call_and_validate()

        holds()
