"""The evidence of a real `tacit run`, whose edge and aggregator were killed on the way."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tacit_services.cli.main import main

from tests.helpers.processes import PATIENCE
from tests.helpers.servers import wait_for
from tests.system.testbed.test_local_run import run_file, tacit_run, training


def test_a_run_with_a_crash_folds_to_what_its_edges_have_stated(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    # Given a run in which an edge and then the aggregator are killed with -9,
    out, journal = tmp_path / "out", tmp_path / "journal"
    arguments = (str(run_file(tmp_path, 400, 600)), "--out", str(out), "--journal", str(journal))
    with tacit_run(*arguments) as process:
        by_name = {child.name(): child for child in training(process, out)}
        wait_for(lambda: journal.exists() and journal.stat().st_size > 30_000, PATIENCE)
        for service in ("tacit edge", "tacit aggregato"):  # the system keeps 15 characters
            by_name[service].kill()
        process.communicate(timeout=3 * PATIENCE)
    assert process.returncode == 0
    # when it is exported with its evidence, then nothing of it is refused.
    with pytest.raises(SystemExit) as exited:
        main(["export", str(tmp_path / "bundle"), "--run", str(out), "--evidence",
              "--journal", str(journal), "--with-journal"])  # fmt: skip
    assert exited.value.code == 0
    capsys.readouterr()
    with pytest.raises(SystemExit) as exited:
        main(["verify", str(tmp_path / "bundle.zip"), "--json"])
    told = json.loads(capsys.readouterr().out)
    assert (exited.value.code, told["ok"]) == (0, True), told
    proven = [finding["code"] for finding in told["findings"] if finding["kind"] == "proven"]
    assert (proven.count("cover"), proven.count("epsilon"), proven.count("fold")) == (3, 3, 1)
    by = {finding["by"] for finding in told["findings"] if finding["code"] == "self-stated"}
    assert by == {"the exporter"}
