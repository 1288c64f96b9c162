"""Several runs in one process: each with its store, its link to the broker and its interface."""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx
from tacit_services.aggregator.hosted_run import HostedRun, Loaded
from tacit_services.aggregator.reporting.results import run_in
from tacit_services.settings import AggregatorSettings, read_settings

from tests.helpers.run_files import MAPA, toml
from tests.helpers.servers import PATIENCE, wait_for
from tests.helpers.web import listening


@dataclass(frozen=True)
class Served:
    """A run that is served in a thread, and a client of its interface."""

    web: httpx.Client
    thread: threading.Thread

    def is_halted(self, token: str) -> bool:
        """Ask for the end of the run; whether the journal has it."""
        answer = self.web.post("/v1/halt", headers={"Authorization": f"Bearer {token}"})
        return answer.status_code == 202


@contextmanager
def hosted(folder: Path, address: str, out: Path | None = None) -> Iterator[Served]:
    """Serve a run named after its folder, until it has ended or the test is over.

    out: of its results, in place of a folder of its own.
    """
    folder.mkdir()
    (folder / "run.toml").write_text(toml(MAPA, run={"updates": 4}), encoding="utf-8")
    settings = read_settings(
        AggregatorSettings,
        run_file=str(folder / "run.toml"),
        run_id=folder.name,
        broker=address,
        store="memory://",
        out=out or folder / "out",
        receipts=folder / "receipts.key",
        token_file=folder / "token",
    )
    stop = threading.Event()
    run = HostedRun(settings, Loaded.of(settings), None)
    thread = threading.Thread(target=run.serve, args=[stop])
    with (
        listening(run.app) as where,
        closing(run),
        httpx.Client(base_url=f"http://{where}", trust_env=False, timeout=PATIENCE) as web,
    ):
        thread.start()
        try:
            wait_for(lambda: web.get("/readyz").status_code == 200)
            yield Served(web, thread)
        finally:
            stop.set()
            thread.join(PATIENCE)


def test_one_run_of_a_process_ends_and_the_other_goes_on(tmp_path: Path, address: str) -> None:
    with hosted(tmp_path / "one", address) as first, hosted(tmp_path / "two", address) as second:
        token = (tmp_path / "one/token").read_text(encoding="utf-8").strip()
        # The token of one run opens nothing of the other.
        assert not second.is_halted(token)
        wait_for(lambda: first.is_halted(token))
        first.thread.join(PATIENCE)
        summary = json.loads((tmp_path / "one/out/summary.json").read_text(encoding="utf-8"))
        assert (summary["run"], summary["state"]) == ("one", "halted")
        status = second.web.get("/v1/status").json()
        assert (status["run"], status["state"]) == ("two", "waiting")
        assert second.thread.is_alive()
    assert not (tmp_path / "two/out/summary.json").exists()


def test_a_run_moves_the_results_of_another_aside_and_its_own_not(
    tmp_path: Path, address: str
) -> None:
    # Given three runs, one after the other, that were told the same folder,
    out = tmp_path / "out"
    for name in ("one", "two", "three"):
        with hosted(tmp_path / name, address, out) as run:
            token = (tmp_path / name / "token").read_text(encoding="utf-8").strip()
            assert run.is_halted(token)
            run.thread.join(PATIENCE)
    # then each has its results, whole, in a folder of its own.
    for name, folder in (("three", out), ("one", tmp_path / "out-1"), ("two", tmp_path / "out-2")):
        summary = json.loads((folder / "summary.json").read_text(encoding="utf-8"))
        weights = (folder / "model.safetensors").read_bytes()
        assert summary["run"] == name
        assert summary["model_sha256"] == hashlib.sha256(weights).hexdigest()
    assert run_in(out) == "three"
    (out / "summary.json").write_text("[]")
    assert run_in(out) is None
