"""Stored points: each is found again by its run, and is whole or not there after a kill."""

from __future__ import annotations

import json
import multiprocessing
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tacit_lab.papers.figures import stored_results
from tacit_lab.papers.figures.stored_results import RequestedRun, Result
from tacit_services.children import preload

from tacit.config import RunFile
from tacit.errors import ConfigError
from tests.conftest import ROOT
from tests.helpers.servers import PATIENCE
from tests.system.journal.test_store_servers import file_size_limit

RESULT: Result = {
    "series": [{"version": 1, "accuracy": 0.5, "clip": None, "metrics": {"accuracy": 0.5}}],
    "epsilon": None,
}
StoredPoint = dict[str, Any]


def requested(seed: int = 1, **network: Any) -> RequestedRun:
    content = {
        "run": {"updates": 4, "seed": seed},
        "data": {"dataset": "digits"},
        "model": {"name": "logistic"},
        "algorithm": {"name": "mapa"},
        "network": network,
    }
    return RequestedRun("f", RunFile.model_validate(content))


def line(folder: Path) -> StoredPoint:
    """Return the only line in `folder`."""
    content: StoredPoint = json.loads((folder / "f.jsonl").read_text())
    return content


class TestKept:
    def test_what_is_kept_is_found_by_its_run(self, tmp_path: Path) -> None:
        for seed in (1, 2):
            stored_results.store(tmp_path, requested(seed), RESULT | {"epsilon": seed})
        results, todo = stored_results.look_up(
            {"f": [requested(seed).run for seed in (1, 2, 3)]}, tmp_path
        )
        assert {key: result["epsilon"] for key, result in results.items()} == {
            stored_results.result_name(requested(seed).run): seed for seed in (1, 2)
        }
        assert todo == {stored_results.result_name(requested(3).run): requested(3)}

    def test_the_world_and_the_seed_are_in_the_name(self) -> None:
        names = {
            stored_results.result_name(request.run)
            for request in (
                requested(),
                requested(2),
                requested(slow_tasks=0.5),
                requested(slow_tasks=0.0),
            )
        }
        assert len(names) == 3

    def test_a_line_says_what_was_run_and_what_made_it(self, tmp_path: Path) -> None:
        stored_results.store(tmp_path, requested(2), RESULT)
        stored = line(tmp_path)
        assert stored["run"]["run"] == {"updates": 4, "seed": 2}
        assert stored["results_version"] == stored_results.RESULTS_VERSION
        assert stored["version"].startswith("0.")
        assert all(stored[key] for key in ("torch", "instructions"))

    def test_own_results_come_before_given_ones(self, tmp_path: Path) -> None:
        for place, epsilon in (("given", 1.0), ("own", 2.0)):
            (tmp_path / place).mkdir()
            stored_results.store(tmp_path / place, requested(), RESULT | {"epsilon": epsilon})
        results, _ = stored_results.look_up(
            {"f": [requested().run]}, tmp_path / "own", tmp_path / "given"
        )
        assert [result["epsilon"] for result in results.values()] == [2.0]

    def test_a_run_of_two_figures_is_in_the_file_of_the_first(self, tmp_path: Path) -> None:
        _, todo = stored_results.look_up(
            {"a": [requested().run], "b": [requested().run, requested(2).run]}, tmp_path
        )
        assert [request.figure for request in todo.values()] == ["a", "b"]

    def test_results_of_another_results_version_do_not_count(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        stored_results.store(tmp_path, requested(), RESULT)
        monkeypatch.setattr(stored_results, "RESULTS_VERSION", stored_results.RESULTS_VERSION + 1)
        assert stored_results.read_folder(tmp_path) == {}

    def test_an_installed_tacit_names_no_commit(self, tmp_path: Path) -> None:
        """In a folder of somebody else's repository, as an environment inside a project is."""
        subprocess.run(["git", "init", "-q", tmp_path], check=True)
        for name in ("src/tacit", "services/tacit_services", "lab/src/tacit_lab"):
            skipped = shutil.ignore_patterns("__pycache__")
            shutil.copytree(ROOT / name, tmp_path / "site" / Path(name).name, ignore=skipped)
        code = (
            "from tacit_lab.papers.figures import stored_results as s; "
            "print(s.made_by()['version'], s.__file__)"
        )
        path = os.pathsep.join((str(tmp_path / "site"), str(ROOT / "clients" / "python")))
        output = subprocess.run(
            [sys.executable, "-c", code],
            env=os.environ | {"PYTHONPATH": path},
            check=True,
            capture_output=True,
            text=True,
            cwd=tmp_path,
        ).stdout.split()
        assert output[1].startswith(str(tmp_path))
        assert "+" not in output[0]


class TestDamage:
    @pytest.mark.parametrize(
        "change",
        [
            lambda point: "",
            lambda point: json.dumps(point)[:-20],
            lambda point: "[]",
            lambda point: "{}",
            lambda point: "[" * 100_000,
            lambda point: "\udcff",
            lambda point: json.dumps(point | {"name": "0" * 24}),
            lambda point: json.dumps(point | {"run": point["run"] | {"edges": {"count": 4}}}),
            lambda point: json.dumps(point | {"results_version": "1"}),
            lambda point: json.dumps(
                {key: value for key, value in point.items() if key != "result"}
            ),
            *(
                lambda point, result=result: json.dumps(point | {"result": result})
                for result in (
                    {"series": [], "epsilon": 1},
                    {"series": [{"version": 1}]},
                    {"series": [1], "epsilon": 1},
                    {"series": [{}], "epsilon": 1},
                    {"series": [{"version": 1}], "epsilon": "x"},
                    {"series": [{"version": 1, "accuracy": float("nan")}], "epsilon": 1},
                    {"series": [{"version": "x"}], "epsilon": None},
                    {"series": [{"version": 1, "metrics": {"auc": "x"}}], "epsilon": 1},
                    {"series": [{"version": 1, "metrics": [0.5]}], "epsilon": 1},
                )
            ),
        ],
        ids=range(19),
    )
    def test_a_line_that_is_not_whole_is_left_out_and_said(
        self, tmp_path: Path, caplog: pytest.LogCaptureFixture, change: Callable[[StoredPoint], str]
    ) -> None:
        stored_results.store(tmp_path, requested(), RESULT)
        damaged = change(line(tmp_path)).encode(errors="surrogateescape")
        (tmp_path / "f.jsonl").write_bytes(damaged + b"\n")
        stored_results.store(tmp_path, requested(2), RESULT)
        assert stored_results.read_folder(tmp_path) == {
            stored_results.result_name(requested(2).run): RESULT
        }
        assert "f.jsonl: 1 of 2 lines are no whole points (first: 1): left out" in caplog.text

    @pytest.mark.parametrize("cut", [2, 100])
    def test_a_torn_last_line_is_left_out_said_and_then_cut_off(
        self, tmp_path: Path, caplog: pytest.LogCaptureFixture, cut: int
    ) -> None:
        for seed in (1, 2):
            stored_results.store(tmp_path, requested(seed), RESULT)
        path = tmp_path / "f.jsonl"
        intact = path.read_bytes()
        path.write_bytes(intact[:-cut])
        assert stored_results.read_folder(tmp_path) == {
            stored_results.result_name(requested().run): RESULT
        }
        assert "1 of 2 lines are no whole points (first: 2): left out" in caplog.text
        stored_results.store(tmp_path, requested(2), RESULT)
        assert path.read_bytes() == intact

    def test_a_whole_last_line_without_an_end_is_a_point_and_stays(self, tmp_path: Path) -> None:
        stored_results.store(tmp_path, requested(), RESULT)
        path = tmp_path / "f.jsonl"
        path.write_bytes(path.read_bytes().rstrip())
        stored_results.store(tmp_path, requested(2), RESULT)
        assert len(stored_results.read_folder(tmp_path)) == 2

    def test_what_cannot_be_kept_is_one_line_and_leaves_nothing(self, tmp_path: Path) -> None:
        (tmp_path / "f.jsonl").mkdir()
        with pytest.raises(ConfigError, match=r"f\.jsonl: Is a directory"):
            stored_results.store(tmp_path, requested(), RESULT)
        with pytest.raises(ConfigError, match=r"f\.jsonl: Is a directory"):
            stored_results.read_folder(tmp_path)

    def test_on_a_full_disk_what_was_there_stays_whole(self, tmp_path: Path) -> None:
        stored_results.store(tmp_path, requested(), RESULT)
        before = (tmp_path / "f.jsonl").read_bytes()
        with (
            file_size_limit(len(before) + 50),
            pytest.raises(ConfigError, match=r"f\.jsonl: File too large"),
        ):
            stored_results.store(tmp_path, requested(2), RESULT)
        assert (tmp_path / "f.jsonl").read_bytes() == before


def keep_many(folder: Path, seeds: range) -> None:
    for seed in seeds:
        stored_results.store(folder, requested(seed), RESULT)


def test_many_processes_keep_in_one_file(tmp_path: Path) -> None:
    preload.prepare()  # torch is imported once for all of them
    context = multiprocessing.get_context("forkserver")
    writers = [
        context.Process(target=keep_many, args=(tmp_path, range(n * 100 + 1, n * 100 + 51)))
        for n in range(3)
    ]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join(PATIENCE)
        assert writer.exitcode == 0
    assert len(stored_results.read_folder(tmp_path)) == 150
