"""Trackers get what metrics.jsonl and the results have, and nothing that they do stops a run."""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from tacit_services.testbed import simulated_run
from tacit_services.tracking import run_trackers
from tacit_services.tracking.run_trackers import FILE, RunTrackers, need_trackers
from tacit_services.tracking.tracker import Figures, TrackedRun, TrackerError

from tacit import config
from tacit.config.sections import Tracking
from tacit.errors import ConfigError
from tests.helpers.run_files import MAPA, run_file, toml


class ListTracker:
    """A tracker that keeps what it is run_told; `broken`: from which call on it cannot write."""

    def __init__(self, broken: str = "") -> None:
        self.name = "list"
        self.broken = broken
        self.begun: list[tuple[TrackedRun, str | None]] = []
        self.points: list[tuple[int, Figures]] = []
        self.ends: list[tuple[Figures, list[str]]] = []

    def begin(self, run: TrackedRun, earlier: str | None) -> str:
        self._try("begin")
        self.begun.append((run, earlier))
        return "run-1"

    def point(self, version: int, figures: Figures) -> None:
        self._try("point")
        self.points.append((version, figures))

    def end(self, figures: Figures, files: Sequence[Path]) -> None:
        self._try("end")
        assert all(path.is_file() for path in files)
        self.ends.append((figures, [path.name for path in files]))

    def _try(self, call: str) -> None:
        if call == self.broken:
            raise TrackerError("there: is full")


def tracked(
    tracker: ListTracker, out: Path, monkeypatch: pytest.MonkeyPatch, **data: Any
) -> list[dict[str, Any]]:
    """Simulate a run that tracker follows; returns the lines of metrics.jsonl."""
    monkeypatch.setattr(run_trackers, "_opened", lambda *_: [tracker])
    out.mkdir(exist_ok=True)
    run = run_file(MAPA, run={"updates": 12, "name": "followed"}, evaluation={"every": 4}, **data)
    simulated_run.simulate(run.define(), None, out, lambda status: None)
    return [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]


def test_a_tracker_has_the_points_and_the_end_of_the_results(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tracker = ListTracker()

    lines = tracked(tracker, tmp_path, monkeypatch)

    summary = json.loads((tmp_path / "summary.json").read_text())
    assert [version for version, _ in tracker.points] == [line["version"] for line in lines]
    for (_, figures), line in zip(tracker.points, lines, strict=True):
        for key in ("accuracy", "loss", "epsilon", "staleness"):
            assert figures[key] == line[key]
        assert figures.items() >= line["metrics"].items()
    ((figures, names),) = tracker.ends
    assert figures["epsilon"] == summary["privacy"]["epsilon"]
    assert figures["test_accuracy"] == summary["test_accuracy"]
    assert names == ["summary.json", "model.safetensors"]


def test_it_is_told_the_definition_without_the_places_of_rows(tmp_path: Path) -> None:
    columns = {"age": {"low": 0, "high": 99}, "y": {"values": ["a", "b"]}}
    table = {
        "kind": "table",
        "train": "patients.csv",
        "test": "seen.csv",
        "target": "y",
        "rows": 50,
    }
    text = toml(
        MAPA,
        data={"dataset": None, **table, "name": "ward-7", "columns": columns},
        run={"updates": 9},
    )
    run = config.parse(text + '[tracking]\nwandb = "secret-project"\n', "test", folder=tmp_path)

    run_told = TrackedRun.of(run.define(), "own", simulated=False)

    assert run_told.keys["privacy.epsilon"] == "100.0"
    assert "age" in run_told.text()
    for word in ("patients", "seen.csv", "ward-7", "secret-project", str(tmp_path)):
        assert word not in run_told.text()


@pytest.mark.parametrize("call", ["begin", "point", "end"])
def test_one_that_cannot_write_is_warned_of_once_and_the_run_ends_well(
    call: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    tracker = ListTracker(broken=call)

    with caplog.at_level(logging.WARNING, "tacit.tracking"):
        lines = tracked(tracker, tmp_path, monkeypatch)

    assert len(lines) >= 3
    assert (tmp_path / "summary.json").exists()
    warnings = [record.getMessage() for record in caplog.records if record.name == "tacit.tracking"]
    assert warnings == ["tracking.list: there: is full; the run goes on without it"]


def test_one_that_hangs_is_waited_for_at_the_end_alone_and_not_for_ever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    let_go = threading.Event()
    tracker = ListTracker()
    monkeypatch.setattr(tracker, "begin", lambda run, earlier: str(let_go.wait(60)))
    monkeypatch.setattr(run_trackers, "CLOSE_SECONDS", 0.05)

    lines = tracked(tracker, tmp_path, monkeypatch)
    let_go.set()

    assert len(lines) >= 3
    assert "tracking.list: is not through after 0.05 s" in caplog.text


def test_a_restart_goes_on_with_the_run_that_it_had_begun_and_with_no_other(tmp_path: Path) -> None:
    names = []
    for name in ("a", "a", "b"):
        tracker = ListTracker()
        trackers = RunTrackers([tracker], TrackedRun(name, "f", {}, simulated=False), tmp_path)
        trackers.begin()
        trackers.close()
        names.append(tracker.begun[0][1])

    assert names == [None, "run-1", None]
    assert json.loads((tmp_path / FILE).read_text())["run"] == "b"


def test_several_that_begin_at_once_are_all_gone_on_with(tmp_path: Path) -> None:
    run = TrackedRun("a", "f", {}, simulated=False)
    several = [ListTracker() for _ in range(8)]
    for number, tracker in enumerate(several):
        tracker.name = f"list-{number}"
    trackers = RunTrackers(several, run, tmp_path)
    trackers.begin()
    trackers.close()

    names = json.loads((tmp_path / FILE).read_text())["names"]
    assert names == {tracker.name: "run-1" for tracker in several}


def test_it_is_off_by_default_and_no_part_of_the_runs_name() -> None:
    plain = run_file(MAPA, run={"updates": 9})
    followed = run_file(MAPA, run={"updates": 9}, tracking={"tensorboard": "events"})

    assert plain.tracking.extras == ()
    assert followed.tracking.extras == ("tensorboard",)
    assert followed.fingerprint() == plain.fingerprint()
    assert "tracking" not in followed.define().differences
    assert "tracking" not in config.as_tree(followed)


def test_a_federations_run_has_none_whoever_says_so() -> None:
    text = toml(MAPA, run={"updates": 9}, tracking={"mlflow": "http://10.0.0.1:5000"})
    with pytest.raises(ConfigError, match="tracking: a federation's run has none"):
        config.parse(text, "test", federation=True)
    tree = config.as_tree(config.parse(text, "test")) | {"tracking": {"tensorboard": "/etc"}}
    with pytest.raises(ConfigError, match="offer: tracking: a federation's run has none"):
        config.read(tree, "offer", Path(), site=None, own_code=False)


def test_a_password_in_the_run_file_is_refused() -> None:
    with pytest.raises(ConfigError, match="MLFLOW_TRACKING_PASSWORD"):
        run_file(MAPA, run={"updates": 9}, tracking={"mlflow": "https://me:word@host/ml"})


def test_a_tracker_whose_library_is_missing_is_refused_with_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("tacit_services.extras.missing", lambda extra: [extra])
    with pytest.raises(ConfigError, match=r"pip install 'tacit\[wandb\]'"):
        need_trackers(Tracking(wandb="project"))
    need_trackers(Tracking())
